package tune

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
)

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
			"guests are pinned, memory and all: moving pages between NUMA nodes could only cost"})
	}
	if !v.given.IsEmpty() {
		all = append(all, sysctl{"vm.stat_interval", "10",
			"statistics of memory are gathered on every CPU, those of guests too: every 10 seconds will do"})
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
		steps = append(steps, change.Step{Op: &change.Value{Path: path, Want: value}, What: what, Why: why, Risk: risk,
			EachBoot: true, Scripts: "governor"})
	}
	all := v.sysctls()
	var file strings.Builder
	file.WriteString("# " + madeBy + "\n")
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
			"that profit from them without asking get slower")
	}
	return steps
}

func (v *view) hasHugepages() bool {
	for _, h := range v.plan.Hugepages {
		if h.PageBytes > 0 && h.Count > 0 {
			return true
		}
	}
	return false
}
