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

// An emulatedSite is this machine with processes as nodes. Their links are impaired on the lab's own switch.
type emulatedSite struct{ *Rig }

func (e *emulatedSite) survey() (err error) {
	e.protected, err = protect(e.all, e.spec.Protected)
	return err
}

// ready returns nil, because boots do not matter to emulated nodes.
func (e *emulatedSite) ready(map[string]string) error { return nil }

// apply moves running processes and impairs their links, after look. It starts nodes again only if the lab file is a
// factor.
func (e *emulatedSite) apply(ctx context.Context, l *lab.Lab, settings map[string]string) error {
	if err := e.upWith(ctx, l, e.options); err != nil {
		return err
	}
	if err := e.look(ctx); err != nil {
		return err
	}
	// look fails on a lab with lossy links, so it comes first.
	link, any, err := e.link(settings)
	if err == nil && any {
		err = e.setLinks(ctx, link)
	}
	if err != nil {
		return err
	}
	return e.pin(settings[study.FactorPlacement] == variant.Pin)
}

func (e *emulatedSite) restore(ctx context.Context) error {
	if e.rack == nil {
		return nil
	}
	return errors.Join(e.pin(false), e.repairLinks(ctx))
}

// loadCPUs protects CPUs only at level cpuset.
func (e *emulatedSite) loadCPUs(isolation string) (cpus topology.CPUSet, outside bool) {
	if isolation == study.IsolationCpuset {
		return e.all.Difference(e.protected), false
	}
	return e.all, false
}

// accelerator assumes that /dev/kvm works if it exists: an estimate justifies no trial boot.
func (e *emulatedSite) accelerator() string {
	if _, err := os.Stat("/dev/kvm"); err == nil {
		return "kvm"
	}
	return "tcg"
}

func (e *emulatedSite) helpers() []int            { return nil }
func (e *emulatedSite) describe(*study.HostState) {}

// environment names the CPUs of nodes, which the lab file does not tell.
func (e *emulatedSite) environment() []study.Fact {
	if e.protected.IsEmpty() {
		return nil
	}
	return []study.Fact{{Name: "protected CPUs", Value: e.protected.String()}}
}

// protect returns the asked CPUs, or the upper half.
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

const onHosts = "nodes of an emulated lab have none of that: it takes a lab with driver: libvirt on a host that " +
	"rackless prepare has prepared"

// check rejects settings that need a prepared host. Delay and jitter may be valid only separately.
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

// link returns false if no impairment is a factor.
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

// pin restricts nodes and switch to the protected CPUs, each node to one in turn, or removes the restriction.
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
	// In turn, not by load, a cell has the same placement in each run.
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
