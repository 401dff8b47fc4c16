package tune

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// Ops are read from a journal before they are undone, perhaps by another process.
func TestOpsAreTheSameWhenTheyAreReadFromAJournal(t *testing.T) {
	t.Parallel()
	kinds := allKinds()
	seen := map[string]bool{}
	steps := append(pair(t, pairLab).steps(t, Options{NoReboot: true}), BootUnit("/usr/local/bin/rackless")...)
	for _, s := range steps {
		seen[s.Op.Kind()] = true
		text, err := json.Marshal(s.Op)
		if err != nil {
			t.Fatal(err)
		}
		back := kinds[s.Op.Kind()]()
		if err := json.Unmarshal(text, back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.Op, back); diff != "" || back.Subject() != s.Op.Subject() {
			t.Errorf("%s (-was +is):\n%s", text, diff)
		}
	}
	for kind := range Kinds() {
		if !seen[kind] {
			t.Errorf("no step has an op of kind %q", kind)
		}
	}
}

func TestAMaskIsReadBackAsTheSameCPUs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cpus := topology.CPUs(rapid.SliceOfN(rapid.IntRange(0, 300), 0, 40).Draw(t, "cpus")...)
		back, err := topology.ParseCPUMask(cpus.Mask())
		if err != nil || !back.Equal(cpus) {
			t.Fatalf("%s is written %s and read %s, %v", cpus, cpus.Mask(), back, err)
		}
	})
}

func TestAMaskComesBackInTheFormInWhichItWas(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"ff", "0000ffff", "ffffffff,ffffffff", "00000000,0000000f"} {
		m := newMachine(t)
		m.write("proc/irq/default_smp_affinity", before+"\n")
		op := &CPUMask{Path: "/proc/irq/default_smp_affinity", CPUs: topology.CPUs(0, 33)}
		state, err := op.Read(t.Context(), m.system())
		if err != nil || op.Done(state) {
			t.Errorf("%s: %v, done %v", before, err, op.Done(state))
		}
		if err := op.Do(t.Context(), m.system()); err != nil {
			t.Error(err)
		}
		if now := m.read("proc/irq/default_smp_affinity"); now != "2,00000001" || !op.Done(change.State(now)) {
			t.Errorf("it is %s", now)
		}
		if err := op.Restore(t.Context(), m.system(), state); err != nil {
			t.Error(err)
		}
		if now := m.read("proc/irq/default_smp_affinity"); now != before {
			t.Errorf("it was %s and is %s", before, now)
		}
	}
}

func TestAMaskThatTheKernelDoesNotHaveIsInPlace(t *testing.T) {
	t.Parallel()
	op := &CPUMask{Path: "/sys/devices/virtual/workqueue/none", CPUs: topology.CPUs(0)}
	state, err := op.Read(t.Context(), newMachine(t).system())
	if err != nil || !op.Done(state) {
		t.Errorf("%q, %v", state, err)
	}
}

// Processors that choose frequencies themselves reject other preferences under performance.
func TestGovernorsAreSetBeforePreferences(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var wrote []string
	s := m.system()
	s.Fault = func(what string) {
		value, path, _ := strings.Cut(strings.TrimPrefix(what, "write "), " to ")
		wrote = append(wrote, value+" "+strings.TrimPrefix(path, "/sys/devices/system/cpu/"))
	}
	g := &Governor{}
	before, err := g.Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	m.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave") // somebody changed it in between
	if err := g.Restore(t.Context(), s, before); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`"performance" cpu0/cpufreq/scaling_governor`, `"performance" cpu1/cpufreq/scaling_governor`,
		`"performance" cpu2/cpufreq/scaling_governor`,
		`"performance" cpu0/cpufreq/energy_performance_preference`,
		`"performance" cpu1/cpufreq/energy_performance_preference`,
		`"performance" cpu2/cpufreq/energy_performance_preference`,
		`"schedutil" cpu0/cpufreq/scaling_governor`, `"schedutil" cpu2/cpufreq/scaling_governor`,
		`"balance_performance" cpu0/cpufreq/energy_performance_preference`,
		`"balance_performance" cpu1/cpufreq/energy_performance_preference`,
		`"balance_performance" cpu2/cpufreq/energy_performance_preference`,
	}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestACPUThatIsGoneIsNamedWhenItsGovernorIsBroughtBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	g := &Governor{}
	before, err := g.Read(t.Context(), m.system())
	if err != nil {
		t.Fatal(err)
	}
	m.remove("sys/devices/system/cpu/cpu1")
	if err := g.Restore(t.Context(), m.system(), before); err == nil || !strings.Contains(err.Error(),
		"CPU 1 does not take governor powersave") {
		t.Errorf("got %v", err)
	}
}

func TestAKernelWithoutTheGovernorIsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("sys/devices/system/cpu/cpu2/cpufreq/scaling_available_governors", "powersave schedutil\n")
	_, err := m.prepare(pair(t, pairLab).steps(t, Options{}))
	if err == nil || !strings.Contains(err.Error(),
		`CPU 2 has no governor performance, it offers "powersave schedutil": load the module cpufreq_performance`) {
		t.Errorf("got %v", err)
	}
}

func TestServicesThatSetTheSameAreNamed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.system()
	s.Run = func(_ context.Context, argv []string) ([]byte, error) {
		var states []string
		for _, service := range argv[slices.Index(argv, "--")+1:] {
			state := "inactive"
			if service == "tuned.service" {
				state = "active"
			}
			states = append(states, state+"\n")
		}
		return []byte(strings.Join(states, "\n")), nil
	}
	got, err := Contenders(t.Context(), s)
	if err != nil || len(got) != 1 || got[0].Service != "tuned.service" || got[0].Fix == "" {
		t.Errorf("%v, %v", got, err)
	}
	s.Run = func(context.Context, []string) ([]byte, error) { return []byte("inactive\n"), nil }
	if got, err := Contenders(t.Context(), s); err == nil {
		t.Errorf("one state of several services: %v", got)
	}
	m.remove("run/systemd")
	if got, err := Contenders(t.Context(), s); err != nil || got != nil {
		t.Errorf("without systemd: %v, %v", got, err)
	}
}

func TestAStateThatIsNoneIsAnErrorAndNotDone(t *testing.T) {
	t.Parallel()
	s := newMachine(t).system()
	for kind, empty := range Kinds() {
		op := empty()
		if kind != kindPartition && kind != kindCPUMask {
			if err := op.Restore(t.Context(), s, "{"); err == nil && kind != kindPool {
				t.Errorf("%s restores a state that is none", kind)
			}
		}
		if op.Done("{") {
			t.Errorf("%s is done with a state that is none", kind)
		}
	}
}
