package inspect

type decision struct {
	tests []string
	what  string
	count int
	right string // "rackless", "hwloc", or "both"
	why   string
}

// Reasons that several decisions share.
const (
	whyCpuset = "the dump was made for a process that a cpuset (proc/self/cpuset, the group's cpus and mems below " +
		"dev/cpuset or sys/fs/cgroup) " +
		"leaves a part of the machine. hwloc shows that part, a Host is the machine. With --disallowed hwloc shows " +
		"what rackless does: " +
		"16amd64-8n2c-cpusets-disallowed has no difference"
	whyCPUless = "the node's cpumap is empty: no CPU is on it. hwloc shows it at the CPUs that the firmware's " +
		"bandwidth table or the distances put " +
		"nearest. Which node is near is in Host.NUMANodes[].Distances; a Host does not say that CPUs are where " +
		"they are not"
	whyLocality = "the .test file sets HWLOC_PCI_LOCALITY, which tells hwloc where devices are instead of what the " +
		"machine says: for these, " +
		"numa_node is -1 or missing and the local CPUs are those of the machine or of one node"
	whyOptions = "hwloc was run with options that drop objects from what it shows (--merge, --filter all:structure; " +
		"the older test by its name)"
)

var decided = []decision{
	{
		tests: []string{
			"linux/16amd64-8n2c-cpusets", "linux/16amd64-8n2c-cpusets-xml", "linux/16em64t-4s2ca2c-cpusetreorder",
			"linux/16em64t-4s2ca2c-cpusetreorder-merge", "linux/4fake-4gr1nu1pu",
		},
		what: `^(online CPUs|NUMA nodes|CPUs of node \d|package of CPUs|core of CPUs|L3 of CPUs)`, count: 86,
		right: "both", why: whyCpuset,
	},
	{
		tests: []string{"linux/fakeheteromemtiers", "linux-old/64intel64-fakeKNL-SNC4-hybrid",
			"linux/nvidiagpunumanodes-kept"},
		what: `^CPUs of node \d+: rackless , hwloc `, count: 14, right: "both", why: whyCPUless,
	},
	{
		tests: []string{"linux/nvidiagpunumanodes"},
		what:  `^NUMA nodes: rackless \[0 8 250 251 252 253 254 255\], hwloc \[0 8\]$`, count: 1, right: "rackless",
		why: "nodes 250 to 255 are the memory of GPUs (proc/driver/nvidia/gpus/*/numa_status). hwloc hides them on " +
			"POWER unless " +
			"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES is set, as in nvidiagpunumanodes-kept, which agrees; a Host has them, " +
			"with their kind",
	},
	{
		tests: []string{"linux/fakepcilocalities", "linux/40intel64-2g2n4c+pcilocality"},
		what:  `^CPUs near PCI `, count: 47, right: "rackless", why: whyLocality,
	},
	{
		tests: []string{"linux/16em64t-4s2c2t-merge", "linux-old/4em64t-2c2t-ignore-reorder"},
		what:  `^(package|core|L3) of CPUs [^:]*: rackless only$`, count: 8, right: "both", why: whyOptions,
	},
	{
		tests: []string{"linux-old/16em64t-4s2cu2c"},
		what:  `^NUMA nodes: rackless \[0\], hwloc \[\]$`, count: 1, right: "rackless",
		why: "sys/devices/system/node/node0 is there. hwloc before 2.0 showed no node on machines with one; " +
			"16em64t-4s2c2t, the same machine read by " +
			"a later version, has it",
	},
	{
		tests: []string{"linux-old/16em64t-2m4c2t"},
		what:  `^(NUMA nodes|package of CPUs|core of CPUs)`, count: 11, right: "both",
		why: "Kerrighed showed two machines as one: /proc/cpuinfo has package 1 twice, with 16 CPUs where it says 8. " +
			"hwloc knew of Kerrighed's " +
			"/proc/nodes, later versions do not either. Rackless says in Host.Unread that the packages cannot be " +
			"told apart",
	},
	{
		tests: []string{"x86linux/64amd64-4p2n4ca2co"},
		what:  `^number of core of CPUs \d+: rackless [0-7], hwloc (8|9|1[0-5])$`, count: 32, right: "both",
		why: "the test has hwloc number cores by CPUID first. The kernel's core_id starts from 0 in each of a " +
			"package's two dies, and that is what " +
			"rackless reads: a number is unique in a die at best",
	},
	{
		tests: []string{"linux/16ia64-8n2s"},
		what:  `^number of package of CPUs \d+: rackless [1-8], hwloc \d+$`, count: 8, right: "rackless",
		why: "two packages on a bus have one physical_package_id, and core_siblings of their own. They are two " +
			"packages for both; an ID in a Host is " +
			"unique, so the second gets one that is free",
	},
	{
		tests: []string{"linux/32em64t-2n8c+dax+nvme+mic+dimms"},
		what:  `^PCI 0000:00:11\.0: rackless only$`, count: 1, right: "rackless",
		why: "the bridge is in sys/bus/pci/devices, with bus 3 below it (pci_bus/0000:03). hwloc drops bridges whose " +
			"configuration space has no bus " +
			"numbers, and this dump's has zeros there",
	},
}
