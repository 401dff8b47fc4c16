package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/variant"
	"github.com/rackless/rackless/rack/emulated"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm"
)

// An emulatedSite is this machine with processes as nodes: they are pinned by their threads, and
// their links are impaired on the lab's own switch.
type emulatedSite struct{ *Rig }

// survey chooses the CPUs that the nodes may be pinned to.
func (e *emulatedSite) survey() (err error) {
	e.protected, err = protect(e.all, e.spec.Protected)
	return err
}

// ready is always nil: nodes that are emulated do not mind how the host is booted.
func (e *emulatedSite) ready(map[string]string) error { return nil }

// apply changes nothing of the nodes themselves: the same processes are moved to other CPUs and their
// links impaired, unless the lab file is a factor. The lab is looked at before its links are impaired.
func (e *emulatedSite) apply(ctx context.Context, l *lab.Lab, settings map[string]string) error {
	if err := e.upWith(ctx, l, e.options); err != nil {
		return err
	}
	if err := e.look(ctx); err != nil {
		return err
	}
	// Where the study has no impairments among its factors, they stay as they are.
	// After the look, which fails on a lab whose links lose packets, as it should.
	link, any, err := e.link(settings)
	if err == nil && any {
		err = e.setLinks(ctx, link)
	}
	if err != nil {
		return err
	}
	return e.pin(settings[study.FactorPlacement] == variant.Pin)
}

// restore lets all threads run everywhere and makes the links whole.
func (e *emulatedSite) restore(ctx context.Context) error {
	if e.rack == nil {
		return nil
	}
	return errors.Join(e.pin(false), e.repairLinks(ctx))
}

// loadCPUs keeps load off the protected CPUs at the level cpuset alone. Nothing of this machine is
// prepared, so that load has no rule to leave.
func (e *emulatedSite) loadCPUs(isolation string) (cpus topology.CPUSet, outside bool) {
	if isolation == study.IsolationCpuset {
		return e.all.Difference(e.protected), false
	}
	return e.all, false
}

// accelerator takes a KVM that is there to work: an estimate needs no trial boot.
func (e *emulatedSite) accelerator() string {
	if _, err := os.Stat("/dev/kvm"); err == nil {
		return "kvm"
	}
	return "tcg"
}

func (e *emulatedSite) helpers() []int            { return nil }
func (e *emulatedSite) describe(*study.HostState) {}

// environment names the CPUs that nodes are pinned to: a reader cannot tell from the lab file.
func (e *emulatedSite) environment() []study.Fact {
	if e.protected.IsEmpty() {
		return nil
	}
	return []study.Fact{{Name: "protected CPUs", Value: e.protected.String()}}
}

// protect chooses the CPUs that nodes are pinned to: those asked for, or the upper half.
func protect(all topology.CPUSet, asked string) (topology.CPUSet, error) {
	if asked == "" {
		cpus := slices.Collect(all.All())
		return topology.CPUs(cpus[len(cpus)/2:]...), nil
	}
	set, err := topology.ParseCPUSet(asked)
	if err != nil {
		return set, fmt.Errorf("protected_cpus %q: %w", asked, err)
	}
	if set.IsEmpty() || !set.Difference(all).IsEmpty() {
		return set, fmt.Errorf("protected_cpus %s: this machine has CPUs %s", asked, all)
	}
	return set, nil
}

// onHosts says why a level is not possible on emulated nodes.
const onHosts = "nodes of an emulated lab have none of that: it takes a lab with driver: libvirt on a host that " +
	"rackless prepare has prepared"

// check refuses what only a prepared host can give. The links are checked all together: delay and
// jitter may fit one by one and not with each other.
func (e *emulatedSite) check(l *lab.Lab, settings map[string]string) error {
	for factor, level := range settings {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("factor %s: level %s: %s", factor, level, fmt.Sprintf(format, args...))
		}
		switch {
		case factor == study.FactorPlacement && level != variant.Default && level != variant.Pin,
			factor == study.FactorIsolation && level == study.IsolationIsolcpus,
			factor == study.FactorHugepages && level != "off":
			return fail("%s", onHosts)
		case factor == study.FactorIsolation && level == study.IsolationCpuset &&
			e.all.Difference(e.protected).IsEmpty():
			return fail("no CPU is left for the load: all of %s are protected", e.all)
		}
	}
	if _, _, err := e.link(settings); err != nil {
		return err
	}
	return emulated.Supported(l)
}

// link returns the impairments of a cell; false where it says nothing of them.
func (e *emulatedSite) link(settings map[string]string) (l fabric.Link, any bool, err error) {
	l.Seed = e.spec.Seed
	for factor, level := range settings {
		if key, ok := study.LinkKey(factor); ok {
			any = true
			if err := l.Set(key, level); err != nil {
				return l, true, fmt.Errorf("factor %s: level %s: %w", factor, level, err)
			}
		}
	}
	if !any {
		return l, false, nil
	}
	return l, true, l.Validate()
}

// pin lets the threads of nodes and switch run on the protected CPUs alone, each node on one of
// them in turn; or everywhere.
func (e *emulatedSite) pin(pin bool) error {
	cpus := slices.Collect(e.protected.All())
	set := func(p vm.Process, to topology.CPUSet) error {
		if !p.Alive() {
			return fmt.Errorf("process %d of lab %s has ended: see rackless ls", p.PID, e.lab.Name)
		}
		return confine(p.PID, to)
	}
	if d := e.rack.State.Daemon; d != nil {
		to := e.all
		if pin {
			to = e.protected
		}
		if err := set(*d, to); err != nil {
			return err
		}
	}
	// In turn, and not by load: the placement of a cell has to be the same in each of its runs.
	for i, n := range e.rack.State.Nodes {
		to := e.all
		if pin {
			to = topology.CPUs(cpus[i%len(cpus)])
		}
		if err := set(n.Process, to); err != nil {
			return err
		}
	}
	return nil
}
