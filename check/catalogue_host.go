package check

import "github.com/rackless/rackless/diagnose"

// Identifiers of the checks of a host against its plan.
const (
	IDHostCPUs      = "host-cpus"
	IDIsolated      = "isolated"
	IDSiblings      = "isolated-siblings"
	IDNoHzFull      = "nohz-full"
	IDKernelArgs    = "kernel-args"
	IDThreads       = "foreign-threads"
	IDInterrupts    = "interrupts"
	IDWorkqueues    = "workqueues"
	IDGovernor      = "governor"
	IDHugepages     = "hugepages"
	IDHugepagesFree = "hugepages-free"
	IDHugetlbfs     = "hugetlbfs"
	IDIOMMU         = "iommu"
	IDDevice        = "device"
	IDGroup         = "iommu-group"
	IDVFIO          = "vfio-driver"
	IDPCIeLink      = "pcie-link"
	IDVFs           = "sriov-vfs"
	IDPF            = "pf-link"
)

// hostChecks explains the checks of Host, by ID.
func hostChecks() []diagnose.Check {
	const parameters = "Documentation/admin-guide/kernel-parameters.txt"
	return []diagnose.Check{
		{
			ID: "RL201", Name: IDHostCPUs, Title: "CPUs of the plan are online", Severity: diagnose.Error,
			Summary: "Every CPU that the plan gives to a virtual CPU, to QEMU's own threads or to I/O threads " +
				"is online.",
			Reads: []string{"/sys/devices/system/cpu/online"},
			Means: text("A CPU that is offline cannot be pinned to: libvirt refuses to start the domain (Invalid "+
				"argument). CPUs go missing when SMT is switched",
				"off, when the firmware disables cores, or when a list was made on another machine."),
			Fix: text("Bring it online: `echo 1 > /sys/devices/system/cpu/cpuN/online`, or `echo on > "+
				"/sys/devices/system/cpu/smt/control`. If the machine has",
				"changed, make a new plan."),
			Sources: []string{"spheenik/vfio-isolate#6", "spheenik/vfio-isolate#3", "autotest/tp-libvirt#4137"},
		},
		{
			ID: "RL202", Name: IDIsolated, Title: "CPUs of lab nodes are isolated", Severity: diagnose.Error,
			Summary: "The host schedules nothing on CPUs of virtual CPUs: by isolcpus, by a partition of cgroups, or " +
				"because every other group is kept off them.",
			Reads: []string{"/sys/devices/system/cpu/isolated", "/sys/fs/cgroup/*/cpuset.cpus.partition",
				"/sys/fs/cgroup/*/cpuset.cpus.effective",
				"/proc/PID/task/TID/status (whether any thread may run there)"},
			Means: text("Without isolation a busy host takes CPUs from the nodes: 64 busy processes cost two thirds "+
				"of the TCP throughput of a lab on an EPYC 7551P",
				"(24.2 to 7.9 Gb/s), and with isolation nothing. The finding says which kind is in force. isolcpus "+
					"needs a reboot and can be joined by nohz_full;",
				"control groups need none, and leave the timer tick on.\n\n"+
					"isolcpus in the command line proves nothing: a list that the kernel did not understand, or a "+
					"boot entry that was not written, is seen here."),
			Fix: text("With a reboot: the script of your boot loader in `kernel/` of what `rackless plan LAB.yaml "+
				"--out DIR` writes. Without: `libexec/cpuset.sh start`",
				"there. Then compare:\n\n    cat /sys/devices/system/cpu/isolated"),
			Sources: []string{"EPYC lab (isolation, contention)", "redhat-performance/tuned#98",
				parameters + " (isolcpus)", "Documentation/admin-guide/cgroup-v2.rst (cpuset)"},
		},
		{
			ID: "RL203", Name: IDSiblings, Title: "both threads of each core are isolated", Severity: diagnose.Warning,
			Summary: "For every CPU of a lab node the other threads of its core are isolated too, or are CPUs of the " +
				"same plan.",
			Reads: []string{"/sys/devices/system/cpu/isolated",
				"/sys/devices/system/cpu/cpu*/topology/thread_siblings_list", "/sys/fs/cgroup/*/cpuset.cpus.effective"},
			Means: text("Threads of a core share its execution units and its first caches. A sibling that the host "+
				"may use passes all of the host's noise on,",
				"as if the core were not isolated. On a machine of 32 cores and 64 CPUs the sibling of CPU 2 is "+
					"mostly 34, not 3."),
			Fix:     "Isolate whole cores: the list in the finding is complete.",
			Sources: []string{"EPYC lab (isolation of both siblings)", "kubevirt/kubevirt#11749"},
		},
		{
			ID: "RL204", Name: IDNoHzFull, Title: "no timer tick on CPUs of lab nodes", Severity: diagnose.Warning,
			Summary: "nohz_full of the plan is in force on all of its CPUs but the boot CPU. Where control groups " +
				"isolate them, it is not asked for.",
			Reads: []string{"/sys/devices/system/cpu/nohz_full", "/proc/cmdline"},
			Means: text("The tick stops a virtual CPU 100 to 1000 times a second for some microseconds, which shows "+
				"in tail latency. nohz_full takes it off CPUs",
				"with one runnable thread. It can only be set at boot, and the kernel has to be built with "+
					"CONFIG_NO_HZ_FULL. The kernel keeps time on the boot CPU,",
				"and takes that one off the list by itself."),
			Fix: text("Start the kernel with the argument of the plan. If it is there and not in force, look for "+
				"NO_HZ in `dmesg` and for CONFIG_NO_HZ_FULL in",
				"`/boot/config-$(uname -r)`."),
			Sources: []string{"EPYC lab (nohz_full)", parameters + " (nohz_full)"},
		},
		{
			ID: "RL205", Name: IDKernelArgs, Title: "kernel arguments of the plan are in force",
			Severity: diagnose.Warning,
			Summary: "The other arguments of the plan (iommu, intel_iommu, rcu_nocbs) are on the command line, or " +
				"what they ask for is the case.",
			Reads: []string{"/proc/cmdline", "/sys/class/iommu", "/sys/kernel/iommu_groups/*/type"},
			Means: text("iommu=pt spares the host's own devices the translation of addresses; rcu_nocbs moves "+
				"callbacks of the kernel off the CPUs of the nodes.",
				"isolcpus, nohz_full and hugepages have checks of their own, which look at what came of them. For "+
					"rcu_nocbs the kernel shows nothing but its command",
				"line."),
			Fix: "Run the script of your boot loader in `kernel/` of what `rackless plan LAB.yaml --out DIR` " +
				"writes, and reboot.",
			Sources: []string{"EPYC lab (kernel parameters)", parameters},
		},
		{
			ID: "RL206", Name: IDThreads, Title: "no foreign threads on CPUs of lab nodes", Severity: diagnose.Warning,
			Summary: "No thread but the lab's own runs on a CPU of a virtual CPU, or is bound to nothing else.",
			Reads: []string{"/proc/PID/task/TID/stat (processor, flags)",
				"/proc/PID/task/TID/status (Cpus_allowed_list)"},
			Means: text("Isolation keeps the scheduler from spreading threads; it does not stop anybody from asking "+
				"for these CPUs. taskset, numactl, a container with",
				"a cpuset, or another virtual machine that was pinned by hand ends up on them. A thread counts when "+
					"it may run on such a CPU and ran last on one, or",
				"when it may run nowhere else. Threads of the kernel that belong to a CPU do not count: they cannot "+
					"be moved, and work only when that CPU asks them.",
				"Nor do those of a NUMA node (kswapd, kcompactd), which work only when its memory runs out, and "+
					"those of an interrupt, which run where that is served (RL207)."),
			Fix: "`taskset -cp CPUS TID` with CPUs of the host, or stop the program; for a service AllowedCPUs= " +
				"or CPUAffinity= in its unit.",
			Sources: []string{"seapath/ansible#908", "ayufan/pve-helpers#4", "EPYC lab (contention)"},
		},
		{
			ID: "RL207", Name: IDInterrupts, Title: "no foreign interrupts on CPUs of lab nodes",
			Severity: diagnose.Warning,
			Summary: "No interrupt that has been served on a CPU of a virtual CPU is still bound to one. Those of " +
				"devices given to virtual machines (vfio) do not count.",
			Reads: []string{"/proc/interrupts", "/proc/irq/*/effective_affinity_list"},
			Means: text("isolcpus keeps the scheduler away, not interrupts. Each one stops the virtual CPU for some "+
				"microseconds. Drivers spread the queues of NICs and",
				"NVMe drives over all CPUs; irqbalance may bring them back. Some are managed by the kernel, and "+
					"their affinity cannot be written: isolcpus=managed_irq",
				"is what keeps those away.\n\nWithout a look at what runs (a snapshot) only interrupts count that "+
					"can be served nowhere else."),
			Fix: text("`libexec/irq.sh start` of what `rackless plan LAB.yaml --out DIR` writes, with irqbalance "+
				"stopped or banned from these CPUs; or write the list of",
				"the other CPUs to `/proc/irq/N/smp_affinity_list`. For queues of NICs: `ethtool -L NETDEV "+
					"combined N`."),
			Sources: []string{"Irqbalance/irqbalance#122", "Irqbalance/irqbalance#275",
				"GoogleCloudPlatform/compute-image-packages#882", "proc_interrupts(5)"},
		},
		{
			ID: "RL208", Name: IDWorkqueues, Title: "work queues of the kernel are off CPUs of lab nodes",
			Severity: diagnose.Warning,
			Summary:  "Unbound work of the kernel runs on none of the CPUs of virtual CPUs.",
			Reads:    []string{"/sys/devices/virtual/workqueue/cpumask"},
			Means: text("Writing back files, encryption of disks and much else is done by kworker threads. Those "+
				"that are not bound to a CPU run where this mask lets them.",
				"The kernel takes isolated CPUs off it at boot; control groups do not, and tools can set it back."),
			Fix:     "Write the mask of the housekeeping CPUs to the file; `libexec/cpuset.sh start` does it too.",
			Sources: []string{"Documentation/core-api/workqueue.rst"},
		},
		{
			ID: "RL209", Name: IDGovernor, Title: "CPU frequency governor is performance", Severity: diagnose.Warning,
			Summary: "The cores of lab nodes have the governor performance, or the kernel scales no frequencies.",
			Reads:   []string{"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
			Means: text("Other governors raise the clock only after load was seen, and a virtual CPU that waits for "+
				"a message is no load. Latency suffers most, by up to",
				"a factor of 2, and results vary from run to run."),
			Fix: "`cpupower frequency-set -g performance`, or `libexec/governor.sh start` of what `rackless plan " +
				"LAB.yaml --out DIR` writes.",
			Sources: []string{"EPYC lab (cpupower)", "vSphere study (power policy)", "open-mpi/ompi#3003",
				"linux-rdma/perftest#82"},
		},
		{
			ID: "RL210", Name: IDHugepages, Title: "hugepages on the NUMA nodes of the plan", Severity: diagnose.Error,
			Summary: "Every NUMA node has at least as many pages of the size as the lab and the tenants that were " +
				"there before need.",
			Reads: []string{"/sys/devices/system/node/node*/hugepages/hugepages-*kB/nr_hugepages"},
			Means: text("Pages are counted by node: with a strict memory policy a domain does not start when its "+
				"node is short, however many there are elsewhere",
				"(`unable to map backing store for guest RAM: Cannot allocate memory`). A plain hugepages=64 on the "+
					"command line is spread evenly over the nodes,",
				"which need not be where they are wanted; pages of 1 GiB asked for after boot come up short when "+
					"memory is in pieces."),
			Fix: text("At boot: `hugepagesz=1G hugepages=NODE:COUNT,...` (Linux 5.16 and later), as in the plan. At "+
				"run time, as far as memory is in one piece:",
				"`libexec/hugepages.sh start` of what `rackless plan LAB.yaml --out DIR` writes."),
			Sources: []string{"EPYC lab (HugePages_Total)", "kubevirt/kubevirt#14854", "autotest/tp-libvirt#2695",
				"projectacrn/acrn-hypervisor#400"},
		},
		{
			ID: "RL211", Name: IDHugepagesFree, Title: "free hugepages for lab nodes that do not run",
			Severity: diagnose.Error,
			Summary:  "Every NUMA node has as many free pages as the lab nodes that do not run yet will take from it.",
			Reads:    []string{"/sys/devices/system/node/node*/hugepages/hugepages-*kB/free_hugepages", "virsh list"},
			Means: text("Pages that are there may be taken: by another virtual machine, a database, or a QEMU that "+
				"was killed and left its file in /dev/hugepages.",
				"Pages of lab nodes that run are theirs and are not asked for again."),
			Fix: text("Find who has them, and stop it or set more pages aside:\n\n    grep -l huge " +
				"/proc/*/numa_maps\n    ls -l /dev/hugepages /dev/hugepages/libvirt/qemu\n\n" +
				"Files there that no process has open can be removed."),
			Sources: []string{"EPYC lab (HugePages_Free)", "kubernetes/kubernetes#132084"},
		},
		{
			ID: "RL212", Name: IDHugetlbfs, Title: "hugetlbfs is mounted for the page size", Severity: diagnose.Error,
			Summary: "A hugetlbfs of the plan's page size is mounted.",
			Reads:   []string{"/proc/mounts"},
			Means: text("libvirt backs guests by files in a hugetlbfs and looks for a mount of the size when its "+
				"daemon starts. /dev/hugepages, which systemd mounts, is of the",
				"default size: 2 MiB unless default_hugepagesz says otherwise."),
			Fix: "    mkdir -p /dev/hugepages1G\n    mount -t hugetlbfs -o pagesize=1G hugetlbfs " +
				"/dev/hugepages1G\n    systemctl restart virtqemud libvirtd",
			Sources: []string{"EPYC lab (mount | grep hugepages)",
				"https://libvirt.org/formatdomain.html (memory backing)", "autotest/tp-libvirt#3159"},
		},
		{
			ID: "RL213", Name: IDIOMMU, Title: "IOMMU is on", Severity: diagnose.Error,
			Summary: "The kernel uses an IOMMU, where the plan gives devices to lab nodes.",
			Reads:   []string{"/sys/class/iommu", "/sys/kernel/iommu_groups"},
			Means: text("Without an IOMMU no device can be given away: there are no groups for VFIO to open. "+
				"intel_iommu=on in the command line does not help where VT-d is",
				"off in the firmware, and AMD's needs no argument at all."),
			Fix: "Turn on VT-d, AMD-Vi or SMMU in the firmware, on Intel add `intel_iommu=on`, and reboot. RL020 " +
				"has more.",
			Sources: []string{"EPYC lab (BIOS)", "foxlet/macOS-Simple-KVM#143"},
		},
		{
			ID: "RL214", Name: IDDevice, Title: "device of the plan is there", Severity: diagnose.Error,
			Summary: "Every function that the plan gives away exists, answers, and is on the NUMA node that the plan " +
				"counted with.",
			Reads: []string{"/sys/bus/pci/devices/*", "/sys/bus/pci/devices/*/numa_node"},
			Means: text("PCI addresses change when a card is added or moved, or a slot is split in the firmware; the "+
				"plan is then for another machine, and pins the node far",
				"from its card. Wrong NUMA placement cost 29% in the 99th percentile of RDMA latency on an EPYC "+
					"7551P, and 53% in the 99.9th. A function whose",
				"registers all read as ones hangs, or has fallen off the bus."),
			Fix: "Make a new plan from the machine as it is. A card that hangs needs a reset, mostly a cold " +
				"start of the host.",
			Sources: []string{"EPYC lab (device locality, wrong NUMA placement)", "tensorflow/tensorflow#58428",
				"amd/MxGPU-Virtualization#25"},
		},
		{
			ID: "RL215", Name: IDGroup, Title: "IOMMU group can be given away", Severity: diagnose.Error,
			Summary: "Every other function of the device's IOMMU group, bridges apart, goes to the same lab node, or " +
				"is on vfio-pci, pci-stub or no driver.",
			Reads: []string{"/sys/bus/pci/devices/*/iommu_group", "/sys/kernel/iommu_groups/*/devices",
				"/sys/bus/pci/devices/*/driver"},
			Means: text("A group is what the IOMMU cannot tell apart, and goes to one owner whole. With one member "+
				"on a driver of the host the domain does not start:",
				"`group N is not viable`. Most often it is the audio, USB or UCSI function of the same GPU."),
			Fix: "Bind the other functions to vfio-pci too (`libexec/vfio.sh start`), or put the card into a " +
				"slot with a group of its own. RL021 and RL022 have more.",
			Sources: []string{"kubernetes-sigs/dra-driver-nvidia-gpu#1191", "kubevirt/kubevirt#6718", "lxc/incus#3422"},
		},
		{
			ID: "RL216", Name: IDVFIO, Title: "device is bound to vfio-pci", Severity: diagnose.Error,
			Summary: "Every function of the plan is on vfio-pci, or on another driver of VFIO.",
			Reads:   []string{"/sys/bus/pci/devices/*/driver", "/sys/bus/pci/devices/*/driver_override"},
			Means: text("The host's driver holds the card otherwise. libvirt can bind it when the domain starts "+
				"(managed='yes'), but taking a GPU from nvidia or a NIC from",
				"mlx5_core under load hangs or fails, and a binding by hand is gone after the next boot."),
			Fix: text("`libexec/vfio.sh start` of what `rackless plan LAB.yaml --out DIR` writes, or by hand:\n\n"+
				"    echo vfio-pci > /sys/bus/pci/devices/ADDRESS/driver_override\n    echo ADDRESS > "+
				"/sys/bus/pci/devices/ADDRESS/driver/unbind\n    echo ADDRESS > /sys/bus/pci/drivers_probe\n\n",
				"Its unit and udev rule keep it so."),
			Sources: []string{"EPYC lab (VFIO binding)", "ydb-platform/nbs#5296", "OpenNebula/one-deploy#251"},
		},
		{
			ID: "RL217", Name: IDPCIeLink, Title: "PCIe link of the device is at its best", Severity: diagnose.Warning,
			Summary: "The link has the speed and the lanes that the device and the port above it can both do. A GPU " +
				"that saves power counts as well.",
			Reads: []string{"/sys/bus/pci/devices/*/current_link_speed, current_link_width, max_link_speed, " +
				"max_link_width (of the device and of the port above it)"},
			Means: text("A link that trained badly looks like any other, and halves what the device can do: copies "+
				"to a GPU at 2.5 GT/s run at 5 GB/s instead of 22 to 26,",
				"and a host at Gen 2 was found only by its bandwidth. What is judged is what RL002 and RL003 judge: "+
					"a slot that can do less than its card (RL001)",
				"is as good as it gets."),
			Fix: "See RL002 for lanes and RL003 for speed. After a reset by VFIO look once more, while the " +
				"node runs.",
			Sources: []string{"pinning study (a host at Gen 2 speed)", "6erun: its README and utils/qemu_hook.sh",
				"tenstorrent/tt-smi#67"},
		},
		{
			ID: "RL218", Name: IDVFs, Title: "virtual functions of the plan exist", Severity: diagnose.Error,
			Summary: "Every physical function has at least the number of virtual functions that the plan wants.",
			Reads:   []string{"/sys/bus/pci/devices/*/sriov_numvfs, sriov_totalvfs, virtfn*"},
			Means: text("Virtual functions are gone after each boot. Their number only changes by way of 0, which "+
				"takes those in use away; firmware that offers too few",
				"(NUM_OF_VFS) or a BIOS without SR-IOV makes the write fail."),
			Fix: "`libexec/sriov.sh start` of what `rackless plan LAB.yaml --out DIR` writes; for more than " +
				"sriov_totalvfs first `firmware/nic.sh`. RL080 and following have more.",
			Sources: []string{"vSphere study (max_vfs, NUM_OF_VFS)", "openshift/openshift-docs#32619",
				"k8snetworkplumbingwg/sriov-network-device-plugin#601"},
		},
		{
			ID: "RL219", Name: IDPF, Title: "link of the physical function is up", Severity: diagnose.Error,
			Summary: "The port of a NIC whose virtual functions go to lab nodes is up and has a carrier.",
			Reads:   []string{"/sys/class/net/*/operstate, carrier, speed"},
			Means: text("Virtual functions share the port: without a link there every one of them stays down, and "+
				"RDMA ports say DOWN. A port at a lower speed than its cable",
				"and switch can do is seen here too, by its rate."),
			Fix: "`ip link set NETDEV up`; without a carrier look at the cable, the transceiver and the other " +
				"end (`ethtool NETDEV`).",
			Sources: []string{"EPYC lab (ethtool: Speed, Link detected)",
				"k8snetworkplumbingwg/sriov-network-device-plugin#269"},
		},
	}
}
