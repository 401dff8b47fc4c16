package checks

// The names of checks in the catalogue of package finding are stable, because scripts depend on them.

// Identifiers of checks of a host against its plan.
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
	IDJournal       = "prepare-journal"
)

// Identifiers of checks of virtual machines against their plan.
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

// Identifiers of checks of nodes.
const (
	IDSwitchLinks = "switch-links" // the links of the switch are as they were set

	IDLink     = "link"            // the network device is up and has a carrier
	IDMTU      = "link-mtu"        // its MTU is the lab's
	IDAddress  = "address"         // it has the lab's MAC address; the IP address shows in IDGID
	IDPort     = "rdma-port"       // the RDMA port is active on Ethernet
	IDIBMTU    = "rdma-active-mtu" // the RDMA MTU is the largest that the lab's MTU carries
	IDGID      = "rdma-gid"        // a RoCE v2 GID stands for the IPv4 address
	IDReach    = "reach"           // a peer answers at the full MTU, unfragmented
	IDTraffic  = "rdma-traffic"    // RDMA messages get through, and the device's counters show them
	IDIdentity = "identity"        // no two nodes share a name, an address or a random state

	IDAdapter         = "adapter"          // the node has its emulated adapters
	IDAdapterBus      = "adapter-bus"      // adapters answer on PCIe
	IDAdapterFirmware = "adapter-firmware" // firmware runs
	IDAdapterCommands = "adapter-commands" // firmware answers commands
	IDAdapterCable    = "adapter-cable"    // cables are plugged in
	IDAdapterLink     = "adapter-link"     // links are up
	IDAdapterFlaps    = "adapter-flaps"    // links stay up
	IDAdapterFiles    = "adapter-files"    // files that a node sends from its page cache arrive unchanged

	IDGPU       = "gpu"        // the node has its emulated GPUs
	IDGPUBus    = "gpu-bus"    // GPUs answer on PCIe
	IDGPUDriver = "gpu-driver" // virtio_gpu drives them
	IDGPUMemory = "gpu-memory" // their memory has its size and place
	IDGPUPath   = "gpu-path"   // the PCI path to the NIC is the lab's
	IDGPUBytes  = "gpu-bytes"  // RDMA of another node reaches their memory

	IDGuestCPUs     = "guest-cpus"
	IDGuestSiblings = "guest-siblings"
	IDGuestNUMA     = "guest-numa"
	IDGuestDevices  = "guest-devices"
	IDGuestNode     = "guest-device-node"
	IDGuestLink     = "guest-link"
	IDGPUDirect     = "gpudirect"

	IDSetup      = "setup"         // the check of a step of setup succeeds
	IDSlurmNodes = "slurm-nodes"   // Slurm can use its nodes
	IDSlurmJob   = "slurm-job"     // a job runs on all of them
	IDMPI        = "mpi-transport" // MPI has a library that works with soft RoCE
)
