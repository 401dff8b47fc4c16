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

// A PathClass is the hardware that traffic between two devices must cross, in the words of nvidia-smi topo -m. The
// zero value means unknown, and better classes are smaller.
type PathClass uint8

// The classes, from near to far. Source: the legend of nvidia-smi topo -m.
const (
	PathUnknown PathClass = iota
	PathSelf              // X: the device itself
	PathNVLink            // NV#: a bonded set of # NVLinks
	PathPIX               // at most one PCIe bridge, a switch counted as one
	PathPXB               // several PCIe bridges, without the host bridge
	PathPHB               // a PCIe host bridge, typically the CPU
	PathNODE              // the interconnect between host bridges within a NUMA node
	PathSYS               // the interconnect between NUMA nodes
)

var pathNames = [...]string{"", "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"}

// String returns nvidia-smi's name of the class, without the number of links for NVLink: "NV".
func (c PathClass) String() string {
	if int(c) < len(pathNames) {
		return pathNames[c]
	}
	return "PathClass(" + strconv.Itoa(int(c)) + ")"
}

// UnmarshalText parses nvidia-smi's name of a class.
func (c *PathClass) UnmarshalText(text []byte) (err error) {
	*c, _, err = ParsePathLabel(string(text))
	return err
}

// A Path is the connection between two devices.
type Path struct {
	A, B  string    // IDs of GPU or NIC: address, or name if it has no address
	Class PathClass // PathNVLink if NVLinks connect A and B
	Links int       // NVLinks between A and B; 0 unless Class is PathNVLink
	// PCIe is the class of the path over PCIe if Class is PathNVLink and that path is known.
	PCIe PathClass
}

// Label returns the class as a cell of the matrix: "PIX", "NV18". It is empty if the class is unknown.
func (p Path) Label() string {
	if p.Class == PathNVLink && p.Links > 0 {
		return "NV" + strconv.Itoa(p.Links)
	}
	return p.Class.String()
}

// pathJSON is the JSON form of a Path, as in all documents that show paths.
type pathJSON struct {
	A     string `json:"a"`
	B     string `json:"b"`
	Class string `json:"class"`          // as in Label
	PCIe  string `json:"pcie,omitempty"` // as in PathClass
}

// MarshalJSON writes the path with its class as a cell of the matrix: "NV18".
func (p Path) MarshalJSON() ([]byte, error) {
	return json.Marshal(pathJSON{p.A, p.B, p.Label(), p.PCIe.String()})
}

// UnmarshalJSON reads the output of MarshalJSON. An empty class means unknown.
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

// ParsePathLabel parses a cell of the matrix, including "SOC", the name of SYS before 2017. links is the number of
// NVLinks, or 0 for other classes.
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

// A Tree answers questions about the PCI tree of a Host. It is valid until the Host changes.
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

// Children returns the functions directly below a bridge, by address.
func (t *Tree) Children(bridge PCIAddr) []*PCIDevice { return t.children()[bridge] }

// Device returns the function at a, or nil.
func (t *Tree) Device(a PCIAddr) *PCIDevice { return t.byAddr[a] }

// at returns the function at an address, or nil if the address is nil or has no function.
func (t *Tree) at(a *PCIAddr) *PCIDevice {
	if a == nil {
		return nil
	}
	return t.byAddr[*a]
}

// ForGuest reports whether an interrupt belongs to a device in a virtual machine, so that it follows the virtual
// CPUs. device is the owning function, or the kernel's name of the handler, "vfio-msix[0](0000:41:00.0)".
func (t *Tree) ForGuest(device string) bool {
	if strings.HasPrefix(device, "vfio") {
		return true
	}
	a, err := ParsePCIAddr(device)
	d := t.byAddr[a]
	return err == nil && d != nil && IsVFIO(d.Driver)
}

// maxDepth limits a walk up the tree: 256 buses cannot be nested deeper, and a dump may contain a loop.
const maxDepth = 256

// Ancestors returns the bridges above a, the nearest first. A loop ends the list.
func (t *Tree) Ancestors(a PCIAddr) []*PCIDevice {
	up := make([]*PCIDevice, 0, 4) // enough for most; this runs for each pair of devices
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
	if b.Compare(a) < 0 { // the same result in both directions, even in a dump with a loop of bridges
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
			return PathUnknown // the missing bridges may be shared: PIX, PXB or PHB
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

// meet returns the indexes of the nearest common bridge in two lists of ancestors, or -1.
func meet(upA, upB []*PCIDevice) (i, j int) {
	i = slices.IndexFunc(upA, func(bridge *PCIDevice) bool { return slices.Contains(upB, bridge) })
	if i < 0 {
		return -1, -1
	}
	return i, slices.Index(upB, upA[i])
}

// bridges counts the bridges on a path. A switch counts as two, its upstream and downstream ports, even if the source
// shows it as one.
func bridges(way []*PCIDevice) int { return len(way) + lists.Count(way, (*PCIDevice).isSwitch) }

// topmost returns the last bridge above d, or d itself.
func topmost(d *PCIDevice, up []*PCIDevice) *PCIDevice {
	if len(up) > 0 {
		return up[len(up)-1]
	}
	return d
}

// isCut reports whether the tree is cut off above top, its topmost function: the bridges up to the root bus were not
// read.
func isCut(top *PCIDevice) bool { return top.Parent != nil || top.ParentUnknown }

func onDifferentNodes(a, b *PCIDevice) bool {
	return a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode != *b.NUMANode
}

// root returns the name of d's root bus, or "" if it is unknown.
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

// RootOf returns the function's root complex as in sysfs ("pci0000:40"), or "" if it is unknown.
func (t *Tree) RootOf(a PCIAddr) string {
	if d := t.byAddr[a]; d != nil {
		return root(d, t.Ancestors(a))
	}
	return ""
}

// ToNode returns the path between a function and the memory of a NUMA node: PHB for the function's own node, SYS for
// any other.
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

// A NodePath is the connection between a device and the memory of a NUMA node.
type NodePath struct {
	Device   string    `json:"device"`    // ID of a GPU or NIC
	NUMANode int       `json:"numa_node"` // the node's number
	Class    PathClass `json:"class"`     // PHB for the device's own node, SYS for any other
}

// NodePaths returns the known paths from every GPU and NIC, except virtual functions, to every NUMA node.
func (t *Tree) NodePaths() []NodePath {
	var out []NodePath
	add := func(id string, a *PCIAddr, at *int) {
		for i := range t.host.NUMANodes {
			p := NodePath{Device: id, NUMANode: t.host.NUMANodes[i].ID}
			switch {
			case a != nil && t.byAddr[*a] != nil:
				p.Class = t.ToNode(*a, p.NUMANode)
			case at != nil && *at == p.NUMANode: // a device known only by name, with its source's node
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

// Path returns the path between two GPUs or NICs by their IDs. Paths reported by a tool take precedence over the PCI
// tree.
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

// Paths returns the known paths between all GPUs and NICs, each pair once, GPUs first, in the order of the Host. It
// omits virtual functions, which have the paths of their physical function.
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

// Path returns the path between two devices by ID. Use a Tree for repeated calls.
func (h *Host) Path(a, b string) Path { return NewTree(h).Path(a, b) }

// MarshalText returns nvidia-smi's name of the class.
func (c PathClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// OnlyDevice returns the first function of the only device at any depth below a bridge, or nil if there are several
// or none.
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

// Below yields the functions at any depth below a bridge that are not bridges, nearest first.
func (t *Tree) Below(bridge PCIAddr) func(yield func(*PCIDevice) bool) {
	return func(yield func(*PCIDevice) bool) {
		queue := []PCIAddr{bridge}
		for i := 0; i < len(queue); i++ {
			for _, d := range t.Children(queue[i]) {
				switch {
				case slices.Contains(queue, d.Address): // a loop in a broken dump
				case d.IsBridge():
					queue = append(queue, d.Address)
				case !yield(d):
					return
				}
			}
		}
	}
}

// crossed returns the bridges on the direct path between a and b, and the common bridge with the bridges above it,
// which data crosses only on a detour.
func (t *Tree) crossed(a, b *PCIDevice) (crossed, above []*PCIDevice) {
	upA, upB := t.Ancestors(a.Address), t.Ancestors(b.Address)
	if i, j := meet(upA, upB); i >= 0 {
		return slices.Concat(upA[:i], upB[:j]), upA[i:]
	}
	return slices.Concat(upA, upB), nil
}

// Redirecting returns the ports between two devices below one bridge that send peers' requests up to the root
// complex. Ports redirect requests that enter them, and the opposite port redirects the completion. With ATS a device
// sends translated requests, which pass a port with Direct Translated P2P.
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

// Meet returns the nearest bridge above both functions, or nil.
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

// IsCoherent reports whether NVLink C2C joins the GPU to its processor. Its data then does not use its PCI Express
// link.
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

// HasWord reports whether a model name contains a whole word: "GA100 [A100 SXM4 40GB]" has A100, "GB200" lacks B200.
func HasWord(model, word string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(model) && (model[i] >= '0' && model[i] <= '9' || model[i]|0x20 >= 'a' &&
			model[i]|0x20 <= 'z')
	}
	// The text may occur twice, and only once as a whole word.
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

// Device returns the function at an address, or nil. A [Tree] is faster for many lookups.
func (h *Host) Device(a PCIAddr) *PCIDevice {
	return lists.Ref(h.PCI, func(d *PCIDevice) bool { return d.Address == a })
}

// NIC returns the NIC at an address, or nil.
func (h *Host) NIC(a PCIAddr) *NIC {
	return lists.Ref(h.NICs, func(n *NIC) bool { return n.Address != nil && *n.Address == a })
}

// GPU returns the GPU of any kind at an address, or nil.
func (h *Host) GPU(a PCIAddr) *GPU {
	return lists.Ref(h.GPUs, func(g *GPU) bool { return g.Address != nil && *g.Address == a })
}

// Core returns the core of a CPU, or nil if unknown.
func (h *Host) Core(cpu int) *Core {
	return lists.Ref(h.Cores, func(c *Core) bool { return c.CPUs.Contains(cpu) })
}
