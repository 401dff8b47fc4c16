// Package tune sets up a host's memory and CPUs for a lab: hugepages, where the host's own work and
// interrupts run, frequencies, and what the kernel does to memory on its own. Each setting is an op
// of package change, so that it can be taken back.
//
// The order of the steps is that in which they help each other: hugepages while memory is in one
// piece, their mounts, memory that is left alone, frequencies, then the CPUs: slices of systemd,
// the partition, interrupts.
//
// What does not survive a reboot is made again by the unit of [BootUnit].
package tune

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// Options are choices that a plan leaves open.
type Options struct {
	// NoReboot is set where the kernel arguments of the plan are not made: CPUs are kept free by
	// cgroups instead of isolcpus, and hugepages have to be found while the host runs.
	NoReboot bool
}

// Kinds are the ops of this package. Its steps also have the basic ones, [change.BasicKinds].
func Kinds() change.Kinds {
	return change.Kinds{
		kindPool:      func() change.Op { return &Pool{} },
		kindMount:     func() change.Op { return &Mount{} },
		kindUnit:      func() change.Op { return &Unit{} },
		kindGovernor:  func() change.Op { return &Governor{} },
		kindCPUMask:   func() change.Op { return &CPUMask{} },
		kindPartition: func() change.Op { return &Partition{} },
		kindIRQs:      func() change.Op { return &IRQs{} },
	}
}

// Steps returns what is to be different for a plan, in order. It follows from its arguments alone:
// h is the host as it was when the plan was made.
func Steps(p *plan.Plan, l *lab.Lab, h *topology.Host, o Options) ([]change.Step, error) {
	if p == nil || l == nil || h == nil {
		return nil, errors.New("tune: no plan, lab or host")
	}
	files, err := render.HostFiles(render.Input{Plan: p, Lab: l, Host: h})
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	v := &view{plan: p, host: h, noReboot: o.NoReboot, files: files}
	if v.given, err = p.GivenCPUs(h); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	for i := range p.Nodes {
		v.emulators = v.emulators.Union(p.EmulatorPin(&p.Nodes[i], h)).Union(p.Nodes[i].IOThreadCPUs)
	}
	return slices.Concat(v.pages(), v.mounts(), v.kernelValues(), v.governor(), v.slices(), v.interrupts()), nil
}

// A view is a plan as the steps look at it.
type view struct {
	plan      *plan.Plan
	host      *topology.Host
	noReboot  bool
	files     []render.Artifact // of the host, see render.HostFiles
	given     topology.CPUSet   // all CPUs of cores of lab nodes, idle siblings too
	emulators topology.CPUSet   // housekeeping CPUs that QEMU's own threads run on
}

func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

// hasArg reports whether the kernel is to be started with an argument.
func (v *view) hasArg(name string) bool {
	return !v.noReboot && slices.ContainsFunc(v.plan.KernelArgs, func(arg string) bool {
		return strings.HasPrefix(arg, name+"=")
	})
}

// confines reports whether the host is to be kept off CPUs at all.
func (v *view) confines() bool { return !v.given.IsEmpty() }
