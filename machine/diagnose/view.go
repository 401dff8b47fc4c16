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

// A view is a host with what several rules ask of it, worked out once. Rules read it and never change it.
type view struct {
	*topology.Host
	tree   *topology.Tree
	params []param // of the kernel command line, in its order

	virtual  bool // a virtual machine: its links, IOMMU and resets are an emulator's
	emulated bool // a host that rackless emulates: its IOMMU groups are those of its profile, to be learned from
	serves   bool // it hosts labs, so that what disturbs a tenant matters; see servesLabs
	several  bool // several NUMA nodes have CPUs: near and far mean something

	gpus   []*topology.GPU // cards that compute: no screens, no GPUs inside a processor, no virtual functions
	fabric []*topology.NIC // NICs that are or could be for RDMA: no virtual functions
}

// newView works out once what the rules share. What it costs grows with the number of functions, and not with their
// pairs: a machine may have thousands of virtual functions.
func newView(h *topology.Host) *view {
	v := &view{
		Host:     h,
		tree:     topology.NewTree(h),
		params:   parameters(h),
		emulated: h.System.Vendor == topology.VendorEmulated,
		virtual:  h.IsVirtual(),
	}
	withCPUs := lists.Count(h.NUMANodes, func(n topology.NUMANode) bool { return !n.CPUs.IsEmpty() })
	// A machine that is known by its matrix alone has nodes without CPU lists.
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

// Cards returns the GPUs of h that compute and its NICs that are or could be for RDMA, without virtual functions: what
// the rules judge.
func Cards(h *topology.Host) ([]*topology.GPU, []*topology.NIC) {
	v := newView(h)
	return v.gpus, v.fabric
}

// computes reports whether g is a card (or module) to compute on. One without a kind is named by a
// tool that lists only such.
func (v *view) computes(g *topology.GPU) bool { return g.Kind == "" || g.Kind == topology.GPUDiscrete }

// fastMbps is from where on a NIC is taken for one of the fabric: nobody pays for 25 Gb/s to browse.
const fastMbps = 25_000

// isFabric reports whether n is a NIC for RDMA, or could be: one that is given to a tenant shows no
// RDMA device on the host. RDMA in software makes no NIC one of the fabric.
func (v *view) isFabric(n *topology.NIC) bool {
	if n.PF != nil {
		return false
	}
	if n.Address == nil {
		// known by a matrix, which lists NICs for RDMA only; elsewhere it is a device of software
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

// hardwareRDMA returns the RDMA devices of a NIC without those that software makes of any network device.
func hardwareRDMA(n *topology.NIC) []string {
	return slices.DeleteFunc(slices.Clone(n.RDMA), topology.IsSoftRDMA)
}

// servesLabs looks for signs that the machine hosts virtual machines or RDMA work. On a desktop
// swap and a governor that saves power are right.
func (v *view) servesLabs() bool {
	if len(v.Tenants) > 0 || len(v.fabric) > 0 || v.CPUs.Isolated != nil && !v.CPUs.Isolated.IsEmpty() {
		return true
	}
	// Hugepages that somebody has set aside are for databases or for virtual machines, and both mind a swap.
	return slices.ContainsFunc(v.PCI, func(d topology.PCIDevice) bool { return topology.IsVFIO(d.Driver) }) ||
		slices.ContainsFunc(v.Memory.Hugepages, func(p topology.HugepagePool) bool { return p.Total > 0 }) ||
		slices.ContainsFunc(v.params, func(p param) bool {
			return p.name == "isolcpus" || p.name == "nohz_full" || p.name == "hugepages"
		})
}

// ifServing is Warning on a host that serves labs and Info elsewhere.
func (v *view) ifServing() finding.Severity {
	if v.serves {
		return finding.Warning
	}
	return finding.Info
}

// isCard reports whether the function at a belongs to a GPU that computes or a NIC of the fabric:
// what labs are made of.
func (v *view) isCard(a topology.PCIAddr) bool {
	return slices.ContainsFunc(v.gpus, func(g *topology.GPU) bool {
		return g.Address != nil && g.Address.SameDevice(a)
	}) ||
		slices.ContainsFunc(v.fabric, func(n *topology.NIC) bool { return n.Address != nil && *n.Address == a })
}

// standIn reports whether a is what an emulated host has in place of a GPU.
func (v *view) standIn(a topology.PCIAddr) bool {
	g := v.GPU(a)
	return g != nil && g.Kind == topology.GPUStandIn
}

// holders returns the tenants that have any of the given functions.
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

// stopped reports whether libvirt says that the tenant does not run. A state that is not known
// counts as running: it holds what it names.
func stopped(t *topology.Tenant) bool { return t.State == "shut off" || t.State == "crashed" }

// A need is why the host cannot do without a function.
type need struct {
	what string // "disk" or "network"
	how  string // evidence
}

// needed returns, by function, what the host itself needs: its file systems and its default routes.
func (v *view) needed() map[topology.PCIAddr]need {
	out := map[topology.PCIAddr]need{}
	for _, d := range v.Storage {
		if d.PCI != nil && len(d.Mounts) > 0 {
			out[*d.PCI] = need{"disk", fmt.Sprintf("%s with %s", d.Name, strings.Join(d.Mounts, " "))}
		}
	}
	for _, r := range v.Routes {
		// A route over a bond stands on the functions of all its members.
		for _, s := range r.PCI {
			if a, err := topology.ParsePCIAddr(s); err == nil {
				out[a] = need{"network", "default route over " + r.Netdev}
			}
		}
	}
	return out
}

// describe names a function for people: address and, where they are known, slot and model.
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

// fromFiles reports whether the facts are from the files that the evidence names, and not from
// another tool's account of them.
func (v *view) fromFiles() bool {
	return !slices.Contains([]string{topology.SourceHwloc, topology.SourceNCCL, topology.SourceTopo,
		topology.SourceLspci, topology.SourceTexts, topology.SourceVSphere}, v.Provenance.Kind)
}

// origin is added to the evidence when the host was not read from files: the paths then only say
// where the fact is on a live machine.
func (v *view) origin() string {
	if !v.fromFiles() {
		return " (as told by " + v.Provenance.Kind + ")"
	}
	return ""
}

// at is a piece of evidence: a place and what was read there.
func at(place string, facts ...string) string { return place + ": " + strings.Join(facts, " ") }

// all joins pieces of evidence.
func all(pieces ...string) string { return strings.Join(pieces, "; ") }

// nodeFile and siblings are files of a NUMA node and of a CPU.
func nodeFile(id int, name string) string {
	return fmt.Sprintf("/sys/devices/system/node/node%d/%s", id, name)
}

func siblings(cpu int) string {
	return fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)
}

// pci is the directory of a function.
func pci(a topology.PCIAddr) string { return "/sys/bus/pci/devices/" + a.String() }

// device names where a GPU or NIC is read: its directory, or its name in the dump that it is known from.
func device(a *topology.PCIAddr, name string) string {
	if a == nil {
		return name
	}
	return pci(*a)
}

// node is a fact on the NUMA node of something.
func node(n *int) string {
	if n == nil {
		return "numa_node not known"
	}
	return fmt.Sprintf("numa_node=%d", *n)
}

// join writes a list of values with commas, the form of a Subject.
func join[T any](list []T) string { return words.Join(list, ",") }

// size writes bytes with the largest binary unit that divides them. Large numbers that none divides
// are rounded to MiB: nobody wants the bytes of MemTotal.
func size(bytes uint64) string {
	if bytes >= 10<<20 && bytes%1024 != 0 {
		bytes -= bytes % (1 << 20)
	}
	return words.Exact(bytes)
}
