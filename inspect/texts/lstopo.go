package texts

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// Parts of lines of lstopo. L# is hwloc's own number of an object, and P# the number of the operating system, which the
// other tools use as well.
//
//	hwloc 1:    NUMANode L#0 (P#0 64GB)          PCI 15b3:1013       Net L#0 "ib0"
//	hwloc 2:    NUMANode L#0 (P#0 64GB)          PCI 3b:00.0 (InfiniBand)    Net "ib0"
//	with -v:    NUMANode L#0 (P#0 local=65Gi...) PCI L#0 (busid=0000:3b:00.0 id=15b3:1013 class=0207(...) ...)
var (
	lstopoPart = lazyregexp.New(
		`^(Machine|System|NUMANode|Package|Socket|Die|L3Cache|L3|Core|PU|HostBridge|PCIBridge|PCI|` +
			`MemCache|Net|OpenFabrics|OSDev)\b(.*)$`)
	lstopoNumber = lazyregexp.New(`\bP#(\d+)`)
	lstopoSize   = lazyregexp.New(`(?:\((?:P#\d+ )?|local=|size=)(\d+(?:\.\d+)?[KMGT]i?B)`)
	lstopoPCI    = lazyregexp.New(`(?:^ ?|busid=)((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b`)
	lstopoIDs    = lazyregexp.New(`id=([0-9a-f]{4}):([0-9a-f]{4}) class=([0-9a-f]{4})`)
	lstopoClass  = lazyregexp.New(`\((\w+)\)`)
	lstopoBuses  = lazyregexp.New(`buses=([0-9a-f]{4}):\[([0-9a-f]{2})-`)
	quotedName   = lazyregexp.New(`"([^"]+)"`)
)

// lstopoClasses are lstopo's words for the classes of PCI that matter.
var lstopoClasses = map[string]topology.ID24{"Ethernet": 0x020000, "InfiniBand": 0x020700, "Network": 0x028000,
	"VGA": 0x030000, "3D": 0x030200, "Display": 0x038000, "NVMExp": 0x010802, "NVMe": 0x010802, "SATA": 0x010601,
	"RAID": 0x010400, "ProcessingAccelerator": 0x120000}

// An object is one of lstopo's, with what is indented below it.
type object struct {
	kind, about string
	line        int
	up          *object
	below       []*object
}

// lstopoTree makes the tree. A line joins objects that have one child each by " + ".
func (r *reader) lstopoTree() *object {
	root := &object{kind: "root"}
	type open struct {
		indent int
		o      *object
	}
	// The objects that the next line may be below, each with a larger indentation than the one before. The root is at
	// -1, and therefore never taken off.
	stack := []open{{-1, root}}
	n := -1
	for line := range strings.SplitSeq(r.Text.Text, "\n") {
		n++
		text := strings.TrimLeft(line, " \t")
		indent := len(line) - len(text)
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		for stack[len(stack)-1].indent >= indent {
			stack = stack[:len(stack)-1]
		}
		at := stack[len(stack)-1].o
		if _, _, several := strings.Cut(text, " x { PCI "); several {
			r.note(n, "several devices on one line: lstopo --no-collapse tells them apart")
		}
		for part := range strings.SplitSeq(text, " + ") {
			o := &object{up: at, line: n}
			// An object of another kind (Group, L2) has no kind here, but stays in the tree: what is below it still
			// finds what is above it.
			if m := lstopoPart.FindStringSubmatch(part); m != nil {
				o.kind, o.about = m[1], m[2]
			}
			at.below = append(at.below, o)
			at = o
		}
		stack = append(stack, open{indent, at})
	}
	return root
}

// all yields o and the objects below it.
func (o *object) all() iter.Seq[*object] { return func(yield func(*object) bool) { o.each(yield) } }

// each yields until yield returns false, and reports whether it did not.
func (o *object) each(yield func(*object) bool) bool {
	return yield(o) && !slices.ContainsFunc(o.below, func(b *object) bool { return !b.each(yield) })
}

// find returns the nearest object above o, or o, for which is holds.
func (o *object) find(is func(*object) bool) *object {
	for ; o != nil; o = o.up {
		if is(o) {
			return o
		}
	}
	return nil
}

// number is that of the operating system; nil where there is none.
func (o *object) number() *int {
	if m := lstopoNumber.FindStringSubmatch(o.about); m != nil {
		return count(m[1])
	}
	return nil
}

// cpus are those below o.
func (o *object) cpus() topology.CPUSet {
	var list []int
	for b := range o.all() {
		if n := b.number(); b.kind == "PU" && n != nil && *n < topology.MaxCPUs {
			list = append(list, *n)
		}
	}
	return topology.CPUs(list...)
}

// size is that of the memory or cache; nil where the text has none.
func (o *object) size() *uint64 {
	if m := lstopoSize.FindStringSubmatch(o.about); m != nil {
		return size(m[1])
	}
	return nil
}

// address is that of a PCI function or bridge; nil where the text has none, as of hwloc 1 without -v.
func (o *object) address() *topology.PCIAddr {
	if m := lstopoPCI.FindStringSubmatch(o.about); m != nil {
		return address(m[1])
	}
	return nil
}

// nodeIn is the first NUMA node that is a leaf below o itself, or below a cache of memory there. A node that has
// objects below it is one of hwloc 1, which contains what it is near to. A cache of memory is that of a machine that
// uses fast memory as a cache of the slow one.
func (o *object) nodeIn() *object {
	for _, b := range o.below {
		if b.kind == "NUMANode" && len(b.below) == 0 {
			return b
		}
		if b.kind == "MemCache" {
			if n := b.nodeIn(); n != nil {
				return n
			}
		}
	}
	return nil
}

// lstopo reads the text of lstopo: of hwloc 1, where CPUs are below their NUMA node, and of hwloc 2, where the node
// stands beside them.
func (r *reader) lstopo() {
	h := r.h
	for o := range r.lstopoTree().all() {
		switch o.kind {
		case "NUMANode":
			r.lstopoNode(o)
		case "Package", "Socket":
			id := cmp.Or(o.number(), new(len(h.Packages)))
			h.Packages = append(h.Packages, topology.Package{ID: *id, CPUs: o.cpus()})
		case "L3", "L3Cache":
			h.L3 = append(h.L3, topology.L3{CPUs: o.cpus(), SizeBytes: o.size()})
		case "Core":
			h.Cores = append(h.Cores, topology.Core{CPUs: o.cpus()})
		case "PU":
			if n := o.number(); n == nil || *n >= topology.MaxCPUs {
				r.note(o.line, "a PU without its number P#")
			}
		case "PCI", "PCIBridge":
			r.lstopoFunction(o)
		case "Net", "OpenFabrics", "OSDev":
			r.lstopoNIC(o)
		case "Machine", "System":
			h.CPUs.Online = o.cpus()
		}
	}
}

// lstopoNode reads a NUMA node. Of several that stand beside the same CPUs the first one has them: the others are
// memory of another kind.
func (r *reader) lstopoNode(o *object) {
	id := o.number()
	if id == nil {
		r.note(o.line, "a NUMA node without its number P#")
		return
	}
	n := r.node(*id)
	n.MemoryBytes = o.size()
	near := o.up.find(func(u *object) bool { return u.kind != "MemCache" })
	if len(o.below) > 0 {
		n.CPUs = o.cpus()
	} else if near.nodeIn() == o {
		n.CPUs = near.cpus()
	}
}

// lstopoFunction reads a PCI function, or a bridge whose address is told (-v).
func (r *reader) lstopoFunction(o *object) {
	a := o.address()
	if a == nil {
		return
	}
	d := topology.PCIDevice{Address: *a}
	if m := lstopoIDs.FindStringSubmatch(o.about); m != nil {
		d.Vendor, d.Device = words.Known(topology.ParseID16(m[1])), words.Known(topology.ParseID16(m[2]))
		// lstopo tells class and subclass. The third byte, the programming interface, is not in the text.
		d.Class = words.Known(topology.ParseID24(m[3] + "00"))
	} else if m := lstopoClass.FindStringSubmatch(o.about); m != nil {
		if class, ok := lstopoClasses[m[1]]; ok {
			d.Class = &class
		}
	}
	switch bridge := o.up.find(func(u *object) bool { return u.kind == "PCIBridge" || u.kind == "HostBridge" }); {
	case bridge == nil:
		d.ParentUnknown = true
	case bridge.kind == "PCIBridge":
		d.Parent = bridge.address()
		d.ParentUnknown = d.Parent == nil // only lstopo -v tells the addresses of bridges
	default:
		// Right below a host bridge, a function is on the root bus, so that its own bus is the name.
		d.Root = fmt.Sprintf("pci%04x:%02x", a.Domain, a.Bus)
		if m := lstopoBuses.FindStringSubmatch(bridge.about); m != nil {
			d.Root = "pci" + m[1] + ":" + m[2]
		}
	}
	// hwloc 1 has the bridge below the NUMA node, and hwloc 2 both below the same package or group.
	node := o.find(func(u *object) bool { return u.kind == "NUMANode" || u.nodeIn() != nil })
	if node != nil && node.kind != "NUMANode" {
		node = node.nodeIn()
	}
	if node != nil {
		d.NUMANode = node.number()
	}
	r.h.PCI = append(r.h.PCI, d)
}

// lstopoNIC reads the name of a network or RDMA device below its function.
func (r *reader) lstopoNIC(o *object) {
	m := quotedName.FindStringSubmatch(o.about)
	on := o.find(func(u *object) bool { return u.kind == "PCI" && u.address() != nil })
	if m == nil || on == nil {
		return
	}
	// Some releases write the kind in brackets: OSDev[OpenFabrics] "mlx5_0".
	fabrics := o.kind == "OpenFabrics" || strings.HasPrefix(o.about, "[OpenFabrics")
	switch nic := r.nicAt(*on.address()); {
	case fabrics:
		rdma(nic, m[1], nil)
	case o.kind == "Net" || strings.HasPrefix(o.about, "[Network"):
		netdev(nic, m[1])
	}
}
