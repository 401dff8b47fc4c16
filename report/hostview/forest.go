package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// unplaced is the key of what has no known NUMA node.
const unplaced = -1

// A block is a root complex with what is worth drawing below it.
type block struct {
	Title    string
	Branches []branch
	Folded   string // what is there and not drawn; "" for nothing
	Loose    bool   // the branches are devices of which no tree is known
}

// A branch is one line of the tree: a bridge, the wire down from it, and either the devices at its
// end or a switch that fans out.
type branch struct {
	Bridge *bridgeBox // nil where devices stand on the root bus
	Wire   wire       // from the bridge, or from the trunk, to what follows
	Cards  []card     // the functions of one device
	Switch *bridgeBox // the last bridge of a chain that fans out, where it is not Bridge itself
	Fan    []branch   // below Switch, or else below Bridge
}

// A bridgeBox is a bridge, or a chain of bridges in which each has one child.
type bridgeBox struct {
	Text  string // "40:01.1", "40:01.1 +2"
	Full  string
	Marks []mark
}

// A wire is a PCI Express link.
type wire struct {
	GBps   float64 // one way; 0 where it is not known
	Now    string  // "Gen4 x16"; "" where it is not known
	Most   string  // what the device could do, where that is more
	Full   string
	Warned bool // a finding that is more than a note is about it
}

// known reports whether something is known about the link.
func (w wire) known() bool { return w.Now != "" || w.Most != "" }

// slow reports whether the link is known to be below what the device could do.
func (w wire) slow() bool { return w.Now != "" && w.Most != "" }

// A card is a device's function.
type card struct {
	ID     string // of the GPU, NIC or function
	Kind   string // gpu, nic, disk, screen or other: a class of the style sheet
	Title  string
	Lines  []string
	Strong int // so many of Lines are set in bold: what must not be overlooked
	Full   string
	Marks  []mark

	Name, At string // what Title is made of: "NIC0", "41:00.0"
	Own      string // the line that has names of this device alone
	Members  []card // those that this card stands for, if there are several
	Owners   []int  // with a Placement
}

// placeOf is the node that a device stands on, or unplaced.
func (v *view) placeOf(node *int) int {
	// The kernel says -1 of a device whose firmware does not tell its node.
	if node = v.nodeOf(node); node != nil && *node >= 0 {
		return *node
	}
	return unplaced
}

// shortAddr is the address without its domain where that is 0. lspci prints it so where all are in domain 0.
func (v *view) shortAddr(a topology.PCIAddr) string {
	s := a.String()
	if a.Domain == 0 {
		return s[len("0000:"):]
	}
	return s
}

// forests are the root complexes of each NUMA node, with those devices below them that are worth
// drawing. What cannot be placed is at unplaced.
func (v *view) forests() map[int][]block {
	disks := map[topology.PCIAddr][]*topology.Disk{}
	for i := range v.Host.Storage {
		if d := &v.Host.Storage[i]; d.PCI != nil {
			disks[*d.PCI] = append(disks[*d.PCI], d)
		}
	}
	cards := v.cards(disks)
	nodes := map[int]*nodeForest{}
	forest := func(node *int) *nodeForest {
		id := v.placeOf(node)
		if nodes[id] == nil {
			nodes[id] = &nodeForest{roots: map[string]*trie{}, folded: map[string]*fold{}}
		}
		return nodes[id]
	}
	// In two passes: which bridges stand above something drawn is known only when all of that hangs in its tree.
	for i := range v.Host.PCI {
		d := &v.Host.PCI[i]
		if c, drawn := cards[d.Address]; drawn {
			// What the function itself states counts more than its GPU or NIC, whose node may come from another tool.
			forest(cmp.Or(d.NUMANode, c.node)).add(v, d, c.card)
		}
	}
	for i := range v.Host.PCI {
		d := &v.Host.PCI[i]
		if _, drawn := cards[d.Address]; drawn || v.partOfCard(d, cards) {
			continue
		}
		forest(d.NUMANode).fold(v, d)
	}
	out := map[int][]block{}
	for id, f := range nodes {
		if id == unplaced && len(f.order) == 0 && (len(v.Host.NUMANodes) > 0 || len(nodes) > 1) {
			continue // a room for it alone would say nothing
		}
		if blocks := f.blocks(v); len(blocks) > 0 {
			out[id] = blocks
		}
	}
	v.addLoose(out)
	return out
}

// A placedCard is a card with the node that its GPU or NIC states.
type placedCard struct {
	card
	node *int
}

// partOfCard reports whether a function is shown by the card of another: the audio of a GPU, a virtual function.
func (v *view) partOfCard(d *topology.PCIDevice, cards map[topology.PCIAddr]placedCard) bool {
	if d.PF != nil && cards[*d.PF].ID != "" {
		return true
	}
	// Audio, USB and serial functions of a GPU are on the same card, whatever the number of the GPU's own function.
	first := d.Address
	for f := range uint8(8) {
		first.Function = f
		if c, ok := cards[first]; ok && c.Kind == cardGPU {
			return true
		}
	}
	return false
}

// addLoose adds the GPUs and NICs that are known only by a name, or whose function is not in the tree.
func (v *view) addLoose(out map[int][]block) {
	loose := map[int]*block{}
	add := func(node *int, c card) {
		id := v.placeOf(node)
		loose[id] = cmp.Or(loose[id], &block{Title: "PCI tree not known", Loose: true})
		loose[id].Branches = append(loose[id].Branches, branch{Cards: []card{c}})
	}
	for i := range v.Host.GPUs {
		if g := &v.Host.GPUs[i]; v.device(g.Address) == nil {
			add(g.NUMANode, v.gpuCard(g, nil))
		}
	}
	for _, n := range v.nics {
		if v.device(n.Address) == nil {
			add(n.NUMANode, v.nicCard(n, nil))
		}
	}
	for id, b := range loose {
		out[id] = append(out[id], *b)
	}
}

// A nodeForest is the trees of one NUMA node.
//
// From a Host to its picture there are four steps. cards decides what is worth drawing. A
// nodeForest puts it into tries, by NUMA node and root complex. blocks turns each trie into
// branches, in which a chain of bridges is one line. layout gives these a place.
type nodeForest struct {
	roots  map[string]*trie
	order  []string // of roots with something drawn
	folded map[string]*fold
}

// A trie is a bridge, or a root, with what is drawn below it.
type trie struct {
	bridge *topology.PCIDevice // nil for the root
	kids   []*trie
	leaves []leaf
}

// A leaf is a function that is drawn.
type leaf struct {
	device *topology.PCIDevice
	card   card
}

// A fold counts what is not drawn below a root.
type fold struct{ bridges, functions int }

// add hangs a function into the tree of its root complex, below the bridges above it.
func (f *nodeForest) add(v *view, d *topology.PCIDevice, c card) {
	name := v.tree.RootOf(d.Address)
	at := f.roots[name]
	if at == nil {
		at = &trie{}
		f.roots[name] = at
		f.order = append(f.order, name)
	}
	// Ancestors has the nearest first. The trie is walked from the root down.
	up := v.tree.Ancestors(d.Address)
	for _, bridge := range slices.Backward(up) {
		i := slices.IndexFunc(at.kids, func(k *trie) bool { return k.bridge == bridge })
		if i < 0 {
			i = len(at.kids)
			at.kids = append(at.kids, &trie{bridge: bridge})
		}
		at = at.kids[i]
	}
	at.leaves = append(at.leaves, leaf{d, c})
}

// fold counts a function that is not drawn, unless it is a bridge above one that is.
func (f *nodeForest) fold(v *view, d *topology.PCIDevice) {
	name := v.tree.RootOf(d.Address)
	if d.IsBridge() {
		if root := f.roots[name]; root != nil && root.contains(d) {
			return
		}
	}
	n := f.folded[name]
	if n == nil {
		n = &fold{}
		f.folded[name] = n
	}
	if d.IsBridge() {
		n.bridges++
	} else {
		n.functions++
	}
}

// contains reports whether a bridge is in the tree.
func (t *trie) contains(d *topology.PCIDevice) bool {
	return t.bridge == d || slices.ContainsFunc(t.kids, func(k *trie) bool { return k.contains(d) })
}

// String is "3 bridges, 12 functions".
func (n fold) String() string {
	return joined(", ", counted(n.bridges, "bridge"), counted(n.functions, "function"))
}

// blocks are the roots with something drawn, then one line about the others.
func (f *nodeForest) blocks(v *view) []block {
	var out []block
	for _, name := range f.order {
		of := v.rootBlocks(name, f.roots[name])
		if n := f.folded[name]; n != nil {
			of[len(of)-1].Folded = "+ " + n.String()
			delete(f.folded, name)
		}
		out = append(out, of...)
	}
	var rest fold
	for _, n := range f.folded {
		rest.bridges += n.bridges
		rest.functions += n.functions
	}
	if roots := counted(len(f.folded), "root complex"); roots != "" {
		out = append(out, block{Folded: fmt.Sprintf("+ %s with %s", roots, rest)})
	}
	return out
}

// rootBlocks is the block of a root, or the blocks of what stands below a root that is not known. One trunk for all of
// the latter would say that they have a root in common, so each bridge has a block of its own, and devices without a
// bridge stand beside each other.
func (v *view) rootBlocks(name string, root *trie) []block {
	bridges := lists.Map(root.kids, v.branch)
	leaves := v.leafBranches(root.leaves)
	if name != "" {
		return []block{{Title: "Root complex " + strings.TrimPrefix(name, "pci"), Branches: append(bridges, leaves...)}}
	}
	out := lists.Map(bridges,
		func(b branch) block { return block{Title: "Root complex not known", Branches: []branch{b}} })
	if len(leaves) > 0 {
		out = append(out, block{Title: "PCI tree not known", Branches: leaves, Loose: true})
	}
	return out
}

// branch makes the lines of a bridge. A chain of bridges, each with one child, is one line.
func (v *view) branch(t *trie) branch {
	chain := []*topology.PCIDevice{t.bridge}
	// Such a chain is one way with several names on it: a line for each bridge would make the tree deep and tell
	// nothing.
	for len(t.kids) == 1 && len(t.leaves) == 0 {
		t = t.kids[0]
		chain = append(chain, t.bridge)
	}
	leaves := v.leafBranches(t.leaves)
	if len(t.kids) == 0 && len(leaves) == 1 {
		b := leaves[0]
		b.Bridge = v.bridgeBox(chain)
		if !b.Wire.known() {
			// The other end of the same link.
			b.Wire = newWire(t.bridge.Link)
		}
		b.warn()
		return b
	}
	// What fans out is a switch. Of a chain the last bridge is its upstream port, and the link is the one above that.
	b := branch{Bridge: v.bridgeBox(chain[:1])}
	if last := len(chain) - 1; last > 0 {
		b.Bridge = v.bridgeBox(chain[:last])
		b.Switch = v.bridgeBox(chain[last:])
		b.Switch.Text = "switch " + b.Switch.Text
		b.Wire = newWire(chain[last].Link)
	}
	b.warn()
	b.Fan = append(b.Fan, lists.Map(t.kids, v.branch)...)
	b.Fan = append(b.Fan, leaves...)
	return b
}

// bridgeBox is the box of a chain of bridges, the first of which is the nearest to the root.
func (v *view) bridgeBox(chain []*topology.PCIDevice) *bridgeBox {
	// The domain is that of the root complex, which the block is named after.
	b := &bridgeBox{Text: chain[0].Address.String()}
	if _, short, ok := strings.Cut(b.Text, ":"); ok {
		b.Text = short
	}
	if len(chain) > 1 {
		b.Text += " +" + strconv.Itoa(len(chain)-1)
	}
	var full []string
	for _, d := range chain {
		s := d.Address.String()
		if d.Bridge != nil && d.Bridge.Port != "" {
			s += " " + d.Bridge.Port
		}
		full = append(full, joined(" ", s, modelText(d.DeviceName, d)))
		b.Marks = append(b.Marks, v.marks(d.Address.String())...)
	}
	b.Full = strings.Join(full, ", then ")
	return b
}

// leafBranches are the functions below one bridge, those of one device together.
func (v *view) leafBranches(leaves []leaf) []branch {
	var out []branch
	for i, l := range leaves {
		// Virtual functions here are those whose physical function is elsewhere: each is a device of its own to who
		// uses it.
		if i > 0 && leaves[i-1].device.Address.SameDevice(l.device.Address) && leaves[i-1].device.PF == nil &&
			l.device.PF == nil {
			b := &out[len(out)-1]
			b.Cards = append(b.Cards, l.card)
			continue
		}
		out = append(out, branch{Wire: v.wireOf(l.device), Cards: []card{l.card}})
	}
	for i := range out {
		out[i].warn()
	}
	return out
}

// wireOf is the link that data of a function takes.
func (v *view) wireOf(d *topology.PCIDevice) wire {
	w := newWire(d.Link)
	for i := range v.Host.GPUs {
		// What PCI Express carries says nothing of a GPU that is joined to its processor otherwise.
		if g := &v.Host.GPUs[i]; g.Address != nil && *g.Address == d.Address && g.IsCoherent() {
			c2c := wire{Now: "C2C"}
			if g.C2CGBps != nil {
				c2c.GBps = *g.C2CGBps
			}
			c2c.Full = joined(", ", "NVLink C2C", gbpsText(c2c.GBps), prefixed("beside PCI Express ", w.Full))
			return c2c
		}
	}
	return w
}

// newWire is the link of a function: it runs to the bridge above it.
func newWire(l *topology.Link) wire {
	var w wire
	if l == nil {
		return w
	}
	w.Now, w.Most = linkTexts(l)
	// A link of which only the most is known is drawn as heavy as that: wire.texts says "at most".
	gts, lanes := l.SpeedGTs, l.Width
	if w.Now == "" {
		gts, lanes = l.MaxSpeedGTs, l.MaxWidth
	}
	if gts != nil && lanes != nil {
		w.GBps = topology.LinkGBps(*gts, *lanes)
	}
	w.Full = joined(", ", linkText(l), gbpsText(w.GBps))
	return w
}

// gbpsText is "15.8 GB/s", and nothing for what is not known.
func gbpsText(gbps float64) string {
	if gbps <= 0 {
		return ""
	}
	return strconv.FormatFloat(gbps, 'g', 3, 64) + " GB/s"
}

// warn notes whether a finding is about the link: checks RL001 to RL009 are about links.
func (b *branch) warn() {
	all := lists.Flat(b.Cards, func(c card) []mark { return c.Marks })
	for _, box := range []*bridgeBox{b.Bridge, b.Switch} {
		if box != nil {
			all = append(all, box.Marks...)
		}
	}
	b.Wire.Warned = slices.ContainsFunc(all, func(m mark) bool {
		return m.Severity != finding.Info && strings.HasPrefix(m.ID, "RL00")
	})
}
