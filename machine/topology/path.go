package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
)

// A PathClass is the hardware that traffic must cross. The zero value means unknown, and better classes are smaller.
type PathClass uint8

// PathUnknown is the first of the classes, from near to far; see the legend of nvidia-smi topo -m.
const (
	PathUnknown PathClass = iota
	PathSelf              // X: the device itself
	PathNVLink            // NV#: a bonded set of # NVLinks
	PathPIX               // at most one PCIe bridge, a switch counted as one
	PathPXB               // several PCIe bridges, without the host bridge
	PathPHB               // a PCIe host bridge, typically the CPU
	PathNODE              // between host bridges within a NUMA node
	PathSYS               // the interconnect between NUMA nodes
)

var pathNames = [...]string{"", "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"}

// String returns nvidia-smi's name: "NV" for any number of links.
func (c PathClass) String() string {
	if int(c) < len(pathNames) {
		return pathNames[c]
	}
	return "PathClass(" + strconv.Itoa(int(c)) + ")"
}

// UnmarshalText parses nvidia-smi's name.
func (c *PathClass) UnmarshalText(text []byte) (err error) {
	*c, _, err = ParsePathLabel(string(text))
	return err
}

// A Path connects two devices.
type Path struct {
	A, B  string // IDs of GPU or NIC
	Class PathClass
	Links int // 0 unless Class is PathNVLink
	// PCIe is the class over PCIe, if known, beside PathNVLink.
	PCIe PathClass
}

// Label returns a cell of the matrix: "PIX", "NV18", or "" if unknown.
func (p Path) Label() string {
	if p.Class == PathNVLink && p.Links > 0 {
		return "NV" + strconv.Itoa(p.Links)
	}
	return p.Class.String()
}

type pathJSON struct {
	A     string `json:"a"`
	B     string `json:"b"`
	Class string `json:"class"`          // as in Label
	PCIe  string `json:"pcie,omitempty"` // as in PathClass
}

// MarshalJSON writes the class as "NV18".
func (p Path) MarshalJSON() ([]byte, error) {
	return json.Marshal(pathJSON{p.A, p.B, p.Label(), p.PCIe.String()})
}

// UnmarshalJSON reads MarshalJSON's form; an empty class is unknown.
func (p *Path) UnmarshalJSON(data []byte) error {
	var j pathJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	read := Path{A: j.A, B: j.B}
	var errs [2]error
	if j.Class == PathNVLink.String() {
		read.Class = PathNVLink // unknown number of NVLinks
	} else if j.Class != "" {
		read.Class, read.Links, errs[0] = ParsePathLabel(j.Class)
	}
	if j.PCIe != "" {
		read.PCIe, _, errs[1] = ParsePathLabel(j.PCIe)
	}
	if err := cmp.Or(errs[:]...); err != nil {
		return err
	}
	*p = read
	return nil
}

// ParsePathLabel parses a cell, including "SOC", the name of SYS before 2017. links is the number of NVLinks, or 0.
func ParsePathLabel(s string) (class PathClass, links int, err error) {
	switch s {
	case "X":
		return PathSelf, 0, nil
	case "SOC":
		return PathSYS, 0, nil
	}
	if digits, ok := strings.CutPrefix(s, "NV"); ok {
		if n, ok := number(digits); ok && n > 0 {
			return PathNVLink, n, nil
		}
	} else if i := slices.Index(pathNames[:], s); i >= int(PathPIX) {
		return PathClass(i), 0, nil
	}
	return PathUnknown, 0, fmt.Errorf("path %q: want X, NV followed by a number of links, PIX, PXB, PHB, NODE or SYS",
		s)
}

// A Tree is valid until the Host changes.
type Tree struct {
	host     *Host
	byAddr   map[PCIAddr]*PCIDevice
	reported map[[2]string]Path
	only     *NUMANode // see Host.OnlyNode
	children func() map[PCIAddr][]*PCIDevice
}

// NewTree indexes h.
func NewTree(h *Host) *Tree {
	t := &Tree{host: h, byAddr: make(map[PCIAddr]*PCIDevice, len(h.PCI)), only: h.OnlyNode()}
	for i := range h.PCI {
		t.byAddr[h.PCI[i].Address] = &h.PCI[i]
	}
	if len(h.Reported) > 0 {
		t.reported = make(map[[2]string]Path, 2*len(h.Reported))
		for _, p := range h.Reported {
			t.reported[[2]string{p.A, p.B}] = p
		}
	}
	t.children = sync.OnceValue(func() map[PCIAddr][]*PCIDevice {
		below := map[PCIAddr][]*PCIDevice{}
		for i := range h.PCI {
			if d := &h.PCI[i]; d.Parent != nil {
				below[*d.Parent] = append(below[*d.Parent], d)
			}
		}
		return below
	})
	return t
}

// Children returns functions directly below a bridge, by address.
func (t *Tree) Children(bridge PCIAddr) []*PCIDevice { return t.children()[bridge] }

// Device returns a function, or nil.
func (t *Tree) Device(a PCIAddr) *PCIDevice { return t.byAddr[a] }

// at returns nil for nil.
func (t *Tree) at(a *PCIAddr) *PCIDevice {
	if a == nil {
		return nil
	}
	return t.byAddr[*a]
}

// ForGuest reports whether an interrupt is of a virtual machine's device, so that it follows the virtual CPUs. device
// is the owning function, or the handler, "vfio-msix[0](0000:41:00.0)".
func (t *Tree) ForGuest(device string) bool {
	if strings.HasPrefix(device, "vfio") {
		return true
	}
	a, err := ParsePCIAddr(device)
	d := t.byAddr[a]
	return err == nil && d != nil && IsVFIO(d.Driver)
}

// maxDepth is for 256 buses, or a loop in a dump.
const maxDepth = 256

// Ancestors returns the bridges above a, the nearest first. A loop ends the list.
func (t *Tree) Ancestors(a PCIAddr) []*PCIDevice {
	up := make([]*PCIDevice, 0, 4) // enough for most
	d := t.byAddr[a]
	for d != nil && d.Parent != nil && len(up) < maxDepth {
		next := t.byAddr[*d.Parent]
		if next == nil || next.Address == a || slices.Contains(up, next) {
			break
		}
		up = append(up, next)
		d = next
	}
	return up
}

// Between returns nvidia-smi's class of the path between two functions.
//
//   - Functions of one device, or on one bus below a bridge: PIX.
//   - Under one bridge, with at most one bridge on the way down to each (the downstream port of a
//     switch): PIX. A whole switch counts as two.
//   - Under one bridge, deeper: PXB.
//   - On one root bus: PHB.
//   - On one NUMA node: NODE; on a machine with one node, everything is.
//   - On different NUMA nodes: SYS.
//
// It returns PathUnknown if neither the tree nor the NUMA nodes decide.
func (t *Tree) Between(a, b PCIAddr) PathClass {
	if a == b {
		return PathSelf
	}
	if b.Compare(a) < 0 { // the same in both directions, even in a loop
		a, b = b, a
	}
	da, db := t.byAddr[a], t.byAddr[b]
	if da == nil || db == nil {
		return PathUnknown
	}
	if a.SameDevice(b) || da.Parent != nil && db.Parent != nil && *da.Parent == *db.Parent {
		return PathPIX
	}
	upA, upB := t.Ancestors(a), t.Ancestors(b)
	if i, j := meet(upA, upB); i >= 0 {
		if bridges(upA[:i]) <= 1 && bridges(upB[:j]) <= 1 {
			return PathPIX
		}
		return PathPXB
	}
	cut := isCut(topmost(da, upA)) || isCut(topmost(db, upB))
	rootA, rootB := root(da, upA), root(db, upB)
	if rootA != "" && rootA == rootB {
		if cut {
			return PathUnknown // the missing bridges may be shared
		}
		return PathPHB
	}
	if cut && (rootA == "" || rootB == "") && !onDifferentNodes(da, db) {
		return PathUnknown
	}
	if t.only != nil {
		return PathNODE
	}
	if da.NUMANode == nil || db.NUMANode == nil {
		return PathUnknown
	}
	if *da.NUMANode == *db.NUMANode {
		return PathNODE
	}
	return PathSYS
}

// meet returns indexes of the nearest common bridge, or -1.
func meet(upA, upB []*PCIDevice) (i, j int) {
	i = slices.IndexFunc(upA, func(bridge *PCIDevice) bool { return slices.Contains(upB, bridge) })
	if i < 0 {
		return -1, -1
	}
	return i, slices.Index(upB, upA[i])
}

// bridges counts a switch as two, its upstream and downstream ports.
func bridges(way []*PCIDevice) int { return len(way) + lists.Count(way, (*PCIDevice).isSwitch) }

func topmost(d *PCIDevice, up []*PCIDevice) *PCIDevice {
	if len(up) > 0 {
		return up[len(up)-1]
	}
	return d
}

// isCut reports whether the bridges up to the root bus were not read.
func isCut(top *PCIDevice) bool { return top.Parent != nil || top.ParentUnknown }

func onDifferentNodes(a, b *PCIDevice) bool {
	return a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode != *b.NUMANode
}

func root(d *PCIDevice, up []*PCIDevice) string {
	top := topmost(d, up)
	if top.Root != "" {
		return top.Root
	}
	if isCut(top) {
		return ""
	}
	return fmt.Sprintf("pci%04x:%02x", top.Address.Domain, top.Address.Bus)
}

// RootOf returns the root complex ("pci0000:40"), or "".
func (t *Tree) RootOf(a PCIAddr) string {
	if d := t.byAddr[a]; d != nil {
		return root(d, t.Ancestors(a))
	}
	return ""
}

// ToNode returns PHB for the function's own NUMA node, SYS for any other.
func (t *Tree) ToNode(a PCIAddr, node int) PathClass {
	d := t.byAddr[a]
	switch {
	case d == nil || d.NUMANode == nil && len(t.host.NUMANodes) != 1:
		return PathUnknown
	case d.NUMANode == nil || *d.NUMANode == node:
		return PathPHB
	default:
		return PathSYS
	}
}

// A NodePath leads from a device to a NUMA node's memory.
type NodePath struct {
	Device   string    `json:"device"`
	NUMANode int       `json:"numa_node"` // the node's number
	Class    PathClass `json:"class"`     // as of ToNode
}

// NodePaths returns the known paths from GPUs and NICs, except virtual functions, to every NUMA node.
func (t *Tree) NodePaths() []NodePath {
	var out []NodePath
	add := func(id string, a *PCIAddr, at *int) {
		for i := range t.host.NUMANodes {
			p := NodePath{Device: id, NUMANode: t.host.NUMANodes[i].ID}
			switch {
			case a != nil && t.byAddr[*a] != nil:
				p.Class = t.ToNode(*a, p.NUMANode)
			case at != nil && *at == p.NUMANode: // a device known only by name
				p.Class = PathPHB
			case at != nil:
				p.Class = PathSYS
			}
			if p.Class != PathUnknown {
				out = append(out, p)
			}
		}
	}
	for i := range t.host.GPUs {
		g := &t.host.GPUs[i]
		add(g.ID(), g.Address, g.NUMANode)
	}
	for i := range t.host.NICs {
		if n := &t.host.NICs[i]; n.PF == nil {
			add(n.ID(), n.Address, n.NUMANode)
		}
	}
	return out
}

// Path returns the path between two IDs. Paths reported by a tool precede the PCI tree's.
func (t *Tree) Path(a, b string) Path {
	p := Path{A: a, B: b}
	r, ok := t.reported[[2]string{a, b}]
	if !ok {
		r = t.reported[[2]string{b, a}]
	}
	p.Class, p.Links, p.PCIe = r.Class, r.Links, r.PCIe
	if p.Class != PathUnknown && (p.Class != PathNVLink || p.PCIe != PathUnknown) {
		return p
	}
	addrA, errA := ParsePCIAddr(a)
	addrB, errB := ParsePCIAddr(b)
	if errA == nil && errB == nil {
		if pcie := t.Between(addrA, addrB); p.Class == PathNVLink {
			p.PCIe = pcie
		} else {
			p.Class = pcie
		}
	}
	return p
}

// Paths returns the known paths between GPUs and NICs, each pair once, GPUs first, in the Host's order, without virtual
// functions.
func (t *Tree) Paths() []Path {
	ids := lists.Map(t.host.GPUs, func(g GPU) string { return g.ID() })
	for i := range t.host.NICs {
		if t.host.NICs[i].PF == nil {
			ids = append(ids, t.host.NICs[i].ID())
		}
	}
	var out []Path
	for i, a := range ids {
		for _, b := range ids[i+1:] {
			if p := t.Path(a, b); p.Class != PathUnknown {
				out = append(out, p)
			}
		}
	}
	return out
}

// Path is slow; use a Tree for repeated calls.
func (h *Host) Path(a, b string) Path { return NewTree(h).Path(a, b) }

// MarshalText writes String's name.
func (c PathClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// OnlyDevice returns the first function of the only device below a bridge, at any depth, or nil.
func (t *Tree) OnlyDevice(bridge PCIAddr) *PCIDevice {
	var found *PCIDevice
	for d := range t.Below(bridge) {
		switch {
		case found == nil:
			found = d
		case !found.Address.SameDevice(d.Address):
			return nil
		}
	}
	return found
}

// Below yields the functions at any depth that are not bridges, nearest first.
func (t *Tree) Below(bridge PCIAddr) func(yield func(*PCIDevice) bool) {
	return func(yield func(*PCIDevice) bool) {
		queue := []PCIAddr{bridge}
		for i := 0; i < len(queue); i++ {
			for _, d := range t.Children(queue[i]) {
				switch {
				case slices.Contains(queue, d.Address): // a loop
				case d.IsBridge():
					queue = append(queue, d.Address)
				case !yield(d):
					return
				}
			}
		}
	}
}

// crossed returns the bridges on the direct path, and the common bridge with the bridges above it, which data crosses
// only on a detour.
func (t *Tree) crossed(a, b *PCIDevice) (crossed, above []*PCIDevice) {
	upA, upB := t.Ancestors(a.Address), t.Ancestors(b.Address)
	if i, j := meet(upA, upB); i >= 0 {
		return slices.Concat(upA[:i], upB[:j]), upA[i:]
	}
	return slices.Concat(upA, upB), nil
}

// Redirecting returns the ports between two devices below one bridge that send peers' requests up to the root complex.
// Ports redirect requests that enter them, and the opposite port redirects the completion. With ATS a device sends
// translated requests, which pass a port with Direct Translated P2P.
func (t *Tree) Redirecting(a, b *PCIDevice) []PCIAddr {
	crossed, above := t.crossed(a, b)
	return redirecting(a, b, crossed, above)
}

func redirecting(a, b *PCIDevice, crossed, above []*PCIDevice) []PCIAddr {
	if a.Address.SameDevice(b.Address) {
		return nil
	}
	translated := a.ATS != nil && *a.ATS || b.ATS != nil && *b.ATS
	var ports []PCIAddr
	for _, p := range crossed {
		if p.ACS != nil && p.ACS.RequestRedirect && !(translated && p.ACS.DirectTranslated) && len(above) > 0 {
			ports = append(ports, p.Address)
		}
	}
	return ports
}

// Meet returns the nearest bridge above both, or nil.
func (t *Tree) Meet(a, b PCIAddr) *PCIDevice {
	da, db := t.byAddr[a], t.byAddr[b]
	if da == nil || db == nil {
		return nil
	}
	if _, above := t.crossed(da, db); len(above) > 0 {
		return above[0]
	}
	return nil
}

func (t *Tree) gpuAt(d *PCIDevice) *GPU {
	return lists.Ref(t.host.GPUs, func(g *GPU) bool { return g.Address != nil && *g.Address == d.Address })
}

func (t *Tree) isCoherent(d *PCIDevice) bool {
	g := t.gpuAt(d)
	return g != nil && g.IsCoherent()
}

func (t *Tree) noPeers(d *PCIDevice) bool {
	g := t.gpuAt(d)
	return g != nil && g.NoPeers()
}

// IsCoherent reports whether NVLink C2C joins the GPU to its processor. Its data then does not use PCI Express.
//
// Source: NVIDIA Grace Hopper, Grace Blackwell (GB200, GB300) and GB10 architecture papers.
func (g *GPU) IsCoherent() bool {
	return g.C2CGBps != nil || g.MemoryNode != nil || slices.ContainsFunc([]string{"GH200", "GB200", "GB300", "GB10"},
		func(name string) bool { return HasWord(g.Model, name) })
}

// NoPeers reports whether other PCI Express devices cannot access the GPU's memory, as with GeForce since Turing.
// Earlier GeForce cards allow it, as does NVLink between two cards.
//
// Source: CUDA, cudaDeviceCanAccessPeer; GPUDirect RDMA, "supported on Tesla and Quadro".
func (g *GPU) NoPeers() bool {
	return strings.Contains(g.Model, "GeForce RTX") || strings.Contains(g.Model, "GeForce GTX 16")
}

// HasWord reports whether a model contains a whole word: "GA100 [A100 SXM4 40GB]" has A100, "GB200" lacks B200.
func HasWord(model, word string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(model) && (model[i] >= '0' && model[i] <= '9' || model[i]|0x20 >= 'a' &&
			model[i]|0x20 <= 'z')
	}
	for from := 0; ; {
		i := strings.Index(model[from:], word)
		if i < 0 {
			return false
		}
		if i += from; !letter(i-1) && !letter(i+len(word)) {
			return true
		}
		from = i + len(word)
	}
}

// Device returns a function, or nil. A [Tree] is faster for many.
func (h *Host) Device(a PCIAddr) *PCIDevice {
	return lists.Ref(h.PCI, func(d *PCIDevice) bool { return d.Address == a })
}

// NIC returns the NIC at an address, or nil.
func (h *Host) NIC(a PCIAddr) *NIC {
	return lists.Ref(h.NICs, func(n *NIC) bool { return n.Address != nil && *n.Address == a })
}

// GPU returns the GPU at an address, or nil.
func (h *Host) GPU(a PCIAddr) *GPU {
	return lists.Ref(h.GPUs, func(g *GPU) bool { return g.Address != nil && *g.Address == a })
}

// Core returns the core of a CPU, or nil.
func (h *Host) Core(cpu int) *Core {
	return lists.Ref(h.Cores, func(c *Core) bool { return c.CPUs.Contains(cpu) })
}
