package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A view is a host with data that several rules use.
type view struct {
	*topology.Host
	tree   *topology.Tree
	params []param // in the line's order

	virtual  bool // an emulator provides links, IOMMU and resets
	emulated bool // by rackless: IOMMU groups are for learning
	serves   bool // see servesLabs
	several  bool // distance matters

	gpus   []*topology.GPU // cards that compute, without virtual functions
	fabric []*topology.NIC // (possible) RDMA, without virtual functions
}

// newView must not grow with pairs, because a machine may have thousands of virtual functions.
func newView(h *topology.Host) *view {
	v := &view{
		Host:     h,
		tree:     topology.NewTree(h),
		params:   parameters(h),
		emulated: h.System.Vendor == topology.VendorEmulated,
		virtual:  h.IsVirtual(),
	}
	withCPUs := lists.Count(h.NUMANodes, func(n topology.NUMANode) bool { return !n.CPUs.IsEmpty() })
	// A matrix has nodes without CPU lists.
	v.several = withCPUs > 1 || withCPUs == 0 && len(h.NUMANodes) > 1
	for i := range h.GPUs {
		if g := &h.GPUs[i]; v.computes(g) {
			v.gpus = append(v.gpus, g)
		}
	}
	for i := range h.NICs {
		if n := &h.NICs[i]; v.isFabric(n) {
			v.fabric = append(v.fabric, n)
		}
	}
	v.serves = v.servesLabs()
	return v
}

// Cards returns the GPUs and NICs that the rules judge, without virtual functions: GPUs that compute, and NICs that are
// or could be for RDMA.
func Cards(h *topology.Host) ([]*topology.GPU, []*topology.NIC) {
	v := newView(h)
	return v.gpus, v.fabric
}

// computes accepts a GPU without a kind, from a tool that lists only GPUs that compute.
func (v *view) computes(g *topology.GPU) bool { return g.Kind == "" || g.Kind == topology.GPUDiscrete }

// fastMbps makes a NIC count as one for RDMA.
const fastMbps = 25_000

// isFabric reports whether n is or could be for RDMA. A tenant's NIC has no RDMA device on the host.
func (v *view) isFabric(n *topology.NIC) bool {
	if n.PF != nil {
		return false
	}
	if n.Address == nil {
		// a matrix lists only NICs for RDMA; elsewhere it is software
		return len(v.PCI) == 0
	}
	if len(hardwareRDMA(n)) > 0 || n.SpeedMbps != nil && *n.SpeedMbps >= fastMbps {
		return true
	}
	d := v.tree.Device(*n.Address)
	if d == nil {
		return false
	}
	return d.Vendor != nil && *d.Vendor == topology.VendorMellanox ||
		d.Class != nil && (d.Class.Sub() == topology.SubInfiniBand || d.Class.Sub() == topology.SubFabric)
}

// hardwareRDMA leaves out software devices, which any network device can have.
func hardwareRDMA(n *topology.NIC) []string {
	return slices.DeleteFunc(slices.Clone(n.RDMA), topology.IsSoftRDMA)
}

// servesLabs is false on a desktop, which is right to use swap and save power.
func (v *view) servesLabs() bool {
	if len(v.Tenants) > 0 || len(v.fabric) > 0 || v.CPUs.Isolated != nil && !v.CPUs.Isolated.IsEmpty() {
		return true
	}
	// Reserved hugepages are for databases or virtual machines.
	return slices.ContainsFunc(v.PCI, func(d topology.PCIDevice) bool { return topology.IsVFIO(d.Driver) }) ||
		slices.ContainsFunc(v.Memory.Hugepages, func(p topology.HugepagePool) bool { return p.Total > 0 }) ||
		slices.ContainsFunc(v.params, func(p param) bool {
			return p.name == "isolcpus" || p.name == "nohz_full" || p.name == "hugepages"
		})
}

func (v *view) ifServing() finding.Severity {
	if v.serves {
		return finding.Warning
	}
	return finding.Info
}

func (v *view) isCard(a topology.PCIAddr) bool {
	return slices.ContainsFunc(v.gpus, func(g *topology.GPU) bool {
		return g.Address != nil && g.Address.SameDevice(a)
	}) ||
		slices.ContainsFunc(v.fabric, func(n *topology.NIC) bool { return n.Address != nil && *n.Address == a })
}

func (v *view) standIn(a topology.PCIAddr) bool {
	g := v.GPU(a)
	return g != nil && g.Kind == topology.GPUStandIn
}

func (v *view) holders(functions ...topology.PCIAddr) []*topology.Tenant {
	var out []*topology.Tenant
	for i := range v.Tenants {
		t := &v.Tenants[i]
		if slices.ContainsFunc(t.Devices, func(d topology.TenantDevice) bool {
			return slices.Contains(functions, d.PCI)
		}) {
			out = append(out, t)
		}
	}
	return out
}

// stopped is false for an unknown state, because such a tenant may be using its resources.
func stopped(t *topology.Tenant) bool { return t.State == "shut off" || t.State == "crashed" }

type need struct {
	what string // "disk" or "network"
	how  string // evidence
}

func (v *view) needed() map[topology.PCIAddr]need {
	out := map[topology.PCIAddr]need{}
	for _, d := range v.Storage {
		if d.PCI != nil && len(d.Mounts) > 0 {
			out[*d.PCI] = need{"disk", fmt.Sprintf("%s with %s", d.Name, strings.Join(d.Mounts, " "))}
		}
	}
	for _, r := range v.Routes {
		// A bond uses all its members.
		for _, s := range r.PCI {
			if a, err := topology.ParsePCIAddr(s); err == nil {
				out[a] = need{"network", "default route over " + r.Netdev}
			}
		}
	}
	return out
}

func (v *view) describe(a topology.PCIAddr) string {
	d := v.tree.Device(a)
	if d == nil || d.Slot+d.DeviceName == "" {
		return a.String()
	}
	var names []string
	if d.Slot != "" {
		names = append(names, "slot "+d.Slot)
	}
	if d.DeviceName != "" {
		names = append(names, d.DeviceName)
	}
	return fmt.Sprintf("%s (%s)", a, strings.Join(names, ", "))
}

// fromFiles is false for the output of another tool.
func (v *view) fromFiles() bool {
	return !slices.Contains([]string{topology.SourceHwloc, topology.SourceNCCL, topology.SourceTopo,
		topology.SourceLspci, topology.SourceTexts, topology.SourceVSphere}, v.Provenance.Kind)
}

// origin says that the paths in the evidence refer to a live machine.
func (v *view) origin() string {
	if !v.fromFiles() {
		return " (as told by " + v.Provenance.Kind + ")"
	}
	return ""
}

func at(place string, facts ...string) string { return place + ": " + strings.Join(facts, " ") }

func all(pieces ...string) string { return strings.Join(pieces, "; ") }

func nodeFile(id int, name string) string {
	return fmt.Sprintf("/sys/devices/system/node/node%d/%s", id, name)
}

func siblings(cpu int) string {
	return fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)
}

func pci(a topology.PCIAddr) string { return "/sys/bus/pci/devices/" + a.String() }

// device returns the sysfs directory, or the name in the dump.
func device(a *topology.PCIAddr, name string) string {
	if a == nil {
		return name
	}
	return pci(*a)
}

func node(n *int) string {
	if n == nil {
		return "numa_node not known"
	}
	return fmt.Sprintf("numa_node=%d", *n)
}

func join[T any](list []T) string { return words.Join(list, ",") }

// size uses the largest binary unit that divides bytes. Other large numbers are rounded down to MiB.
func size(bytes uint64) string {
	if bytes >= 10<<20 && bytes%1024 != 0 {
		bytes -= bytes % (1 << 20)
	}
	return words.Exact(bytes)
}
