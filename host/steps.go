package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/host/boot"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/device"
	"github.com/rackless/rackless/host/links"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

// Choices are stored with the plan, since the steps at the next boot follow from them, too.
type Choices struct {
	// NoReboot leaves the kernel's arguments alone: CPUs are kept free by cgroups, and pages are found at run time.
	NoReboot bool `json:"no_reboot,omitempty"`
	// YesReally permits taking the boot console and NICs with addresses, and a port's link for a moment.
	YesReally bool `json:"yes_really,omitempty"`
	// Firmware makes settings in the firmware of NICs, which need a cold reset.
	Firmware bool `json:"firmware,omitempty"`
}

// A Machine is what steps need of the machine beside the system.
type Machine struct {
	// Binary is the path of rackless, which a unit calls at each boot; "" leaves the unit out.
	Binary string
	// Inspect reads the machine as it is now.
	Inspect func(ctx context.Context) (*topology.Host, error)
}

// Steps begins with kernel arguments and the boot unit. Then come memory while it is in one piece, devices, and the
// limits for CPUs.
func Steps(s *change.System, p *Prepared, m Machine) ([]change.Step, error) {
	args, why := p.Plan.KernelArgs, p.Plan.KernelWhy
	if p.Choices.NoReboot {
		args, why = nil, nil
	}
	first, err := boot.Steps(s, args, why)
	if err != nil {
		return nil, fmt.Errorf("kernel arguments: %w", err)
	}
	for i := range first {
		// CPUs and pages are lost to the host however they are set aside.
		guard := first[i].Guard
		first[i].Guard = func(ctx context.Context, s *change.System) error {
			if guard != nil {
				if err := guard(ctx, s); err != nil {
					return err
				}
			}
			return errors.Join(tune.GuardCPUs(p.Plan, p.Host), tune.GuardPages(s, p.Plan))
		}
	}
	if m.Binary != "" {
		first = append(first, tune.BootUnit(m.Binary)...)
	}
	tuning, err := tune.Steps(p.Plan, p.Lab, p.Host, tune.Options{NoReboot: p.Choices.NoReboot})
	if err != nil {
		return nil, err
	}
	devices, err := device.Steps(p.Plan, p.Lab, p.Host, device.Options{
		Inspect: m.Inspect, YesReally: p.Choices.YesReally, Firmware: p.Choices.Firmware,
		Made: "Made by rackless prepare for lab " + p.Lab.Name + ".",
	})
	if err != nil {
		return nil, err
	}
	return append(first, inOrder(tuning, devices)...), nil
}

// Kinds returns the ops of all packages that change a host.
func Kinds() change.Kinds {
	all := change.Kinds{}
	for _, kinds := range []change.Kinds{change.BasicKinds(), boot.Kinds(), device.Kinds(), tune.Kinds(),
		links.Kinds()} {
		maps.Copy(all, kinds)
	}
	return all
}

// Adopt enters into the journal the pages that a boot with the kernel's arguments has brought, so that a rollback gives
// them back at once.
func Adopt(ctx context.Context, s *change.System, j *change.Journal, p *Prepared) error {
	if !ArgumentsInForce(j.Entries()) {
		return nil
	}
	steps, err := tune.Steps(p.Plan, p.Lab, p.Host, tune.Options{NoReboot: p.Choices.NoReboot})
	if err != nil {
		return err
	}
	return change.Adopt(ctx, s, j, steps)
}

// ArgumentsInForce reports whether the kernel still runs with arguments of these entries, until the next boot.
func ArgumentsInForce(entries []*change.Entry) bool {
	return slices.ContainsFunc(entries, func(e *change.Entry) bool { return boot.GivesArguments(e.Op) })
}

// Survey returns the status of the steps of a preparation.
func Survey(ctx context.Context, s *change.System, p *Prepared, m Machine) ([]change.Result, error) {
	steps, err := Steps(s, p, m)
	if err != nil {
		return nil, err
	}
	// Steps that are already made need no guards.
	for i := range steps {
		steps[i].Guard = nil
	}
	return change.Survey(ctx, s, steps)
}

// A Look is a reading of the machine.
type Look struct {
	Host  *topology.Host // nil for none
	Began time.Time
	Took  time.Duration
}

// fresh reports whether a look still holds. On a machine that takes long to read, everything else takes longer too.
func (l Look) fresh() bool {
	return l.Host != nil && time.Since(l.Began) < max(10*time.Second, 4*l.Took)
}

// ThisMachine takes "" for an unknown binary. Guards within seconds share one look, beginning with last.
func ThisMachine(binary string, last Look) Machine {
	return Machine{Binary: binary, Inspect: func(ctx context.Context) (*topology.Host, error) {
		if last.fresh() {
			return last.Host, nil
		}
		began := time.Now()
		h, err := inspect.Read(ctx, inspect.Live())
		last = Look{h, began, time.Since(began)}
		return h, err
	}}
}

// Make makes the steps with the journal of Open, and closes it. A refused preparation leaves nothing.
func (s Store) Make(ctx context.Context, sys *change.System, j *change.Journal, steps []change.Step,
	report func(change.Result)) ([]change.Result, error) {
	results, err := change.Make(ctx, sys, j, steps, report)
	if _, refused := errors.AsType[*change.RefusedError](err); refused && len(results) > 0 && len(j.Entries()) == 0 {
		return results, errors.Join(err, s.Clear(j))
	}
	return results, errors.Join(err, j.Close())
}

// Rollback undoes the journal, last first, closes it, and then forgets the preparation. stays is why pages that the
// boot has set aside may stay until the next one, or nil.
func (s Store) Rollback(ctx context.Context, sys *change.System, j *change.Journal,
	report func(change.Result)) (results []change.Result, stays, err error) {
	// Without the plan it leaves to the next boot what the last one brought.
	if p, err := s.Load(); err == nil {
		stays = Adopt(ctx, sys, j, p)
	}
	if results, err = change.Rollback(ctx, sys, j, report); err != nil {
		return results, stays, errors.Join(err, j.Close())
	}
	return results, stays, s.Clear(j)
}

// Artifacts returns all artefacts of a plan as [render.All], with commands by which a person prepares the host. It
// reads no machine: the same input gives the same bytes.
func Artifacts(in render.Input) ([]render.Artifact, error) {
	if in.Plan == nil || in.Lab == nil {
		return render.All(in) // which says what is missing
	}
	steps, err := stepsByHand(in)
	if err != nil {
		return nil, fmt.Errorf("commands: %w", err)
	}
	made := cmp.Or(words.OneLine(in.Made), "Made by rackless.")
	own := strings.NewReplacer(boot.MadeBy, made, tune.MadeBy, made)
	in.Kernel, in.Steps = forPeople(boot.ByHand(in.Plan.KernelArgs), own), forPeople(steps, own)
	return render.All(in)
}

func forPeople(steps []change.Step, own *strings.Replacer) []render.Step {
	var all []render.Step
	for i := range steps {
		s := &steps[i]
		all = append(all, render.Step{What: s.What, Why: s.Why, Risk: s.Risk, Boot: s.Boot,
			Commands: strings.Split(own.Replace(strings.Join(s.Commands(), "\n")), "\n")})
	}
	return all
}

// stepsByHand leaves out kernel arguments, which depend on the boot loader, and the unit that calls rackless.
func stepsByHand(in render.Input) ([]change.Step, error) {
	h := cmp.Or(in.Host, &topology.Host{})
	tuning, err := tune.Steps(in.Plan, in.Lab, h, tune.Options{})
	if err != nil {
		return nil, err
	}
	devices, err := device.Steps(in.Plan, in.Lab, h, device.Options{
		Firmware: true, Made: in.Made,
		Inspect: func(context.Context) (*topology.Host, error) {
			return nil, errors.New("a plan is written without a look at the machine")
		},
	})
	if err != nil {
		return nil, err
	}
	// A dump of another tool may not say whether the host scales frequencies.
	governs := func(s change.Step) bool { return s.Op.Kind() == (&tune.Governor{}).Kind() }
	if !slices.ContainsFunc(tuning, governs) {
		tuning = append(tuning, change.Step{Op: &tune.Governor{},
			What: "set governor performance on all CPUs, if the kernel scales frequencies"})
	}
	return inOrder(tuning, devices), nil
}

// inOrder puts pages first, while memory is in one piece, and the rest of the tuning after the devices, whose
// interrupts it moves.
func inOrder(tuning, devices []change.Step) []change.Step {
	rest := slices.IndexFunc(tuning, func(step change.Step) bool { return !step.Early })
	if rest < 0 {
		rest = len(tuning)
	}
	return slices.Concat(tuning[:rest], devices, tuning[rest:])
}
