package render

import "strings"

// tuned returns a profile for tuned, for hosts where that service owns such settings.
func (v *view) tuned() []Artifact {
	if v.given.IsEmpty() {
		return nil
	}
	var b strings.Builder
	b.WriteString(v.header("A profile for tuned: an alternative to the units for governor and irqbalance, for hosts " +
		"where tuned runs (RHEL and relatives). Copy the folder to " +
		"/etc/tuned/, or to /etc/tuned/profiles/ where that is there, then: tuned-adm profile rackless-" + v.lab +
		". Undo: tuned-adm profile with the one from before, which " +
		"tuned-adm active prints; then remove the folder."))
	b.WriteString("[main]\nsummary=" + strings.ReplaceAll("Host of lab "+oneLine(v.plan.Lab), "$", "") + "\n")
	b.WriteString(comment("# ", "The profile that tuned itself recommends for hosts of virtual machines."))
	b.WriteString("include=virtual-host\n\n[variables]\n")
	b.WriteString(comment("# ", "The CPUs of the lab nodes, idle siblings too."))
	b.WriteString("isolated_cores=" + v.given.String() + "\n\n[cpu]\n")
	b.WriteString(comment("# ", "Latencies come out up to twice as long, and never twice the same, while frequencies "+
		"follow the load."))
	b.WriteString("governor=performance\nenergy_perf_bias=performance\n\n[sysctl]\n")
	b.WriteString(comment("# ", "Guests are pinned, memory and all: moving pages between NUMA nodes could only cost."))
	b.WriteString("kernel.numa_balancing=0\n")
	b.WriteString(comment("# ", "Statistics of memory are gathered on every CPU, those of guests too: every 10 "+
		"seconds will do."))
	b.WriteString("vm.stat_interval=10\n\n[irqbalance]\n")
	b.WriteString("banned_cpus=${isolated_cores}\n\n")
	b.WriteString(comment("# ", "Not here, on purpose:\n"+
		"- [bootloader]: the kernel arguments have scripts of their own (kernel/), and two owners of one command "+
		"line undo each other.\n"+
		"- [scheduler] isolated_cores: it moves every process, virtual CPUs among them, off these CPUs, and breaks "+
		"their pinning."))
	return []Artifact{text("tuned/rackless-"+v.lab+"/tuned.conf", b.String())}
}
