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

const unplaced = -1

type block struct {
	Title    string
	Branches []branch
	Folded   string // devices that are not drawn, or ""
	Loose    bool   // devices without a known tree
}

// A branch is one line of the tree: a bridge, its link, and devices or a switch that fans out.
type branch struct {
	Bridge *bridgeBox // nil on the root bus
	Wire   wire
	Cards  []card     // the functions of one device
	Switch *bridgeBox // last bridge of a chain, unless it is Bridge
	Fan    []branch
}

// A bridgeBox may be a chain of bridges with one child each.
type bridgeBox struct {
	Text  string // "40:01.1 +2"
	Full  string
	Marks []mark
}

type wire struct {
	GBps   float64 // one way; 0 if unknown
	Now    string  // "Gen4 x16", or ""
	Most   string  // the device's maximum, if higher
	Full   string
	Warned bool // has a finding worse than a note
}

func (w wire) known() bool { return w.Now != "" || w.Most != "" }

func (w wire) slow() bool { return w.Now != "" && w.Most != "" }

type card struct {
	ID     string
	Kind   string // gpu, nic, disk, screen or other
	Title  string
	Lines  []string
	Strong int // bold Lines, not to be overlooked
	Full   string
	Marks  []mark

	Name, At string // parts of Title: "NIC0", "41:00.0"
	Own      string // names of this device alone
	Members  []card // cards that it stands for
	Owners   []int  // indexes into the Placement's owners
}

func (v *view) placeOf(node *int) int {
	// The kernel reports -1 if the firmware does not tell.
	if node = v.nodeOf(node); node != nil && *node >= 0 {
		return *node
	}
	return unplaced
}

// shortAddr omits domain 0, as lspci does.
func (v *view) shortAddr(a topology.PCIAddr) string {
	s := a.String()
	if a.Domain == 0 {
		return s[len("0000:"):]
	}
	return s
}

// forests puts devices without a known node at unplaced.
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
	// All drawn devices must be in their trees before the bridges above them are known.
	for i := range v.Host.PCI {
		d := &v.Host.PCI[i]
		if c, drawn := cards[d.Address]; drawn {
			// The node of a GPU or NIC may come from another tool.
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

type placedCard struct {
	card
	node *int
}

// partOfCard reports whether another card shows this function, such as a GPU's audio.
func (v *view) partOfCard(d *topology.PCIDevice, cards map[topology.PCIAddr]placedCard) bool {
	if d.PF != nil && cards[*d.PF].ID != "" {
		return true
	}
	// Audio, USB and serial functions belong to the GPU.
	first := d.Address
	for f := range uint8(8) {
		first.Function = f
		if c, ok := cards[first]; ok && c.Kind == cardGPU {
			return true
		}
	}
	return false
}

// addLoose adds GPUs and NICs without a function in the tree.
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

// A nodeForest holds the trees of one NUMA node.
//
// cards selects functions, nodeForest puts them into tries, blocks merges chains of bridges into one line, and layout
// positions the branches.
type nodeForest struct {
	roots  map[string]*trie
	order  []string // roots with a drawn function
	folded map[string]*fold
}

type trie struct {
	bridge *topology.PCIDevice
	kids   []*trie
	leaves []leaf
}

type leaf struct {
	device *topology.PCIDevice
	card   card
}

type fold struct{ bridges, functions int }

func (f *nodeForest) add(v *view, d *topology.PCIDevice, c card) {
	name := v.tree.RootOf(d.Address)
	at := f.roots[name]
	if at == nil {
		at = &trie{}
		f.roots[name] = at
		f.order = append(f.order, name)
	}
	// Ancestors begin at the nearest bridge.
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

func (t *trie) contains(d *topology.PCIDevice) bool {
	return t.bridge == d || slices.ContainsFunc(t.kids, func(k *trie) bool { return k.contains(d) })
}

// String returns text such as "3 bridges, 12 functions".
func (n fold) String() string {
	return joined(", ", counted(n.bridges, "bridge"), counted(n.functions, "function"))
}

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

// rootBlocks makes a block of each bridge below an unknown root: a common trunk would claim a common root.
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

func (v *view) branch(t *trie) branch {
	chain := []*topology.PCIDevice{t.bridge}
	// A line for each bridge would add no information.
	for len(t.kids) == 1 && len(t.leaves) == 0 {
		t = t.kids[0]
		chain = append(chain, t.bridge)
	}
	leaves := v.leafBranches(t.leaves)
	if len(t.kids) == 0 && len(leaves) == 1 {
		b := leaves[0]
		b.Bridge = v.bridgeBox(chain)
		if !b.Wire.known() {
			b.Wire = newWire(t.bridge)
		}
		b.warn()
		return b
	}
	// A bridge that fans out is a switch. The last bridge of a chain is its upstream port.
	b := branch{Bridge: v.bridgeBox(chain[:1])}
	if last := len(chain) - 1; last > 0 {
		b.Bridge = v.bridgeBox(chain[:last])
		b.Switch = v.bridgeBox(chain[last:])
		b.Switch.Text = "switch " + b.Switch.Text
		b.Wire = newWire(chain[last])
	}
	b.warn()
	b.Fan = append(b.Fan, lists.Map(t.kids, v.branch)...)
	b.Fan = append(b.Fan, leaves...)
	return b
}

// bridgeBox takes a chain from the root.
func (v *view) bridgeBox(chain []*topology.PCIDevice) *bridgeBox {
	// The block's title has the domain.
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

// leafBranches puts the functions of one device into one branch.
func (v *view) leafBranches(leaves []leaf) []branch {
	var out []branch
	for i, l := range leaves {
		// A virtual function is a separate device for its user.
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

func (v *view) wireOf(d *topology.PCIDevice) wire {
	w := newWire(d)
	for i := range v.Host.GPUs {
		// A coherent GPU uses NVLink C2C, not PCI Express.
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

func newWire(d *topology.PCIDevice) wire {
	var w wire
	l := d.Link
	switch {
	case l == nil && d.LinkGBps != nil:
		return wire{Now: "PCIe", GBps: *d.LinkGBps, Full: deviceLink(d)}
	case l == nil:
		return w
	}
	w.Now, w.Most = linkTexts(l)
	// wire.texts adds "at most".
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

func gbpsText(gbps float64) string {
	if gbps <= 0 {
		return ""
	}
	return strconv.FormatFloat(gbps, 'g', 3, 64) + " GB/s"
}

// warn marks links with findings RL001 to RL009.
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
