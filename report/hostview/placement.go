package hostview

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
)

// A Placement says who has what of a host. A Document with one draws it: the owners, and in the picture of the host the
// cores, memory and devices of each. The Findings of the Document are then those of the placement.
type Placement struct {
	Heading string
	Facts   []string
	Owners  []Owner // lab nodes first
	// Nodes has memory and remarks by NUMA node.
	Nodes   map[int]NodeShare
	Devices map[string][]int // owners of a function, by its ID in the host; places in Owners
	Tables  []Table          // the same for those who cannot see the picture, and what else the page has
}

// An Owner has a part of the host.
type Owner struct {
	Name  string
	Role  Role
	CPUs  topology.CPUSet
	Lines []string // of its room, for lab nodes
}

// A Role says what an owner is. It is the class of its colour, too.
type Role string

// The roles of owners.
const (
	RoleGuest    Role = "guest"    // a lab node
	RoleHost     Role = "host"     // the host itself
	RoleEmulator Role = "emulator" // emulator and I/O threads of lab nodes
	RoleTenant   Role = "tenant"   // virtual machines that were there before
	RoleFree     Role = "free"
)

// A NodeShare is a NUMA node, shared out.
type NodeShare struct {
	Bytes map[int]uint64 // memory of owners, by their places in Owners
	Lines []string
}

// A Table is a table of the page.
type Table struct {
	Title   string
	Columns []show.Column
	Rows    [][]string
}

// sign is the letter of an owner. Owners of one colour differ in it, and a copy in black and white has it. Lab nodes
// have capitals, then numbers. The others have the small letter that their role begins with.
func (p *Placement) sign(owner int) string {
	switch role := p.Owners[owner].Role; {
	case role == RoleFree:
		return ""
	case role != RoleGuest:
		return string(role[0])
	case owner < 26:
		return string(rune('A' + owner))
	}
	return strconv.Itoa(owner + 1)
}

// guestColors is how many colours there are for lab nodes: more could not be told apart.
const guestColors = 5

// class is the class of an owner's colour. The style sheet has the colours k0 to k4; lab nodes beyond them have one for
// a second time, with another sign.
func (p *Placement) class(owner int) string {
	if role := p.Owners[owner].Role; role != RoleGuest {
		return string(role)
	}
	return "k" + strconv.Itoa(owner%guestColors)
}

// ownersOf are the owners of the threads of a core. Threads without an owner are left out: siblings that stay idle are
// with who has the core.
func (p *Placement) ownersOf(cpus topology.CPUSet) []int {
	if p == nil {
		return nil
	}
	var out []int
	for c := range cpus.All() {
		if i := slices.IndexFunc(p.Owners, func(o Owner) bool { return o.CPUs.Contains(c) }); i >= 0 {
			out = append(out, i)
		}
	}
	return out
}

// A holding is what an owner has in a room.
type holding struct {
	owner int
	text  string
	bytes uint64
}

// share puts what the placement says of a NUMA node into its room.
func (v *view) share(r *room, n *topology.NUMANode) {
	share := v.Placement.Nodes[n.ID]
	// The first line, cores and memory, stays. The others are of the host without a plan, such as what is free.
	r.Lines = append(r.Lines[:min(1, len(r.Lines))], share.Lines...)
	if n.MemoryBytes != nil {
		r.Memory = *n.MemoryBytes
	}
	for i, o := range v.Placement.Owners {
		cpus := o.CPUs.Intersect(n.CPUs)
		bytes := share.Bytes[i]
		// Owners of other nodes would fill every room with lines that say nothing of it.
		if cpus.IsEmpty() && bytes == 0 {
			continue
		}
		text := o.Name
		if !cpus.IsEmpty() {
			text += ": " + joined(", ", v.coresText(cpus), "CPUs "+cpusText(cpus, 40))
		}
		if bytes > 0 {
			text = joined(" · ", text, words.Size(bytes))
		}
		r.Holdings = append(r.Holdings, holding{i, text, bytes})
	}
}

// swatch draws the sign of an owner and returns how wide it is.
func (p *picture) swatch(at *Placement, owner, x, y int) int {
	p.cell(rect{x, y, 14, 14}, at, coreCell{Threads: 1, Owners: []int{owner}})
	return 20
}

// holdings draws what owners have in a room, and a bar of its memory, and returns where they end.
func (p *picture) holdings(at *Placement, r *room, x, y, width int) int {
	for _, h := range r.Holdings {
		left := x + p.swatch(at, h.owner, x, y)
		y = p.paragraph(left, y+11, h.text, fontSmall, "", width-20, 14, 3) - 7
	}
	if r.Memory == 0 || len(r.Holdings) == 0 {
		return y
	}
	p.box(rect{x, y, width, 12}, "cache", 2, "memory: "+words.Size(r.Memory))
	from := x
	for _, h := range r.Holdings {
		// Rounded down and cut at the end, so that parts of a sum that does not add up stay within the bar.
		if wide := min(int(float64(width)*float64(h.bytes)/float64(r.Memory)), x+width-from); wide > 0 {
			p.box(rect{from, y, wide, 12}, "share "+at.class(h.owner), 2, at.Owners[h.owner].Name+": "+
				words.Size(h.bytes))
			from += wide
		}
	}
	return y + 18
}

// guests counts the lab nodes; without a placement there are none.
func (p *Placement) guests() int {
	if p == nil {
		return 0
	}
	return lists.Count(p.Owners, func(o Owner) bool { return o.Role == RoleGuest })
}

// maxGuests is how many lab nodes are described; of more only the first line is shown.
const maxGuests = 24

// guestsPanel shows the lab nodes as rooms.
func (sh sheet) guestsPanel(v *view, width int) *picture {
	at := v.Placement
	if at == nil {
		return &picture{}
	}
	inner := width - 2*sh.margin
	// Lab nodes say less than a root complex: narrower, more of them stand in a row.
	if width >= 2*sh.column {
		inner = sh.column * 5 / 6
	}
	guests := at.guests()
	var rooms []*picture
	for i, o := range at.Owners {
		if o.Role != RoleGuest {
			continue
		}
		p := &picture{W: inner + 2*sh.margin}
		left := sh.margin + p.swatch(at, i, sh.margin, sh.margin-1)
		if p.text(left, sh.margin+10, o.Name, fontTitle, "", inner-20) > 0 {
			p.anchor("lab-node-"+at.sign(i), "")
		}
		y := sh.margin + 27
		for k, l := range o.Lines {
			if guests <= maxGuests || k == 0 {
				y = p.paragraph(sh.margin, y, l, fontSmall, "", inner, 15, 8)
			}
		}
		p.H = y - 4
		rooms = append(rooms, p)
	}
	return pack(rooms, width, 0, func(p *picture, _ int, r rect) { p.box(r, "panel", 6, "") })
}

// placementPage is the page of a placement: its tables in place of those of the host. Calm completes the heading "What
// crosses NUMA nodes" where nothing does.
func (v *view) placementPage() page {
	p := page{Head: show.NewHead(show.Base+pictureCSS+pageCSS, ""), Heading: v.heading(), Facts: v.facts(),
		Emulated: v.Provenance.Emulated, Summary: v.summary(), Calm: "Nothing does.", Pictures: v.pictures()}
	p.Findings = append(p.Findings, lists.Map(grouped(v.Findings), newPageFinding)...)
	for _, t := range v.Placement.Tables {
		g := grid{Title: t.Title}
		for _, c := range t.Columns {
			g.Heads = append(g.Heads, head{Name: c.Name, Right: c.Right})
		}
		g.Rows = append(g.Rows, lists.Map(t.Rows, func(r []string) []cell { return cells(r...) })...)
		p.Grids = append(p.Grids, newPageGrid(g))
	}
	return p
}

// summary is the heading of the findings.
func (v *view) summary() string {
	head := "Findings: "
	if v.Placement != nil {
		head = "What crosses NUMA nodes: "
	}
	return head + findingsText(v.Findings)
}

// describePlacement is the picture in one sentence.
func (v *view) describePlacement() string {
	return fmt.Sprintf("Lab nodes and NUMA nodes as rooms, with the owner of each core, of memory and of devices: %s. "+
		"Tables below the picture on the page, and -o table, say the same.", findingsText(v.Findings))
}
