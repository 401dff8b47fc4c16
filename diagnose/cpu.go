package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

func cpuRules() []rule {
	return []rule{
		{Check{
			ID: "RL050", Title: "isolation splits cores",
			Severity: Warning,
			Summary:  "Of the threads of a core one is isolated and another is not.",
			Reads: []string{"/sys/devices/system/cpu/isolated",
				"/sys/devices/system/cpu/cpu*/topology/thread_siblings_list"},
			Means: "Threads of a core share its execution units and its first caches. The one that is not isolated " +
				"takes all the noise that isolation " +
				"was meant to keep away, and gives it to its sibling. Lists written by hand often forget the second " +
				"half: on a machine with 32 cores " +
				"and 64 threads the sibling of CPU 2 is mostly 34, not 3.",
			Fix: "Isolate whole cores. The finding has the siblings that are missing. On an EPYC 7551P: " +
				"`isolcpus=2-29,34-61`.",
			Sources: []string{"EPYC lab (command line)", "kubevirt/kubevirt#11749"},
		}, splitCores},
		{Check{
			ID: "RL051", Title: "interrupts on isolated CPUs",
			Severity: Warning,
			Summary: "Interrupts that have been served are bound to isolated CPUs. Those of devices given to " +
				"virtual machines (vfio) do not count.",
			Reads: []string{"/sys/devices/system/cpu/isolated", "/proc/irq/*/effective_affinity_list",
				"/proc/interrupts"},
			Means: "isolcpus keeps the scheduler away, not interrupts. Each one stops the virtual CPU for some " +
				"microseconds. Drivers spread the queues of " +
				"NICs and NVMe drives over all CPUs, isolated ones too. Some of these interrupts are managed by the " +
				"kernel (NVMe, some NICs): their " +
				"affinity cannot be written.",
			Fix: "For interrupts in general: irqbalance with IRQBALANCE_BANNED_CPULIST, or write the list of the " +
				"other CPUs to " +
				"`/proc/irq/N/smp_affinity_list`. For NIC queues: fewer queues (`ethtool -L NETDEV combined N`). For " +
				"managed ones: " +
				"`isolcpus=managed_irq,domain,LIST` on the command line.",
			Sources: []string{"Irqbalance/irqbalance#122", "Irqbalance/irqbalance#275",
				"Documentation/admin-guide/kernel-parameters.txt (isolcpus)"},
		}, busyIsolated},
		{Check{
			ID: "RL052", Title: "isolation asked for is not in force",
			Severity: Warning,
			Summary:  "isolcpus or nohz_full on the command line names CPUs that the kernel does not list as such.",
			Reads: []string{"/proc/cmdline", "/sys/devices/system/cpu/isolated",
				"/sys/devices/system/cpu/nohz_full"},
			Means: "The list was not understood as a whole, or the kernel lacks CONFIG_NO_HZ_FULL, or nohz_full and " +
				"isolcpus differ where they must match, or a second " +
				"isolcpus was ignored. isolcpus=managed_irq,LIST without the word domain isolates from interrupts " +
				"only. CPU 0 is left out: the kernel " +
				"takes the boot CPU off nohz_full to keep time.\n\nThe other way round, CPUs that are isolated and " +
				"not on the command line, is what " +
				"cpuset partitions and tuned do, and is fine.",
			Fix: "Look at the first lines of `dmesg` for Housekeeping and isolcpus. Write the list once, with " +
				"flags that contain domain, or without flags.",
			Sources: []string{"redhat-performance/tuned#98", "kernel/sched/isolation.c"},
		}, notInForce},
		{Check{
			ID: "RL053", Title: "empty CPU list on the command line",
			Severity: Warning,
			Summary:  "isolcpus=, nohz_full=, rcu_nocbs= or irqaffinity= without CPUs.",
			Reads:    []string{"/proc/cmdline"},
			Means: "A tool wrote the parameter and had no CPUs for it. The kernel warns and goes on, so nothing is " +
				"isolated, although the " +
				"parameter is there to be seen.",
			Fix: "Take the parameter off, or give it CPUs: with tuned, set isolated_cores in the profile's " +
				"variables.",
			Sources: []string{"redhat-performance/tuned#294"},
		}, emptyList},
		{Check{
			ID: "RL054", Title: "CPU frequency governor is not performance",
			Severity: Warning, Also: []Severity{Info},
			Summary: "Cores have another scaling governor. A warning on a host that serves labs.",
			Reads:   []string{"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
			Means: "Other governors raise the clock only after load was seen. Latency of short messages and the " +
				"first seconds of each run suffer, and " +
				"results vary: a factor of 2 in latency by the governor alone has been reported. perftest then warns " +
				"of conflicting CPU frequency " +
				"values.\n\nWith intel_pstate the governor called powersave does raise the clock; it still starts low.",
			Fix: "`cpupower frequency-set -g performance`, or `tuned-adm profile latency-performance`. On " +
				"vSphere: power policy High Performance.",
			Sources: []string{"open-mpi/ompi#3003", "linux-rdma/perftest#82", "NVIDIA/nccl-tests#374", "vSphere study"},
		}, governors},
		{Check{
			ID: "RL055", Title: "SMT is switched off",
			Severity: Info,
			Summary:  "smt/control is off or forceoff, on a processor that has several threads per core.",
			Reads:    []string{"/sys/devices/system/cpu/smt/control"},
			Means: "Each core has one CPU. That is a choice: fewer side channels and steadier latency for less " +
				"throughput. Plans and lists made for the " +
				"machine with SMT do not fit: CPU numbers above the number of cores are missing. Virtual machines " +
				"with threads=2 would see siblings " +
				"that are none; exposing true siblings is worth 2 to 3%.",
			Fix: "`echo on > /sys/devices/system/cpu/smt/control` (not possible from forceoff), or take nosmt " +
				"off the command line, or leave it.",
			Sources: []string{"kubevirt/kubevirt#11749", "pinning study"},
		}, smtOff},
		{Check{
			ID: "RL056", Title: "kernel command line may be cut off",
			Severity: Warning,
			Summary:  "The command line is as long as x86 and Arm kernels take, 2048 bytes with the ending zero.",
			Reads:    []string{"/proc/cmdline"},
			Means: "What is beyond the limit is lost without a word, and the last parameter may be cut in half: a " +
				"list of CPUs then names fewer of them. " +
				"Mostly a list was written CPU by CPU. GRUB's environment block has 1024 bytes and fails before that.",
			Fix:     "Write ranges (2-29,34-61), and take parameters off that are not needed.",
			Sources: []string{"redhat-performance/tuned#514"},
		}, longCmdline},
	}
}

// isolated returns the isolated CPUs, the empty set where none are or it is not known.
func (v *view) isolated() topology.CPUSet {
	if v.CPUs.Isolated == nil {
		return topology.CPUSet{}
	}
	return *v.CPUs.Isolated
}

// cpuList writes a set so that an empty one can be seen.
func cpuList(s topology.CPUSet) string {
	if s.IsEmpty() {
		return "empty"
	}
	return s.String()
}

func splitCores(v *view) []Finding {
	isolated := v.isolated()
	var missing topology.CPUSet
	var split []string
	for i := range v.Cores {
		c := &v.Cores[i]
		if rest := c.CPUs.Difference(isolated); !rest.IsEmpty() && c.CPUs.Overlaps(isolated) {
			missing = missing.Union(rest)
			split = append(split, at(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
				c.CPUs.Min()), c.CPUs.String()))
		}
	}
	if missing.IsEmpty() {
		return nil
	}
	return []Finding{{Severity: Warning, Subject: missing.String(),
		Evidence:    all(at("/sys/devices/system/cpu/isolated", isolated.String()), few(split, 3, "; ")),
		Consequence: "these CPUs are siblings of isolated ones and pass the noise of the host on to them",
		Fix:         "isolate whole cores: isolcpus=" + isolated.Union(missing).String()}}
}

// forGuest reports whether an interrupt is that of a device in a virtual machine, which is served
// where its virtual CPUs are. The reader names the function that owns it, or the kernel's action,
// "vfio-msix[0](0000:41:00.0)".
func (v *view) forGuest(q *topology.IRQ) bool {
	if strings.HasPrefix(q.Device, "vfio") {
		return true
	}
	a, err := topology.ParsePCIAddr(q.Device)
	if err != nil {
		return false
	}
	d := v.tree.Device(a)
	return d != nil && isVFIO(d.Driver)
}

// served tells how often an interrupt has come.
func served(q *topology.IRQ) uint64 {
	if q.Count == nil {
		return 0
	}
	return *q.Count
}

// irqFact is the evidence on one interrupt.
func irqFact(q *topology.IRQ) string {
	what := q.Device
	if what == "" {
		what = "device not known"
	}
	return at(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", q.Number), fmt.Sprintf("%s (%s, %d served)", q.CPUs,
		what, served(q)))
}

func busyIsolated(v *view) []Finding {
	isolated := v.isolated()
	var hit topology.CPUSet
	var busy []*topology.IRQ
	for i := range v.IRQs {
		q := &v.IRQs[i]
		// One that may be served elsewhere proves nothing: the count is of all CPUs.
		if q.CPUs.IsEmpty() || !q.CPUs.IsSubsetOf(isolated) || served(q) == 0 || v.forGuest(q) {
			continue
		}
		hit = hit.Union(q.CPUs)
		busy = append(busy, q)
	}
	if len(busy) == 0 {
		return nil
	}
	slices.SortStableFunc(busy, func(a, b *topology.IRQ) int { // the busiest first
		switch {
		case served(a) > served(b):
			return -1
		case served(a) < served(b):
			return 1
		}
		return a.Number - b.Number
	})
	facts := make([]string, len(busy))
	for i, q := range busy {
		facts[i] = irqFact(q)
	}
	return []Finding{{Severity: Warning, Subject: hit.String(),
		Evidence:    all(at("/sys/devices/system/cpu/isolated", isolated.String()), few(facts, 4, "; ")),
		Consequence: plural(len(busy), "interrupt") + " stop work on isolated CPUs",
		Fix: "move them: write other CPUs to /proc/irq/N/smp_affinity_list, give NICs fewer queues (ethtool " +
			"-L), or use " +
			"isolcpus=managed_irq,domain,LIST for interrupts that cannot be moved"}}
}

func notInForce(v *view) []Finding {
	var out []Finding
	check := func(name, file string, have *topology.CPUSet, counts func(flags []string) bool) {
		p, ok := v.asked(name)
		if !ok || have == nil {
			return
		}
		flags, want, known := v.isolationList(p.value)
		if !known || !counts(flags) {
			return
		}
		if v.CPUs.Present != nil {
			want = want.Intersect(*v.CPUs.Present)
		}
		missing := want.Difference(*have).Difference(topology.CPUs(0))
		if missing.IsEmpty() {
			return
		}
		out = append(out, Finding{Severity: Warning, Subject: missing.String(),
			Evidence:    all(cmdlineIs(p), at(file, cpuList(*have))),
			Consequence: name + " has no effect on these CPUs: the host works on them",
			Fix: "look for Housekeeping and isolcpus in dmesg; write the list once, without flags or with " +
				"domain among them"})
	}
	check("isolcpus", "/sys/devices/system/cpu/isolated", v.CPUs.Isolated, func(flags []string) bool {
		return len(flags) == 0 || slices.Contains(flags, "domain")
	})
	check("nohz_full", "/sys/devices/system/cpu/nohz_full", v.CPUs.NoHzFull, func([]string) bool { return true })
	return out
}

func emptyList(v *view) []Finding {
	var out []Finding
	for _, p := range v.params {
		switch p.name {
		case "isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity":
		default:
			continue
		}
		flags, cpus, known := v.isolationList(p.value)
		if !p.hasValue || !known || !cpus.IsEmpty() || p.name != "isolcpus" && len(flags) > 0 {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: "host", Evidence: cmdlineIs(p),
			Consequence: p.name + " names no CPU: nothing is kept free",
			Fix:         "give " + p.name + " its CPUs or take it off the command line"})
	}
	return out
}

func governors(v *view) []Finding {
	cpus := map[string]topology.CPUSet{}
	for i := range v.Cores {
		if g := v.Cores[i].Governor; g != "" && g != "performance" {
			cpus[g] = cpus[g].Union(v.Cores[i].CPUs)
		}
	}
	var out []Finding
	for _, g := range slices.Sorted(maps.Keys(cpus)) {
		out = append(out, Finding{Severity: v.ifServing(), Subject: cpus[g].String(),
			Evidence: at(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpus[g].Min()), g) +
				moreCPUs(cpus[g]),
			Consequence: "the clock rises only after load was seen: short messages take longer, and results vary",
			Fix:         "cpupower frequency-set -g performance"})
	}
	return out
}

func moreCPUs(s topology.CPUSet) string {
	if s.Len() < 2 {
		return ""
	}
	return " (and " + strings.Replace(plural(s.Len()-1, "CPU"), " ", " more ", 1) + ")"
}

func smtOff(v *view) []Finding {
	if v.CPUs.SMT != "off" && v.CPUs.SMT != "forceoff" {
		return nil
	}
	return []Finding{{Severity: Info, Subject: "host", Evidence: at("/sys/devices/system/cpu/smt/control", v.CPUs.SMT),
		Consequence: "one CPU per core: steadier, with less throughput; lists made for the machine with SMT do not fit",
		Fix: "leave it if it is meant; else echo on > /sys/devices/system/cpu/smt/control, or take nosmt off " +
			"the command line"}}
}

// cmdlineLimit is COMMAND_LINE_SIZE of x86 and arm64, with the ending zero. Other architectures have others.
const cmdlineLimit = 2048

func longCmdline(v *view) []Finding {
	switch v.System.Arch {
	case "x86_64", "i686", "aarch64", "":
	default:
		return nil
	}
	if v.Kernel.Cmdline == nil || len(*v.Kernel.Cmdline) < cmdlineLimit-1 {
		return nil
	}
	return []Finding{{Severity: Warning, Subject: "host", Evidence: at("/proc/cmdline",
		fmt.Sprintf("%d bytes", len(*v.Kernel.Cmdline))),
		Consequence: "what is beyond the limit of the kernel was lost, and the last parameter may be cut in half",
		Fix:         "write CPU lists as ranges, and take off what is not needed"}}
}
