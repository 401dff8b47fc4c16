package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func (v *view) isolated() topology.CPUSet {
	if v.CPUs.Isolated == nil {
		return topology.CPUSet{}
	}
	return *v.CPUs.Isolated
}

func cpuList(s topology.CPUSet) string {
	if s.IsEmpty() {
		return "empty"
	}
	return s.String()
}

// splitCores finds the usual mistake when isolating by CPU: sibling threads rarely have neighbouring numbers.
func splitCores(v *view, add func(finding.Finding)) {
	isolated := v.isolated()
	var missing topology.CPUSet
	var split []string
	for i := range v.Cores {
		c := &v.Cores[i]
		if rest := c.CPUs.Difference(isolated); !rest.IsEmpty() && c.CPUs.Overlaps(isolated) {
			missing = missing.Union(rest)
			split = append(split, at(siblings(c.CPUs.Min()), c.CPUs.String()))
		}
	}
	if missing.IsEmpty() {
		return
	}
	add(finding.Finding{Subject: missing.String(),
		Evidence: all(at("/sys/devices/system/cpu/isolated", isolated.String()), words.Few(split, 3, "; ")),
		Fix:      "isolate whole cores: isolcpus=" + isolated.Union(missing).String()})
}

func served(q *topology.IRQ) uint64 {
	if q.Count == nil {
		return 0
	}
	return *q.Count
}

func irqFact(q *topology.IRQ) string {
	return at(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", q.Number),
		fmt.Sprintf("%s (%s, %d served)", q.CPUs, cmp.Or(q.Device, "device not known"), served(q)))
}

// busyIsolated finds interrupts that can only be served on isolated CPUs. For others, the count does not tell the CPU.
func busyIsolated(v *view, add func(finding.Finding)) {
	isolated := v.isolated()
	var hit topology.CPUSet
	var busy []*topology.IRQ
	for i := range v.IRQs {
		q := &v.IRQs[i]
		if q.CPUs.IsEmpty() || !q.CPUs.IsSubsetOf(isolated) || served(q) == 0 || v.tree.ForGuest(q.Device) {
			continue
		}
		hit = hit.Union(q.CPUs)
		busy = append(busy, q)
	}
	if len(busy) == 0 {
		return
	}
	slices.SortStableFunc(busy, func(a, b *topology.IRQ) int {
		return cmp.Or(cmp.Compare(served(b), served(a)), a.Number-b.Number)
	})
	add(finding.Finding{Subject: hit.String(),
		Evidence: all(at("/sys/devices/system/cpu/isolated", isolated.String()),
			words.Few(lists.Map(busy, irqFact), 4, "; ")),
		Consequence: words.Count(len(busy), "interrupt") + " stop work on isolated CPUs"})
}

// notInForce skips CPU 0: the boot CPU keeps the kernel's time, and nohz_full omits it.
func notInForce(v *view, add func(finding.Finding)) {
	check := func(name, file string, have *topology.CPUSet, counts func(flags []string) bool) {
		p, ok := v.asked(name)
		if !ok || have == nil {
			return
		}
		flags, want, known := v.isolationList(p.value)
		if !known || !counts(flags) {
			return
		}
		// A list for several machines may name other CPUs.
		if v.CPUs.Present != nil {
			want = want.Intersect(*v.CPUs.Present)
		}
		missing := want.Difference(*have).Difference(topology.CPUs(cmdline.BootCPU))
		if missing.IsEmpty() {
			return
		}
		add(finding.Finding{Subject: missing.String(),
			Evidence:    all(cmdlineIs(p), at(file, cpuList(*have))),
			Consequence: name + " has no effect on these CPUs: the host works on them"})
	}
	check("isolcpus", "/sys/devices/system/cpu/isolated", v.CPUs.Isolated, func(flags []string) bool {
		return len(flags) == 0 || slices.Contains(flags, "domain")
	})
	check("nohz_full", "/sys/devices/system/cpu/nohz_full", v.CPUs.NoHzFull, func([]string) bool { return true })
}

// ticklessOnly finds CPUs in nohz_full that other threads may still use.
func ticklessOnly(v *view, add func(finding.Finding)) {
	p, ok := v.asked("nohz_full")
	if !ok || v.CPUs.Isolated == nil {
		return
	}
	_, tickless, known := v.isolationList(p.value)
	if !known {
		return
	}
	open := tickless.Difference(v.isolated()).Difference(topology.CPUs(cmdline.BootCPU))
	if q, ok := v.asked("isolcpus"); ok {
		if _, asked, known := v.isolationList(q.value); !known || asked.Overlaps(open) {
			return // RL052
		}
	}
	if open.IsEmpty() {
		return
	}
	add(finding.Finding{Subject: open.String(),
		Evidence: all(cmdlineIs(p), at("/sys/devices/system/cpu/isolated", cpuList(v.isolated()))),
		Fix: "isolcpus=" + open.String() + " beside it, or a cgroup partition (cpuset.cpus.partition=isolated) " +
			"for the CPUs of the VMs"})
}

// emptyList finds lists that the kernel accepts and ignores. For isolcpus, flags without a list are the same mistake;
// other parameters accept such words.
func emptyList(v *view, add func(finding.Finding)) {
	for _, p := range v.params {
		if !slices.Contains([]string{"isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"}, p.name) {
			continue
		}
		flags, cpus, known := v.isolationList(p.value)
		if !p.hasValue || !known || !cpus.IsEmpty() || p.name != "isolcpus" && len(flags) > 0 {
			continue
		}
		add(finding.Finding{Subject: "host", Evidence: cmdlineIs(p), Consequence: p.name + " names no CPU: nothing " +
			"is kept free", Fix: "give " + p.name + " its CPUs or take it off the command line"})
	}
}

// governors makes one finding per governor, not per CPU.
func governors(v *view, add func(finding.Finding)) {
	cpus := map[string]topology.CPUSet{}
	for i := range v.Cores {
		c := &v.Cores[i]
		if g := c.Governor; g != "" && g != "performance" {
			cpus[g] = cpus[g].Union(c.CPUs)
		}
	}
	for _, g := range lists.Keys(cpus) {
		add(finding.Finding{Severity: v.ifServing(), Subject: cpus[g].String(),
			Evidence: at(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpus[g].Min()), g) +
				moreCPUs(cpus[g])})
	}
}

func moreCPUs(s topology.CPUSet) string {
	if s.Len() >= 2 {
		return " (and " + strings.Replace(words.Count(s.Len()-1, "CPU"), " ", " more ", 1) + ")"
	}
	return ""
}

// smtOff is a note: it may be on purpose, but older CPU lists may name missing threads.
func smtOff(v *view, add func(finding.Finding)) {
	if v.CPUs.SMT == "off" || v.CPUs.SMT == "forceoff" {
		add(finding.Finding{Subject: "host", Evidence: at("/sys/devices/system/cpu/smt/control", v.CPUs.SMT)})
	}
}

// cmdlineLimit is COMMAND_LINE_SIZE of x86 and arm64, with the terminating zero.
const cmdlineLimit = 2048

// longCmdline finds a line that the kernel silently cuts to one byte less than the limit.
func longCmdline(v *view, add func(finding.Finding)) {
	if v.Kernel.Cmdline == nil {
		return
	}
	n := len(*v.Kernel.Cmdline)
	if n >= cmdlineLimit-1 && slices.Contains([]string{"x86_64", "i686", "aarch64", ""}, v.System.Arch) {
		add(finding.Finding{Subject: "host", Evidence: at("/proc/cmdline", fmt.Sprintf("%d bytes", n))})
	}
}
