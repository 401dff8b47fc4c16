package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
)

const (
	kindGovernor = "governor"
	cpuDir       = "/sys/devices/system/cpu/"
	performance  = "performance"
)

// A Governor runs all CPUs at their highest frequency: if frequencies follow the load, latencies are up to twice as
// long and vary. It is one op for all CPUs, because CPUs share policies, and one write may change several.
type Governor struct{}

// Preference is the hint for processors that choose frequencies themselves; it is empty on others.
type frequency struct {
	Governor   string `json:"governor"`
	Preference string `json:"preference,omitempty"` // energy_performance_preference
}

// Kind implements [change.Op].
func (*Governor) Kind() string { return kindGovernor }

// Subject implements [change.Op].
func (*Governor) Subject() string { return cpuDir + "cpufreq" }

func governorFile(cpu int) string {
	return fmt.Sprintf("%scpu%d/cpufreq/scaling_governor", cpuDir, cpu)
}

func preferenceFile(cpu int) string {
	return fmt.Sprintf("%scpu%d/cpufreq/energy_performance_preference", cpuDir, cpu)
}

func frequencies(s *change.System) (map[int]frequency, error) {
	cpus, err := s.Numbers(cpuDir, "cpu")
	all := map[int]frequency{}
	for _, cpu := range cpus {
		governor, err1 := s.ValueOr(governorFile(cpu), "")
		preference, err2 := s.ValueOr(preferenceFile(cpu), "")
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if governor != "" {
			all[cpu] = frequency{governor, preference}
		}
	}
	return all, err
}

// Read implements [change.Op].
func (*Governor) Read(_ context.Context, s *change.System) (change.State, error) {
	return change.Encode(frequencies(s))
}

// Done is true if no CPU scales its frequency.
func (*Governor) Done(state change.State) bool {
	all, err := change.Decode[map[int]frequency](state)
	if err != nil {
		return false
	}
	for _, f := range all {
		if f.Governor != performance || f.Preference != "" && f.Preference != performance {
			return false
		}
	}
	return true
}

// Do implements [change.Op].
func (g *Governor) Do(_ context.Context, s *change.System) error {
	all, err := frequencies(s)
	if err != nil {
		return err
	}
	want := map[int]frequency{}
	for cpu, f := range all {
		want[cpu] = frequency{performance, f.Preference}
		if f.Preference != "" {
			want[cpu] = frequency{performance, performance}
		}
	}
	return setFrequencies(s, want)
}

// Restore implements [change.Op].
func (g *Governor) Restore(_ context.Context, s *change.System, before change.State) error {
	want, err := change.Decode[map[int]frequency](before)
	if err != nil {
		return err
	}
	now, err := frequencies(s)
	if err != nil {
		return err
	}
	want, _ = mergeFrequencies(want, now)
	return setFrequencies(s, want)
}

// Merge merges the governor and preference of each CPU separately.
func (g *Governor) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	before, err1 := change.Decode[map[int]frequency](u.Before)
	now, err2 := change.Decode[map[int]frequency](u.Now)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	want, changed := mergeFrequencies(before, now)
	state, err := change.Encode(want, nil)
	return state, changed, err
}

func mergeFrequencies(before, now map[int]frequency) (map[int]frequency, []change.Changed) {
	var changed []change.Changed
	merge := func(what string, cpu int, before, now string) string {
		if now == performance || now == before {
			return before
		}
		changed = append(changed, change.Changed{What: fmt.Sprintf("%s of CPU %d", what, cpu), Found: now,
			Set: performance})
		return now
	}
	want := maps.Clone(before) // Restore fails for a CPU that is gone
	for _, cpu := range slices.Sorted(maps.Keys(now)) {
		was, known := before[cpu]
		if !known { // came online since
			want[cpu] = now[cpu]
			continue
		}
		want[cpu] = frequency{merge("governor", cpu, was.Governor, now[cpu].Governor),
			merge("energy preference", cpu, was.Preference, now[cpu].Preference)}
	}
	return want, changed
}

// Shell implements [change.Manual].
func (*Governor) Shell() []string {
	const each = "for file in " + cpuDir + "cpu[0-9]*/cpufreq/%s; do [ ! -e $file ] || echo " + performance +
		" > $file; done"
	return []string{fmt.Sprintf(each, "scaling_governor"), fmt.Sprintf(each, "energy_performance_preference")}
}

// setFrequencies sets all governors first. With intel_pstate and amd-pstate the governor performance rejects every
// other preference, and another governor changes the preference.
func setFrequencies(s *change.System, want map[int]frequency) error {
	cpus := slices.Sorted(maps.Keys(want))
	set := func(file, value string) error {
		if have, err := s.Value(file); err != nil || have == value {
			return err
		}
		return s.WriteValue(file, value)
	}
	for _, cpu := range cpus {
		if err := set(governorFile(cpu), want[cpu].Governor); err != nil {
			return fmt.Errorf("CPU %d does not take governor %s: %w", cpu, want[cpu].Governor, err)
		}
	}
	for _, cpu := range cpus {
		if want[cpu].Preference == "" {
			continue
		}
		if err := set(preferenceFile(cpu), want[cpu].Preference); err != nil {
			return fmt.Errorf("CPU %d does not take energy preference %s: %w", cpu, want[cpu].Preference, err)
		}
	}
	return nil
}

func guardGovernor(_ context.Context, s *change.System) error {
	all, err := frequencies(s)
	if err != nil {
		return err
	}
	for _, cpu := range slices.Sorted(maps.Keys(all)) {
		file := fmt.Sprintf("%scpu%d/cpufreq/scaling_available_governors", cpuDir, cpu)
		text, err := s.ValueOr(file, performance)
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(text), performance) {
			return fmt.Errorf("CPU %d has no governor %s, it offers %q: load the module cpufreq_performance", cpu,
				performance, text)
		}
	}
	return nil
}

// governor returns nil if the host's firmware or hypervisor controls the frequencies.
func (v *view) governor() []change.Step {
	scales := false
	for _, c := range v.host.Cores {
		scales = scales || c.Governor != ""
	}
	if !scales {
		return nil
	}
	return []change.Step{{
		Op:   &Governor{},
		What: "set governor performance on all CPUs",
		Why:  "latencies come out up to twice as long, and never twice the same, while frequencies follow the load",
		Risk: "more power and heat; tuned, power-profiles-daemon and the like set governors too where they run, " +
			"and may undo this",
		Guard: guardGovernor,
	}}
}
