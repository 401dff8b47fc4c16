package check

import "github.com/rackless/rackless/diagnose"

// Identifiers of the checks of virtual machines against their plan.
const (
	IDDomain           = "domain-running"
	IDVCPUAffinity     = "vcpu-affinity"
	IDEmulatorAffinity = "emulator-affinity"
	IDIOThreadAffinity = "iothread-affinity"
	IDPins             = "domain-pins"
	IDMemoryNodes      = "memory-nodes"
	IDMemoryPages      = "memory-pages"
	IDVFIOHeld         = "vfio-held"
)

// domainChecks explains the checks of Domains, by ID.
func domainChecks() []diagnose.Check {
	return []diagnose.Check{
		{
			ID: "RL301", Name: IDDomain, Title: "virtual machine runs", Severity: diagnose.Error,
			Summary: "Every lab node has a virtual machine that runs, and its process can be looked at.",
			Reads:   []string{"virsh domstate DOMAIN", "/proc/PID"},
			Means: text("Nothing can be said of a node that does not run. One that is paused mostly had an I/O error "+
				"or waits for a debugger; one that is shut off may have",
				"been refused at its start."),
			Fix:     "`virsh start DOMAIN` says why not; QEMU's own words are in `/var/log/libvirt/qemu/DOMAIN.log`.",
			Sources: []string{"https://libvirt.org/manpages/virsh.html (domstate)", "kubevirt/kubevirt#14854"},
		},
		{
			ID: "RL302", Name: IDVCPUAffinity, Title: "virtual CPUs are on their CPUs", Severity: diagnose.Error,
			Summary: "The thread of every virtual CPU may run on the CPU of the plan, and on no other.",
			Reads:   []string{"/proc/PID/task/TID/status (Cpus_allowed_list)"},
			Means: text("What virsh vcpuinfo shows under CPU Affinity, read from the kernel. A thread that may use "+
				"several isolated CPUs stays where it began, because nothing",
				"balances load there: all virtual CPUs then pile up on one. A pin in the XML need not be in force: "+
					"it may have been made with --config only, or",
				"undone by a cpuset of a parent group."),
			Fix: text("    virsh vcpupin DOMAIN VCPU CPU --live --config\n\n",
				"If that is refused, the CPUs are outside of the cpuset of machine.slice or offline."),
			Sources: []string{"EPYC lab (virsh vcpuinfo)", "seapath/ansible#908", "ayufan/pve-helpers#4",
				"innogames/igvm#280"},
		},
		{
			ID: "RL303", Name: IDEmulatorAffinity, Title: "QEMU's own threads are on their CPUs",
			Severity: diagnose.Warning,
			Summary: "Every thread of QEMU that is neither a virtual CPU nor an I/O thread may run on the plan's " +
				"emulator CPUs only.",
			Reads: []string{"/proc/PID/task/TID/status (Cpus_allowed_list)"},
			Means: text("The main loop, the threads of vhost and of migration share a CPU with a virtual CPU "+
				"otherwise, and a few microseconds of theirs are the tail of",
				"every latency that the guest measures. On isolated CPUs they pile up on one, and real-time guests "+
					"were seen not to boot."),
			Fix:     "    virsh emulatorpin DOMAIN CPUS --live --config",
			Sources: []string{"EPYC lab (virsh emulatorpin)", "seapath/ansible#438", "kubevirt/kubevirt#10593"},
		},
		{
			ID: "RL304", Name: IDIOThreadAffinity, Title: "I/O threads are on their CPUs", Severity: diagnose.Warning,
			Summary: "Every I/O thread may run on the plan's CPUs for them only.",
			Reads:   []string{"/proc/PID/task/TID/status (Cpus_allowed_list)"},
			Means: text("I/O threads serve the node's disk. Where they are not pinned they inherit the cpuset of the "+
				"domain, which has the CPUs of the virtual CPUs in it:",
				"a burst of writes is then a pause of the guest."),
			Fix:     "    virsh iothreadpin DOMAIN IOTHREAD CPUS --live --config",
			Sources: []string{"https://libvirt.org/formatdomain.html (iothreadpin)", "seapath/ansible#438"},
		},
		{
			ID: "RL305", Name: IDPins, Title: "the live definition has the plan's pins", Severity: diagnose.Warning,
			Summary: "vcpupin, emulatorpin, iothreadpin and numatune of the domain as it runs are those of the plan.",
			Reads:   []string{"virsh dumpxml DOMAIN"},
			Means: text("libvirt sets affinity again by its definition when virtual CPUs are plugged in or the "+
				"daemon starts anew, so a definition that differs is drift to",
				"come, even while the threads are where they should be. Somebody has changed it by hand, or the "+
					"domain is of an older plan."),
			Fix: "Define the domain of the plan again (`virsh define DIR/domains/NODE.xml`), shut the node down " +
				"and start it.",
			Sources: []string{"EPYC lab (virsh vcpupin, numatune)",
				"https://libvirt.org/formatdomain.html (CPU tuning, NUMA node tuning)"},
		},
		{
			ID: "RL306", Name: IDMemoryNodes, Title: "memory is on the NUMA nodes of the plan",
			Severity: diagnose.Error,
			Summary: "Page by page, no NUMA node of the host holds more of the guest than the plan says; of " +
				"hugepages, which are all there from the start, each holds just that.",
			Reads: []string{"/proc/PID/numa_maps", "/proc/PID/maps"},
			Means: text("numatune says what was asked for; this is where the pages are. They are elsewhere when the "+
				"mode is preferred or interleave and a node was full, when",
				"NUMA balancing moved them, or when the domain started before its pages were set aside. RDMA and GPU "+
					"copies then cross to the other node: 13% in typical",
				"latency and 53% in the 99.9th percentile on an EPYC 7551P.\n\nMemory of ordinary pages that the "+
					"guest never touched is nowhere yet, and is not held against it."),
			Fix: "Shut the node down and start it, once the NUMA nodes have enough free pages (RL211). `virsh " +
				"numatune DOMAIN` has to say strict.",
			Sources: []string{"EPYC lab (virsh numatune, wrong NUMA placement)", "autotest/tp-libvirt#2695", "numa(7)"},
		},
		{
			ID: "RL307", Name: IDMemoryPages, Title: "memory is backed by pages of the plan's size",
			Severity: diagnose.Error,
			Summary:  "All of the guest's memory is in hugepages of the size of the plan.",
			Reads:    []string{"/proc/PID/numa_maps (kernelpagesize_kB)"},
			Means: text("Without hugepages every address that the guest uses costs two walks through page tables of "+
				"four levels. A domain without memoryBacking, or with another",
				"page size, starts without a word."),
			Fix: "Define the domain of the plan again (its memoryBacking has the page size), shut the node down " +
				"and start it.",
			Sources: []string{"EPYC lab (hugepage-backed VM memory)", "autotest/tp-libvirt#3159",
				"proc_pid_numa_maps(5)"},
		},
		{
			ID: "RL308", Name: IDVFIOHeld, Title: "QEMU holds the devices of the plan", Severity: diagnose.Error,
			Summary: "QEMU has the VFIO group of every device open, or as many devices of /dev/vfio/devices as the " +
				"plan gives it, and no group of others.",
			Reads: []string{"/proc/PID/fd", "/sys/bus/pci/devices/*/iommu_group"},
			Means: text("A device in the definition and not open was unplugged, or the domain runs with an older "+
				"definition. One that is open and not in the plan is",
				"somebody else's: a hand-made hostdev, or an address that moved when a card was added."),
			Fix: "Define the domain of the plan again, shut the node down and start it; `virsh dumpxml DOMAIN` " +
				"shows the hostdevs that are in force.",
			Sources: []string{"EPYC lab (--host-device)", "Documentation/driver-api/vfio.rst"},
		},
	}
}
