package message

import "github.com/rackless/rackless/internal/lazyregexp"

// The first of programForms that matches counts.
var programForms = []form{
	{kind: "memlock", text: lazyregexp.New(`(?i:set max locked memory|max locked memory.*(?:current|limit)|` +
		`locked memory limit|RLIMIT_MEMLOCK|memlock.*(?:too (?:low|small)|limit))`)},
	{kind: "ucx-no-transport", text: lazyregexp.New(`UCX .*transports? '.*' (?:is|are) not available`)},
	{kind: "ucx-no-device", text: lazyregexp.New(`UCX .*(?:network )?devices? '.*' (?:is|are) not available`)},
	{kind: "ucx-unreachable", text: lazyregexp.New(`UCX .*no (?:\S+ )?(?:transport|transports) to |` +
		`UCX .*(?i:destination is unreachable)`)},

	{kind: "nccl-gdr-off", text: lazyregexp.New(`GPU Direct RDMA Disabled`)},
	{kind: "nccl-gdr-on", text: lazyregexp.New(`GPU Direct RDMA Enabled`)},
	{kind: "nccl-ofi-tcp", text: lazyregexp.New(`NET/OFI .*[Ss]elected [Pp]rovider is (?:tcp|sockets)`)},
	{kind: "nccl-socket", text: lazyregexp.New(`Using network Socket|NET/Socket : Using|via NET/Socket`)},
	{kind: "nccl-no-ib", text: lazyregexp.New(`NET/IB : No device found`)},
	{kind: "nccl-shm", text: lazyregexp.New(`Channel \S+ ?: .* via SHM\b`)},
	{kind: "rccl-iommu", text: lazyregexp.New(`[Mm]issing "?iommu=pt`)},

	{kind: "rtr-timeout", text: lazyregexp.New(`(?i:failed to modify QP\b.* to RTR).*(?i:timed out|\[110\]|\b110\b)`)},
	{kind: "rtr-failed", text: lazyregexp.New(`(?i:failed to modify QP\b.* to RTR|modify QP to RTR failed)|` +
		`Unable to Connect the HCA`)},
	{kind: "qp-create", text: lazyregexp.New(`(?:Unable|Failed|Couldn't|Cannot) to create QP\b|Couldn't create QP\b`)},
	{kind: "mr-failed", text: lazyregexp.New(`Couldn't allocate MR\b|failed to create mr\b|` +
		`Unable to register (?:memory|MR\b|handle for GPU memory)|gdr_pin_buffer failed|` +
		`(?i:register\w* ?memory ?region failed)`)},
	{kind: "no-connect", text: lazyregexp.New(`Couldn't connect to \S+:\d+`)},
	{kind: "no-rdma-device", text: lazyregexp.New(`IB device \S+ not found|No IB devices found|` +
		`Did not detect devices|Unable to find the Infiniband/RoCE device`)},

	{kind: "numa-bind", text: lazyregexp.New(`cannot bind memory to host NUMA nodes|\bmbind\b.*: ` +
		`(?:Invalid argument|Operation not permitted|Cannot allocate memory|Bad address)|unable to bind memory to`)},
	{kind: "vcpus-above", text: lazyregexp.New(`Number of (?:hotpluggable|SMP) cpus requested \(\d+\) exceeds the ` +
		`(?:recommended|maximum)`)},
	{kind: "topology-affinity", text: lazyregexp.New(`TopologyAffinityError|` +
		`Resources cannot be allocated with Topology locality`)},
	{kind: "unexpected-admission", text: lazyregexp.New(`UnexpectedAdmissionError|` +
		`Allocate failed due to .*, which is unexpected`)},
	{kind: "no-hugepages", text: lazyregexp.New(`unable to map backing store for guest RAM|` +
		`[Ii]nsufficient free host memory pages available|[Ff]ailed to (?:allocate|preallocate) hugepages`)},
	{kind: "vfio-not-viable", text: lazyregexp.New(`group \d+ is not viable`)},
	{kind: "vfio-group-busy", text: lazyregexp.New(`/dev/vfio/\d+'?: Device or resource busy|` +
		`Could not open '/dev/vfio/\d+'`)},
	{kind: "vfio-group-denied", text: lazyregexp.New(`failed to (?:setup|set up) container for group|` +
		`Failed to set (?:iommu|group container|group) for container|error getting device from group`)},
	{kind: "vfio-dma-memlock", text: lazyregexp.New(`VFIO_MAP_DMA.*(?:-12|Cannot allocate memory)|` +
		`vfio_(?:container_)?dma_map\(.*\) = -\d+`)},

	{kind: "slurm-gres-sockets", text: lazyregexp.New(`core affinity \S+ on node \S+ doesn't match socket boundaries`)},
	{kind: "slurm-gres-twice", text: lazyregexp.New(`gres\.conf duplicate records? for`)},
	{kind: "slurm-no-library", text: lazyregexp.New(`configured to autodetect \w+ functionality, but we weren't ` +
		`able to find that lib`)},
	{kind: "slurm-gres-file", text: lazyregexp.New(`[Dd]iscarding the following config-only GPU|` +
		`following autodetected GPUs are being ignored`)},
	{kind: "slurm-gres-cores", text: lazyregexp.New(`invalid GRES core specification|` +
		`gres.*(?:[Cc]ores|[Cc]ore_cnt|core count).*(?:invalid|mismatch|not match|inconsisten)`)},
	{kind: "slurm-gres-count", text: lazyregexp.New(`gres/\w+ count (?:reported lower than configured|too low)|` +
		`gres_gpu count changed|Node \S+ gres/\w+:\S* count`)},
	{kind: "slurm-low-cores", text: lazyregexp.New(`[Ll]ow (?:socket\*core|RealMemory|CPUs|TmpDisk|` +
		`socket\*core\*thread)|[Nn]ode \S+ has low|Node configuration differs from hardware`)},

	{kind: "esxi-mmio", text: lazyregexp.New(`total number of pages needed \(\d+\) exceeds limit|` +
		`PCIPassthru.*(?:exceeds limit|64bitMMIO)|use64bitMMIO|not enough MMIO`)},
	{kind: "esxi-hotplug", text: lazyregexp.New(`PCIEHP: .*(?:Adapter removed|removal is still pending)`)},
	{kind: "esxi-power-on", text: lazyregexp.New(`Module '(?:DevicePowerOn|\w+)' power on failed`)},
}
