package checks

// Names of checks are stable, because scripts depend on them.

// IDHostCPUs and the others are checks of a host.
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
	IDPeerDMA       = "peer-dma"
	IDVFs           = "sriov-vfs"
	IDPF            = "pf-link"
	IDJournal       = "prepare-journal"
)

// IDDomain and the others are checks of virtual machines.
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
	IDSwitchLinks = "switch-links" // as they were set

	IDLink     = "link"            // up, with a carrier
	IDMTU      = "link-mtu"        // its MTU is the lab's
	IDAddress  = "address"         // the lab's MAC; IP addresses show in IDGID
	IDPort     = "rdma-port"       // active on Ethernet
	IDIBMTU    = "rdma-active-mtu" // the largest that the lab's MTU carries
	IDGID      = "rdma-gid"        // RoCE v2, for the IPv4 address
	IDReach    = "reach"           // at the full MTU, unfragmented
	IDTraffic  = "rdma-traffic"    // messages get through, and the device's counters show them
	IDIdentity = "identity"        // no two nodes share a name, an address or a random state

	IDAdapter         = "adapter"
	IDAdapterBus      = "adapter-bus"      // NICs answer on PCIe
	IDAdapterFirmware = "adapter-firmware" // firmware runs
	IDAdapterCommands = "adapter-commands" // firmware answers commands
	IDAdapterCable    = "adapter-cable"    // cables are plugged in
	IDAdapterLink     = "adapter-link"     // links are up
	IDAdapterFlaps    = "adapter-flaps"    // links stay up
	IDAdapterFiles    = "adapter-files"    // sent from the page cache, unchanged

	IDGPU       = "gpu"
	IDGPUBus    = "gpu-bus"    // GPUs answer on PCIe
	IDGPUDriver = "gpu-driver" // virtio_gpu or vfio-pci drives them
	IDGPUMemory = "gpu-memory" // size and place
	IDGPUPath   = "gpu-path"   // to the NIC, as in the lab
	IDGPUNIC    = "gpu-nic"    // no setting of programs leaves out the nearest NIC
	IDGPUBytes  = "gpu-bytes"  // RDMA of another node reaches the memory

	IDGuestCPUs     = "guest-cpus"
	IDGuestSiblings = "guest-siblings"
	IDGuestNUMA     = "guest-numa"
	IDGuestDevices  = "guest-devices"
	IDGuestNode     = "guest-device-node"
	IDGuestLink     = "guest-link"
	IDGPUDirect     = "gpudirect"

	IDSetup      = "setup"         // a step's check succeeds
	IDSlurmNodes = "slurm-nodes"   // Slurm can use its nodes
	IDSlurmJob   = "slurm-job"     // runs on all nodes
	IDMPI        = "mpi-transport" // a library that works with soft RoCE
)
