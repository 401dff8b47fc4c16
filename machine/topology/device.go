package topology

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A GPU is a display controller or processing accelerator. A device known only by another tool's name for it has Name
// but no Address.
type GPU struct {
	Address *PCIAddr `json:"address,omitempty"`
	// Functions are all functions of the device: the GPU, its audio, USB and serial controllers. They are assigned to
	// a VM together.
	Functions []PCIAddr `json:"functions,omitempty"`
	// Kind is one of the GPU constants, which separate computing from mere display, or empty if unknown.
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"`  // "GPU0" in a matrix; "card0" or "nvidia0" on a live machine
	Index    *int   `json:"index,omitempty"` // number in nvidia-smi or the dump
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"`
	NUMANode *int   `json:"numa_node,omitempty"`
	// MemoryBytes is the GPU's own memory.
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	MemoryNode  *int    `json:"memory_numa_node,omitempty"` // NUMA node of its memory, on coherent machines
	Driver      string  `json:"driver,omitempty"`
	DriverVer   string  `json:"driver_version,omitempty"`
	UUID        string  `json:"uuid,omitempty"`
	VBIOS       string  `json:"vbios,omitempty"`
	CPUAffinity *CPUSet `json:"cpu_affinity,omitempty"` // as the source states it
	NVLinks     *int    `json:"nvlinks,omitempty"`      // active links, if known
	// C2CGBps is the bandwidth of the NVLink C2C to the processor, in 10^9 bytes per second.
	C2CGBps     *float64 `json:"c2c_gb_per_s,omitempty"`
	ComputeArch string   `json:"arch,omitempty"` // "sm_90", "gfx942"
	MIG         string   `json:"mig,omitempty"`
	// for AMD's GPUs: SPX is one GPU, CPX one per die
	Partition    string  `json:"compute_partition,omitempty"`
	PersistMode  *bool   `json:"persistence_mode,omitempty"`
	BAR1Bytes    *uint64 `json:"bar1_bytes,omitempty"` // the BAR through which peers reach its memory
	DMABuf       *bool   `json:"dma_buf,omitempty"`
	ConnectedMon *bool   `json:"display_active,omitempty"`
}

// ID returns the GPU's ID in other parts: its address, or its name if it has no address.
func (g *GPU) ID() string { return deviceID(g.Address, g.Name) }

// A NIC is a network function: Ethernet or InfiniBand.
type NIC struct {
	Address *PCIAddr `json:"address,omitempty"`
	Name    string   `json:"name,omitempty"` // "NIC0" in a matrix
	Model   string   `json:"model,omitempty"`
	Netdevs []string `json:"netdevs"` // names, sorted; never nil
	// RDMA devices, sorted; never nil
	RDMA      []string     `json:"rdma"`
	SpeedMbps *int64       `json:"speed_mbps,omitempty"` // current speed; absent while the link is down
	NUMANode  *int         `json:"numa_node,omitempty"`
	Driver    string       `json:"driver,omitempty"`
	Firmware  string       `json:"firmware,omitempty"`
	SRIOV     *SRIOV       `json:"sriov,omitempty"`
	PF        *PCIAddr     `json:"pf,omitempty"`
	Ports     []Netdev     `json:"ports,omitempty"`        // by name
	Devices   []RDMADevice `json:"rdma_devices,omitempty"` // by name
	// firmware settings for the next boot (mlxconfig): SRIOV_EN, NUM_OF_VFS, ...
	Settings map[string]string `json:"firmware_settings,omitempty"`
}

// ID returns the NIC's ID in other parts: its address, or its name if it has no address.
func (n *NIC) ID() string { return deviceID(n.Address, n.Name) }

func deviceID(a *PCIAddr, name string) string {
	if a != nil {
		return a.String()
	}
	return name
}

// A Netdev is a network device of a NIC.
type Netdev struct {
	Name      string `json:"name"`
	MAC       string `json:"mac,omitempty"`
	MTU       *int   `json:"mtu,omitempty"`        // bytes
	SpeedMbps *int64 `json:"speed_mbps,omitempty"` // absent while the link is down
	State     string `json:"state,omitempty"`      // operstate: up, down, unknown, ...
	Carrier   *bool  `json:"carrier,omitempty"`
	DevPort   *int   `json:"dev_port,omitempty"`       // port of the NIC, from 0
	Master    string `json:"master,omitempty"`         // bond or bridge that it belongs to
	PhysPort  string `json:"phys_port_name,omitempty"` // p0; pf0vf3 for a representor
	Switch    string `json:"phys_switch_id,omitempty"`
	QoS       *QoS   `json:"qos,omitempty"`
	// Counters are the nonzero errors and discards of ethtool -S.
	Counters map[string]uint64 `json:"counters,omitempty"`
	// Flow are the counters of ethtool -S by priority, and those of pauses. Zeros count.
	Flow map[string]uint64 `json:"flow_counters,omitempty"`
}

// QoS is a network device's handling of Ethernet priorities.
type QoS struct {
	Trust string `json:"trust,omitempty"` // source of a packet's priority: "dscp" or "pcp"
	PFC   []int  `json:"pfc"`             // priorities with their own flow control, nil if unknown
	// Buffers are the receive buffers of priorities 0 to 7; nil if unknown.
	Buffers []int `json:"buffers,omitempty"`
	// DSCP maps values of DSCP to priorities, if trust is dscp; nil if unknown.
	DSCP map[int]int `json:"dscp,omitempty"`
}

// An RDMADevice is an RDMA device of the kernel: mlx5_0.
type RDMADevice struct {
	Name     string     `json:"name"`
	NodeType string     `json:"node_type,omitempty"` // "1: CA", ...
	Firmware string     `json:"firmware,omitempty"`
	NodeGUID string     `json:"node_guid,omitempty"`
	Board    string     `json:"board_id,omitempty"`
	Ports    []RDMAPort `json:"ports,omitempty"` // by number
}

// An RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Number    int               `json:"number"`               // from 1
	State     string            `json:"state,omitempty"`      // ACTIVE, DOWN, INIT, ARMED
	PhysState string            `json:"phys_state,omitempty"` // LinkUp, Disabled, Polling, ...
	LinkLayer string            `json:"link_layer,omitempty"` // Ethernet or InfiniBand
	RateGbps  *float64          `json:"rate_gbps,omitempty"`
	Lanes     int               `json:"lanes,omitempty"` // InfiniBand lanes: 4 of "100 Gb/sec (4X EDR)"
	LID       *int              `json:"lid,omitempty"`
	ActiveMTU *int              `json:"active_mtu,omitempty"` // RDMA MTU in bytes: 1024 or 4096
	GIDs      []GID             `json:"gids,omitempty"`       // assigned entries, by index
	Counters  map[string]uint64 `json:"counters,omitempty"`   // nonzero errors and discards
	// Flow are the counters of congestion: marks and notifications. Zeros count.
	Flow map[string]uint64 `json:"flow_counters,omitempty"`
	TOS  *int              `json:"tos,omitempty"` // type of service of RoCE, as set for the port (cma_roce_tos)
}

// A GID is an entry of a port's GID table.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type,omitempty"` // "RoCE v2", "IB/RoCE v1"
	Netdev string `json:"netdev,omitempty"`
}

// Addr returns the GID as an address: for RoCE the IP address in it. The result is invalid if the GID is.
func (g *GID) Addr() netip.Addr {
	a, _ := netip.ParseAddr(g.GID)
	return a.Unmap()
}

// IsV2 reports whether the GID is for RoCE v2, which is routable.
func (g *GID) IsV2() bool { return strings.Contains(g.Type, "v2") }

// RoCEv2Index returns the index of the RoCE v2 GID for an address. The index differs between NICs and must never be
// assumed.
func (p *RDMAPort) RoCEv2Index(addr netip.Addr) (int, bool) {
	i := slices.IndexFunc(p.GIDs, func(g GID) bool { return g.IsV2() && g.Addr() == addr.Unmap() })
	if i < 0 {
		return 0, false
	}
	return p.GIDs[i].Index, true
}

// Port returns the port with a number, or an empty port if the device lacks it.
func (d *RDMADevice) Port(number int) *RDMAPort {
	if p := lists.Ref(d.Ports, func(p *RDMAPort) bool { return p.Number == number }); p != nil {
		return p
	}
	return &RDMAPort{Number: number}
}

// IsSoftRDMA reports whether an RDMA device is soft RoCE or soft iWARP, by its name. rdma link accepts any name, but
// rackless uses rxe and siw as in the manual page of rdma link.
func IsSoftRDMA(name string) bool {
	return strings.HasPrefix(name, "rxe") || strings.HasPrefix(name, "siw")
}

// WholeCores returns all CPUs of the cores that have any of cpus.
func (h *Host) WholeCores(cpus CPUSet) CPUSet {
	touched := lists.Filter(h.Cores, func(c Core) bool { return c.CPUs.Overlaps(cpus) })
	return UnionOf(touched, func(c Core) CPUSet { return c.CPUs })
}

// Pool returns the pool of a page size, or nil.
func Pool(pools []HugepagePool, bytes uint64) *HugepagePool {
	return lists.Ref(pools, func(p *HugepagePool) bool { return p.SizeBytes == bytes })
}

// NUMANode returns the node with an ID, or nil.
func (h *Host) NUMANode(id int) *NUMANode {
	return lists.Ref(h.NUMANodes, func(n *NUMANode) bool { return n.ID == id })
}

// NodesOf returns the IDs of the NUMA nodes of cpus, in the order of NUMANodes.
func (h *Host) NodesOf(cpus CPUSet) []int {
	on := lists.Filter(h.NUMANodes, func(n NUMANode) bool { return n.CPUs.Overlaps(cpus) })
	return lists.Map(on, func(n NUMANode) int { return n.ID })
}

// Netdev returns the network device called name, or nil.
func (h *Host) Netdev(name string) *Netdev {
	for i := range h.NICs {
		if d := h.NICs[i].Port(name); d != nil {
			return d
		}
	}
	return nil
}

// Has reports whether the NIC has a network device of that name. A device that was not read itself may be known only
// as the parent of an RDMA device; then it is the NIC's name.
func (n *NIC) Has(netdev string) bool { return n.Name == netdev || n.Port(netdev) != nil }

// Port returns the NIC's network device called name, or nil.
func (n *NIC) Port(name string) *Netdev {
	return lists.Ref(n.Ports, func(d *Netdev) bool { return d.Name == name })
}

// Bond returns the bond called name, or nil.
func (h *Host) Bond(name string) *Bond {
	return lists.Ref(h.Bonds, func(b *Bond) bool { return b.Name == name })
}

// RDMADevices yields the RDMA devices, each with its NIC.
func (h *Host) RDMADevices() iter.Seq2[*NIC, *RDMADevice] {
	return func(yield func(*NIC, *RDMADevice) bool) {
		for i := range h.NICs {
			n := &h.NICs[i]
			for j := range n.Devices {
				if !yield(n, &n.Devices[j]) {
					return
				}
			}
		}
	}
}

// RDMADevice returns the RDMA device called name and its NIC, or nil.
func (h *Host) RDMADevice(name string) (*NIC, *RDMADevice) {
	for n, d := range h.RDMADevices() {
		if d.Name == name {
			return n, d
		}
	}
	return nil, nil
}

// A Bond is several network devices combined into one.
type Bond struct {
	Name       string   `json:"name"`
	Mode       string   `json:"mode,omitempty"`        // 802.3ad, active-backup, balance-xor, ...
	HashPolicy string   `json:"hash_policy,omitempty"` // layer2, layer3+4, ...
	Members    []string `json:"members"`
	Active     string   `json:"active_member,omitempty"`
	SpeedMbps  *int64   `json:"speed_mbps,omitempty"` // total of the members that are up
	MTU        *int     `json:"mtu,omitempty"`
	RDMA       []string `json:"rdma,omitempty"` // RDMA devices of the bond: mlx5_bond_0
}

// A VirtualSwitch is a hypervisor's switch between virtual machines and the host's NICs.
type VirtualSwitch struct {
	Name       string      `json:"name"`
	Kind       string      `json:"kind"` // "standard", or "distributed" over several hosts
	MTU        *int        `json:"mtu,omitempty"`
	Uplinks    []string    `json:"uplinks"`     // network devices of the host
	PortGroups []PortGroup `json:"port_groups"` // by name
}

// A PortGroup connects virtual machines to a VirtualSwitch.
type PortGroup struct {
	Name string `json:"name"`
	VLAN int    `json:"vlan,omitempty"` // 0 for none, 4095 for all in a standard switch
	// VLANs are the VLANs of a trunk, such as "100-199,300", or "private 120".
	VLANs string `json:"vlans,omitempty"`
}
