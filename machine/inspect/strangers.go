package inspect

import (
	"regexp"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// strangers are texts that people have at hand but that are not read, with the texts that tell the same.
var strangers = []struct {
	is   func() *regexp.Regexp
	what string
}{
	{lazyregexp.New(`(?m)^kind: Sriov\w+`),
		"an object of the SR-IOV network operator, which is not read: give lspci -vvv, " +
			"ip link and ibdev2netdev of the node, or a snapshot of it"},
	{lazyregexp.New(`(?m)^apiVersion: kubevirt\.io/`),
		"KubeVirt's description of a virtual machine, which is not read: " +
			"give the domain that it becomes (virsh dumpxml in the pod virt-launcher)"},
	{lazyregexp.New(`(?m)^apiVersion: \S+\r?\nkind: \w+`),
		"an object of Kubernetes, which is not read: give texts of the " +
			"node, such as lscpu and lspci -vvv, or a snapshot of it"},
	{lazyregexp.New(`"policyName": ?"\w+", ?"defaultCpuSet":`),
		"the state of kubelet's CPU manager, which is not read: " +
			"give lscpu -e of the node, or a snapshot of it"},
	{lazyregexp.New(`(?m)^(?:Per-node \w+ memory usage|Token \w+ not in hash table|numa_hit +\d)`),
		"numastat, which is not " +
			"read: numactl -H has the NUMA nodes with their memory, and a snapshot the hugepages of each too"},
	{lazyregexp.New(`(?m)^[\w.@:-]+: flags=\d+<[A-Z0-9_,]*> +mtu \d|^[\w.:-]+ +Link encap:`),
		"ifconfig, which is not " +
			"read: give ip link, and ethtool -S NETDEV for the counters of errors"},
	{lazyregexp.New(`(?m)^Name +ID +VCPU +CPU +State`),
		"xl vcpu-list of Xen, which is not read: give the domain XML " +
			"of the virtual machine (virsh -c xen:/// dumpxml NAME), and lscpu -e of the host"},
	{lazyregexp.New(`(?m)MCW rank \d+ (?:is not )?bound|^\[\S+\] Rank \d+ (?:is not )?bound to`),
		"a list of bindings " +
			"of mpirun (--report-bindings), which is not read: give lscpu -e and numactl -H of the machine"},
	{lazyregexp.New(`(?m)^(?:NodeName=\S+ +)?(?:Name=\w+ +(?:\S+ +)*?File=/dev/|AutoDetect=nvml\b)`),
		"Slurm's " +
			"gres.conf, which is not read: give nvidia-smi topo -m and lscpu -e of the node, or a snapshot of it"},
	{lazyregexp.New(`(?m)^NodeName=\S+ +(?:\S+ +)*?(?:CPUs|Sockets|CoresPerSocket|Boards|Arch|RealMemory)=`),
		"a node as " +
			"Slurm describes it (slurm.conf, slurmd -C, scontrol show node), which is not read: give lscpu -e and " +
			"numactl -H of the node, or a snapshot of it"},
	{lazyregexp.New(`(?m)\b_node_config_validate\b|^(?:\[\S+\] )?slurm(?:ctld|d): `),
		"a log of Slurm, which is not read: " +
			"give lscpu -e and numactl -H of the node, or a snapshot of it"},
	{lazyregexp.New(`(?m)^\S+\| (?:vmx|vcpu-\d+|svga|mks)\|.* [IWE]\d{3}[:+]`),
		"a vmware.log, which is not read: " +
			vSphereInstead},
	{lazyregexp.New(`(?m)\bcpu\d+:\d+(?: opID=\w+)?\)(?:WARNING: |ALERT: )?\w+: \d+: `),
		"a log of the VMkernel, which is " +
			"not read: " + vSphereInstead},
	{lazyregexp.New(`(?m)^(?:virtualHW|config)\.version = "`),
		"a .vmx file, which is not read: " + vSphereInstead},
}

const vSphereInstead = "give the host with its virtual machines, as govc object.save writes it, or read it live with " +
	"rackless inspect --host vsphere://HOST"

// stranger returns "" for other texts.
func stranger(text []byte) string {
	for _, s := range strangers {
		if s.is().Match(text[:min(len(text), sniffLen)]) {
			return s.what
		}
	}
	return ""
}
