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

// A PathClass says what traffic between two devices has to cross, in the words of nvidia-smi topo
// -m. The zero value is not known. Better classes compare as smaller.
type PathClass uint8

// The classes, from near to far. Source: the legend that nvidia-smi topo -m prints.
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

// String returns the class as nvidia-smi prints it; an NVLink path without the number of its links is "NV".
func (c PathClass) String() string {
	if int(c) < len(pathNames) {
		return pathNames[c]
	}
	return "PathClass(" + strconv.Itoa(int(c)) + ")"
}

// UnmarshalText reads a class as nvidia-smi prints it.
func (c *PathClass) UnmarshalText(text []byte) (err error) {
	*c, _, err = ParsePathLabel(string(text))
	return err
}

// A Path is what lies between two devices.
type Path struct {
	A, B  string    // IDs of GPU or NIC: address, or name where there is none
	Class PathClass // PathNVLink where NVLinks connect A and B
	Links int       // NVLinks between A and B; 0 unless Class is PathNVLink
	// PCIe is the class of the way over PCIe where Class is PathNVLink and that way is known.
	PCIe PathClass
}

// Label returns the class as a cell of the matrix: "PIX", "NV18". It is empty when the class is not known.
func (p Path) Label() string {
	if p.Class == PathNVLink && p.Links > 0 {
		return "NV" + strconv.Itoa(p.Links)
	}
	return p.Class.String()
}

// pathJSON is the JSON form of a Path, the same as that of the documents that show paths.
type pathJSON struct {
	A     string `json:"a"`
	B     string `json:"b"`
	Class string `json:"class"`          // as Label
	PCIe  string `json:"pcie,omitempty"` // as PathClass
}

// MarshalJSON writes the path with its class as a cell of the matrix: "NV18".
func (p Path) MarshalJSON() ([]byte, error) {
	return json.Marshal(pathJSON{p.A, p.B, p.Label(), p.PCIe.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote. An empty class is one that is not known.
func (p *Path) UnmarshalJSON(data []byte) error {
	var j pathJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	read := Path{A: j.A, B: j.B}
	var errs [2]error
	if j.Class == PathNVLink.String() {
		read.Class = PathNVLink // NVLinks whose number is not known
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

// ParsePathLabel parses a cell of the matrix. "SOC", the name that SYS had before 2017, is taken.
// The number is that of the NVLinks, 0 for all other classes.
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

// A Tree answers questions about the PCI tree of a Host. It stays right as long as the Host is not changed.
type Tree struct {
	host     *Host
	byAddr   map[PCIAddr]*PCIDevice
	reported map[[2]string]Path
	children func() map[PCIAddr][]*PCIDevice
}

// NewTree indexes h.
func NewTree(h *Host) *Tree {
	t := &Tree{host: h, byAddr: make(map[PCIAddr]*PCIDevice, len(h.PCI))}
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

// Children returns the functions right below a bridge, by address.
func (t *Tree) Children(bridge PCIAddr) []*PCIDevice { return t.children()[bridge] }

// Device returns the function at a, or nil.
func (t *Tree) Device(a PCIAddr) *PCIDevice { return t.byAddr[a] }

// at returns the function at an address that may not be known, or nil.
func (t *Tree) at(a *PCIAddr) *PCIDevice {
	if a == nil {
		return nil
	}
	return t.byAddr[*a]
}

// ForGuest reports whether an interrupt is that of a device in a virtual machine, which is served
// where its virtual CPUs are. device is what it is for: the function that owns it, or the kernel's
// action, "vfio-msix[0](0000:41:00.0)".
func (t *Tree) ForGuest(device string) bool {
	if strings.HasPrefix(device, "vfio") {
		return true
	}
	a, err := ParsePCIAddr(device)
	d := t.byAddr[a]
	return err == nil && d != nil && IsVFIO(d.Driver)
}

// maxDepth bounds a walk up the tree: 256 buses cannot be nested deeper, and a dump may have a loop in it.
const maxDepth = 256

// Ancestors returns the bridges above a, the nearest first. A loop ends the list.
func (t *Tree) Ancestors(a PCIAddr) []*PCIDevice {
	up := make([]*PCIDevice, 0, 4) // enough for most: this is asked for each pair of devices
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

// Between returns the path between two functions as nvidia-smi would class it.
//
//   - Functions of one device, or on one bus below a bridge: PIX.
//   - Under one bridge, with at most one bridge on the way down to each (the downstream port of a
//     switch): PIX. A whole switch counts as two.
//   - Under one bridge, deeper: PXB.
//   - On one root bus: PHB.
//   - On one NUMA node: NODE; on a machine with one node, everything is.
//   - On different NUMA nodes: SYS.
//
// It is PathUnknown where the tree or the NUMA nodes do not say.
func (t *Tree) Between(a, b PCIAddr) PathClass {
	if a == b {
		return PathSelf
	}
	if b.Compare(a) < 0 { // the same answer both ways, in a dump whose bridges are a loop too
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
			return PathUnknown // the bridges that are missing may be shared: PIX, PXB or PHB
		}
		return PathPHB
	}
	if cut && (rootA == "" || rootB == "") && !onDifferentNodes(da, db) {
		return PathUnknown
	}
	if len(t.host.NUMANodes) == 1 {
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

// meet returns the places of the nearest bridge that is in both lists of ancestors, -1 where none is.
func meet(upA, upB []*PCIDevice) (i, j int) {
	i = slices.IndexFunc(upA, func(bridge *PCIDevice) bool { return slices.Contains(upB, bridge) })
	if i < 0 {
		return -1, -1
	}
	return i, slices.Index(upB, upA[i])
}

// bridges counts bridges on a way. A switch is two, the port up and the port down, also where the
// source shows it as one.
func bridges(way []*PCIDevice) int { return len(way) + lists.Count(way, (*PCIDevice).isSwitch) }

// topmost returns what stands nearest the root: the last bridge above d, or d itself.
func topmost(d *PCIDevice, up []*PCIDevice) *PCIDevice {
	if len(up) > 0 {
		return up[len(up)-1]
	}
	return d
}

// isCut reports whether the tree is cut off above top, its topmost function: what is between it and
// the root bus was not read.
func isCut(top *PCIDevice) bool { return top.Parent != nil || top.ParentUnknown }

// onDifferentNodes reports whether the NUMA nodes of both are known and differ.
func onDifferentNodes(a, b *PCIDevice) bool {
	return a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode != *b.NUMANode
}

// root names the root bus that d stands on.
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

// RootOf names the root complex that the function stands below, as sysfs does ("pci0000:40"), or
// returns "" where it is not known.
func (t *Tree) RootOf(a PCIAddr) string {
	if d := t.byAddr[a]; d != nil {
		return root(d, t.Ancestors(a))
	}
	return ""
}

// ToNode returns the path between a function and the memory of a NUMA node: PHB for the node that
// it is attached to, SYS for any other.
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

// A NodePath is what lies between a device and the memory of a NUMA node.
type NodePath struct {
	Device   string    `json:"device"`    // ID of a GPU or NIC
	NUMANode int       `json:"numa_node"` // the node's number
	Class    PathClass `json:"class"`     // PHB for the node that the device is attached to, SYS for any other
}

// NodePaths returns the paths from every GPU and NIC, virtual functions left out, to every NUMA
// node, as far as they are known.
func (t *Tree) NodePaths() []NodePath {
	var out []NodePath
	add := func(id string, a *PCIAddr, at *int) {
		for i := range t.host.NUMANodes {
			p := NodePath{Device: id, NUMANode: t.host.NUMANodes[i].ID}
			switch {
			case a != nil && t.byAddr[*a] != nil:
				p.Class = t.ToNode(*a, p.NUMANode)
			case at != nil && *at == p.NUMANode: // a device known by its name, with the node that its source gives
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

// Path returns the path between two GPUs or NICs by their IDs. What a tool reported comes first;
// the PCI tree answers the rest.
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

// Paths returns the paths between all GPUs and NICs that are known, each pair once, GPUs first, in
// the order of the Host. A virtual function is left out: it is where its physical function is.
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

// Path returns the path between two devices by ID. For many questions, make one Tree.
func (h *Host) Path(a, b string) Path { return NewTree(h).Path(a, b) }

// MarshalText writes the class as nvidia-smi prints it.
func (c PathClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// OnlyDevice returns the first function of the device below a bridge when there is exactly one
// device, however deep; nil otherwise.
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

// Below yields the functions below a bridge that are no bridges, however deep, those near it first.
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

// crossed returns the bridges whose links data between a and b crosses, and those above the bridge
// where both meet, with that one: data crosses them only where it makes a detour.
func (t *Tree) crossed(a, b *PCIDevice) (crossed, above []*PCIDevice) {
	upA, upB := t.Ancestors(a.Address), t.Ancestors(b.Address)
	if i, j := meet(upA, upB); i >= 0 {
		return slices.Concat(upA[:i], upB[:j]), upA[i:]
	}
	return slices.Concat(upA, upB), nil
}

// Redirecting returns the ports between two devices below one bridge that send requests of peers up
// to the root complex. A request is redirected by the port that it enters, and its answer by the one
// on the other side. A device with ATS sends translated requests, which a port with Direct
// Translated P2P lets through.
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

// Meet returns the bridge nearest to two functions that both are below, or nil.
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

// gpuAt returns the GPU of a function, or nil.
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

// IsCoherent reports whether the GPU is joined to its processor by NVLink C2C: what its PCI Express
// link says is not what its data takes.
//
// Source: NVIDIA Grace Hopper, Grace Blackwell (GB200, GB300) and GB10 architecture papers.
func (g *GPU) IsCoherent() bool {
	return g.C2CGBps != nil || g.MemoryNode != nil || slices.ContainsFunc([]string{"GH200", "GB200", "GB300", "GB10"},
		func(name string) bool { return HasWord(g.Model, name) })
}

// NoPeers reports whether other devices of PCI Express cannot reach the GPU's memory: GeForce since
// Turing. Earlier ones could, and NVLink between two cards still does.
//
// Source: CUDA, cudaDeviceCanAccessPeer; GPUDirect RDMA, "supported on Tesla and Quadro".
func (g *GPU) NoPeers() bool {
	return strings.Contains(g.Model, "GeForce RTX") || strings.Contains(g.Model, "GeForce GTX 16")
}

// HasWord reports whether a model's name has a word: "GA100 [A100 SXM4 40GB]" has A100, "GB200" has no B200.
func HasWord(model, word string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(model) && (model[i] >= '0' && model[i] <= '9' || model[i]|0x20 >= 'a' &&
			model[i]|0x20 <= 'z')
	}
	// The name may stand in the model twice, and only once as a word.
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

// Device returns the function at an address; nil where the host has none. Whoever asks for many of them makes a [Tree],
// which has an index.
func (h *Host) Device(a PCIAddr) *PCIDevice {
	return lists.Ref(h.PCI, func(d *PCIDevice) bool { return d.Address == a })
}

// NIC returns the NIC at an address; nil where the host has none.
func (h *Host) NIC(a PCIAddr) *NIC {
	return lists.Ref(h.NICs, func(n *NIC) bool { return n.Address != nil && *n.Address == a })
}

// GPU returns the GPU at an address, of any kind; nil where the host has none.
func (h *Host) GPU(a PCIAddr) *GPU {
	return lists.Ref(h.GPUs, func(g *GPU) bool { return g.Address != nil && *g.Address == a })
}

// Core returns the core that a CPU is a thread of; nil where that is not known.
func (h *Host) Core(cpu int) *Core {
	return lists.Ref(h.Cores, func(c *Core) bool { return c.CPUs.Contains(cpu) })
}
