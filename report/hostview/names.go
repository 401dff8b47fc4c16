package hostview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/topology"
)

// A view is a Document with what every output needs to know about it.
type view struct {
	*Document
	tree     *topology.Tree
	gpus     []*topology.GPU              // those that compute, in the order of the Host
	displays []*topology.GPU              // those that only drive a screen
	nics     []*topology.NIC              // without virtual functions
	vfs      map[topology.PCIAddr]int     // virtual functions that are there, by physical function
	names    map[string]string            // GPU0, NIC3: by ID
	classes  map[[2]string]string         // cells of the matrix, by the IDs of both devices, in both orders
	findings map[string][]finding.Finding // by what they are about, in the form of subjects
}

func newView(d *Document) *view {
	v := &view{
		Document: d, tree: topology.NewTree(d.Host),
		vfs: map[topology.PCIAddr]int{}, names: map[string]string{}, classes: map[[2]string]string{},
		findings: map[string][]finding.Finding{},
	}
	for i := range d.Host.GPUs {
		if g := &d.Host.GPUs[i]; g.Kind == topology.GPUDisplay {
			v.displays = append(v.displays, g)
		} else {
			v.gpus = append(v.gpus, g)
		}
	}
	for i := range d.Host.NICs {
		if n := &d.Host.NICs[i]; n.PF == nil {
			v.nics = append(v.nics, n)
		}
	}
	for i := range d.Host.PCI {
		if pf := d.Host.PCI[i].PF; pf != nil {
			v.vfs[*pf]++
		}
	}
	gpus, nics := make([]string, len(v.gpus)), make([]string, len(v.nics))
	for i, g := range v.gpus {
		gpus[i] = g.Name
	}
	for i, n := range v.nics {
		nics[i] = n.Name
	}
	for i, name := range numbered("GPU", gpus) {
		v.names[v.gpus[i].ID()] = name
	}
	for i, name := range numbered("NIC", nics) {
		v.names[v.nics[i].ID()] = name
	}
	for _, p := range d.Paths {
		v.classes[[2]string{p.A, p.B}] = p.Class
		v.classes[[2]string{p.B, p.A}] = p.Class
	}
	for _, f := range d.Findings {
		for _, s := range subjects(f) {
			v.findings[s] = append(v.findings[s], f)
		}
	}
	return v
}

// numbered returns the names by which a matrix calls devices: those that they brought along where
// all have one of this form (a matrix may start at GPU4), or prefix0, prefix1, ... in their order.
func numbered(prefix string, names []string) []string {
	seen := map[string]bool{}
	keep := true
	for _, n := range names {
		digits, ok := strings.CutPrefix(n, prefix)
		if _, err := strconv.ParseUint(digits, 10, 16); !ok || err != nil || seen[n] {
			keep = false
			break
		}
		seen[n] = true
	}
	if keep {
		return names
	}
	out := make([]string, len(names))
	for i := range names {
		out[i] = prefix + strconv.Itoa(i)
	}
	return out
}

// nodeOf returns the node of a device: on a machine with one node everything is on it.
func (v *view) nodeOf(n *int) *int {
	if n == nil && len(v.Host.NUMANodes) == 1 {
		return &v.Host.NUMANodes[0].ID
	}
	return n
}

// device returns the PCI function at a, or nil.
func (v *view) device(a *topology.PCIAddr) *topology.PCIDevice {
	if a == nil {
		return nil
	}
	return v.tree.Device(*a)
}

// affinity returns the CPUs next to a device: as its source states them, as the kernel does, or those of its node.
func (v *view) affinity(stated *topology.CPUSet, addr *topology.PCIAddr, node *int) *topology.CPUSet {
	if stated != nil {
		return stated
	}
	if d := v.device(addr); d != nil && d.LocalCPUs != nil {
		return d.LocalCPUs
	}
	if node = v.nodeOf(node); node != nil {
		if i := slices.IndexFunc(v.Host.NUMANodes, func(n topology.NUMANode) bool { return n.ID == *node }); i >= 0 {
			return &v.Host.NUMANodes[i].CPUs
		}
	}
	return nil
}

// vfText is how many virtual functions a NIC or GPU has, and how many it could have: "4 of 16". It
// is none where SR-IOV is not offered.
func (v *view) vfText(addr *topology.PCIAddr, s *topology.SRIOV) string {
	now := 0
	if addr != nil {
		now = v.vfs[*addr]
	}
	if s == nil {
		if now > 0 {
			return strconv.Itoa(now)
		}
		return none
	}
	now = max(now, len(s.VFs))
	if s.Enabled != nil {
		now = max(now, *s.Enabled)
	}
	if s.Total == nil {
		return strconv.Itoa(now)
	}
	return strconv.Itoa(now) + " of " + strconv.Itoa(*s.Total)
}
