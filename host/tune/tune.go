// Package tune sets up a host's memory and CPUs for a lab, with ops of package change. The steps are in the order in
// which they help each other, such as hugepages before memory fragments.
package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// Options are choices that a plan leaves open.
type Options struct {
	// NoReboot is set if the kernel arguments of the plan are not used: cgroups replace isolcpus, and hugepages are
	// allocated while the host runs.
	NoReboot bool
}

// Kinds returns the ops of this package. Its steps also use [change.BasicKinds].
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

// Steps depends only on the arguments; h is the host as it was when the plan was made.
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

type view struct {
	plan      *plan.Plan
	host      *topology.Host
	noReboot  bool
	files     []render.Artifact // for the host, see render.HostFiles
	given     topology.CPUSet   // including idle siblings
	emulators topology.CPUSet   // for QEMU's own threads
}

func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

func (v *view) hasArg(name string) bool {
	return !v.noReboot && slices.ContainsFunc(v.plan.KernelArgs, func(arg string) bool {
		return strings.HasPrefix(arg, name+"=")
	})
}

func (v *view) confines() bool { return !v.given.IsEmpty() }

const sysctlFile = "/etc/sysctl.d/90-rackless.conf"

type sysctl struct {
	name, value, why string
}

// sysctls returns the same values as the tuned profile of package render.
func (v *view) sysctls() []sysctl {
	var all []sysctl
	// Bit 0 is balancing; bit 1, tiering to slower memory, does not move pages of a pinned guest
	// (Documentation/admin-guide/sysctl/kernel.rst).
	if want, ok := map[string]string{"0": "0", "1": "0", "2": "2", "3": "2"}[v.host.Memory.NUMABalancing]; ok {
		all = append(all, sysctl{"kernel.numa_balancing", want,
			"guests and their memory are pinned: moving pages between NUMA nodes only costs time"})
	}
	if !v.given.IsEmpty() {
		all = append(all, sysctl{"vm.stat_interval", "10",
			"memory statistics are gathered on every CPU, also on those of guests: every 10 seconds is enough"})
	}
	return all
}

// kernelValues skips features that the host does not have.
func (v *view) kernelValues() []change.Step {
	if len(v.plan.Nodes) == 0 {
		return nil
	}
	var steps []change.Step
	add := func(path, value, what, why, risk string) {
		steps = append(steps, change.Step{Op: &change.Value{Path: path, Want: value}, What: what, Why: why, Risk: risk})
	}
	all := v.sysctls()
	var file strings.Builder
	file.WriteString("# " + MadeBy + "\n")
	for _, c := range all {
		// With a dash, a missing setting is not an error.
		fmt.Fprintf(&file, "\n# %s\n-%s = %s\n", c.why, c.name, c.value)
	}
	// The values come before the file that sets them at boot, so that a rollback removes the file first. If the machine
	// goes down in between, the journal still has the earlier values.
	for _, c := range all {
		add("/proc/sys/"+strings.ReplaceAll(c.name, ".", "/"), c.value, "set "+c.name+" to "+c.value, c.why, "")
	}
	if len(all) > 0 {
		steps = append(steps, change.Step{
			Op:   &change.File{Path: sysctlFile, Data: []byte(file.String()), Mode: 0o644},
			What: "keep settings of the kernel in " + sysctlFile,
			Why:  "systemd-sysctl sets them early at each boot",
		})
	}
	if v.host.Memory.KSM != "" {
		// 0, not 2: separating merged pages needs memory for all at once. Pages of the lab's VMs are never merged
		// (nosharepages).
		add("/sys/kernel/mm/ksm/run", "0", "stop merging pages (KSM)",
			"a thread scans memory for it, takes CPU time and cache, and splits hugepages",
			"memory that is merged stays so, no more is; ksmtuned starts it again where it runs")
	}
	// For throughput the default is better; see docs/checks.md, RL046.
	if v.host.Memory.THP == "always" && v.plan.Workload == lab.WorkloadRDMALatency && v.hasHugepages() {
		add("/sys/kernel/mm/transparent_hugepage/enabled", "madvise", "use transparent hugepages only where "+
			"programs ask for them", "khugepaged compacts and copies memory in the background, and allocations wait "+
			"for compaction: outliers in latency; the lab nodes have hugepages of their own", "programs of the host "+
			"that use them without asking get slower")
	}
	return steps
}

func (v *view) hasHugepages() bool {
	return slices.ContainsFunc(v.plan.Hugepages, func(h plan.Hugepages) bool { return h.PageBytes > 0 && h.Count > 0 })
}

const kindCPUMask = "cpumask"

// A CPUMask is a kernel file with a mask of CPUs. Equal masks can have different texts, because the kernel writes as
// many digits as it has possible CPUs.
type CPUMask struct {
	Path string          `json:"path"`
	CPUs topology.CPUSet `json:"cpus"`
}

const noMask change.State = "none"

// Kind implements [change.Op].
func (m *CPUMask) Kind() string { return kindCPUMask }

// Subject implements [change.Op].
func (m *CPUMask) Subject() string { return m.Path }

// Read returns the mask as the kernel writes it.
func (m *CPUMask) Read(_ context.Context, s *change.System) (change.State, error) {
	text, err := s.ValueOr(m.Path, string(noMask))
	return change.State(text), err
}

// Done implements [change.Op].
func (m *CPUMask) Done(state change.State) bool {
	have, err := topology.ParseCPUMask(string(state))
	return state == noMask || err == nil && have.Equal(m.CPUs)
}

// Do implements [change.Op].
func (m *CPUMask) Do(_ context.Context, s *change.System) error {
	return s.WriteValue(m.Path, m.CPUs.Mask())
}

// Restore implements [change.Op].
func (m *CPUMask) Restore(ctx context.Context, s *change.System, before change.State) error {
	if now, err := m.Read(ctx, s); err != nil || now == before || before == noMask || now == noMask {
		return err
	}
	return s.WriteValue(m.Path, string(before))
}

// Merge implements [change.Merger].
func (m *CPUMask) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	return u.Whole(m, m.Done(u.Now), change.Changed{What: m.Path, Found: string(u.Now), Set: m.CPUs.Mask()})
}

// Shell implements [change.Manual].
func (m *CPUMask) Shell() []string { return []string{change.EchoTo(m.Path, m.CPUs.Mask())} }
