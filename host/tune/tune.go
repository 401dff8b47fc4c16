// Package tune sets up a host's memory and CPUs for a lab: hugepages, where the host's own work and
// interrupts run, frequencies, and what the kernel does to memory on its own. Each setting is an op
// of package change, so that it can be undone.
//
// The order of the steps is that in which they help each other: hugepages while memory is in one
// piece, their mounts, memory that is left alone, frequencies, then the CPUs: slices of systemd,
// the partition, interrupts.
//
// What does not survive a reboot is made again by the unit of [BootUnit].
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

const sysctlFile = "/etc/sysctl.d/90-rackless.conf"

// A sysctl is a value below /proc/sys.
type sysctl struct {
	name, value, why string
}

// sysctls returns the values that are to be different, the same as in the profile for tuned that render writes.
func (v *view) sysctls() []sysctl {
	var all []sysctl
	// Bit 0 is balancing; bit 1, tiering to slower memory, moves no page of a pinned guest
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

// kernelValues returns the steps for what the kernel does to memory on its own. What the host does
// not have, it is not asked for.
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
		// A dash: a kernel that lacks one does not fail.
		fmt.Fprintf(&file, "\n# %s\n-%s = %s\n", c.why, c.name, c.value)
	}
	// The values before the file that a boot sets them by, so that a rollback takes the file first:
	// if the machine goes down in between, there is still to be told in the journal what the values
	// were.
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
		// 0, not 2: to take merged pages apart needs memory for all of them at once. Those of the
		// lab's machines are never merged (nosharepages).
		add("/sys/kernel/mm/ksm/run", "0", "stop merging pages (KSM)",
			"a thread scans memory for it, takes CPU time and cache, and splits hugepages",
			"memory that is merged stays so, no more is; ksmtuned starts it again where it runs")
	}
	// For throughput it is better left as it is; see docs/checks.md, RL046.
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

// A CPUMask is a file of the kernel with a mask of CPUs. The same mask has many forms: the kernel
// writes as many digits as it could have CPUs.
type CPUMask struct {
	Path string          `json:"path"`
	CPUs topology.CPUSet `json:"cpus"`
}

// noMask is the state of a file that the kernel does not have. Nothing is to be done then.
const noMask change.State = "none"

// Kind implements [change.Op].
func (m *CPUMask) Kind() string { return kindCPUMask }

// Subject implements [change.Op].
func (m *CPUMask) Subject() string { return m.Path }

// Read implements [change.Op]: the mask as the kernel writes it.
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
