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

// A Placement assigns the host's cores, memory and devices to owners. A Document with one shows them, and its Findings
// are about it.
type Placement struct {
	Heading string
	Result  string // for the title of the page
	Facts   []string
	Owners  []Owner // lab nodes first
	// Nodes is by NUMA node.
	Nodes   map[int]NodeShare
	Devices map[string][]int // by ID of the function; indexes into Owners
	Cables  []Cable
	Tables  []Table
}

// An Owner has a part of the host.
type Owner struct {
	Name  string
	Role  Role
	CPUs  topology.CPUSet
	Lines []string // in its room, for lab nodes
	Nodes []GuestNode
	Paths []GuestPath
}

// A Role is the kind of an owner, and a CSS class.
type Role string

// Roles of owners.
const (
	RoleGuest    Role = "guest"    // a lab node
	RoleHost     Role = "host"     // the host itself
	RoleEmulator Role = "emulator" // and I/O threads of lab nodes
	RoleTenant   Role = "tenant"   // other virtual machines
	RoleFree     Role = "free"
)

// A NodeShare is the part of each owner in a NUMA node.
type NodeShare struct {
	Bytes map[int]uint64 // by index into Owners
	Lines []string
}

// A Table is a table of the page.
type Table struct {
	Title   string
	Columns []show.Column
	Rows    [][]string
}

// sign tells owners of one colour apart, also in black and white. Lab nodes have capital letters and then numbers,
// others the initial of their role.
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

// guestColors is the most that can be told apart.
const guestColors = 5

// class returns k0 to k4 for lab nodes; further ones reuse these with other signs.
func (p *Placement) class(owner int) string {
	if role := p.Owners[owner].Role; role != RoleGuest {
		return string(role)
	}
	return "k" + strconv.Itoa(owner%guestColors)
}

// ownersOf counts an idle sibling for the owner of its core.
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

type holding struct {
	owner int
	text  string
	bytes uint64
}

func (v *view) share(r *room, n *topology.NUMANode) {
	share := v.Placement.Nodes[n.ID]
	// The other lines describe the host without a plan.
	r.Lines = append(r.Lines[:min(1, len(r.Lines))], share.Lines...)
	if n.MemoryBytes != nil {
		r.Memory = *n.MemoryBytes
	}
	for i, o := range v.Placement.Owners {
		cpus := o.CPUs.Intersect(n.CPUs)
		bytes := share.Bytes[i]
		// Owners on other nodes would fill every room.
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

func (p *picture) swatch(at *Placement, owner, x, y int) int {
	p.cell(rect{x, y, 14, 14}, at, coreCell{Threads: 1, Owners: []int{owner}})
	return 20
}

// holdings returns the y of the lower end.
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
		// The parts may add up to more than the memory.
		if wide := min(int(float64(width)*float64(h.bytes)/float64(r.Memory)), x+width-from); wide > 0 {
			p.box(rect{from, y, wide, 12}, "share "+at.class(h.owner), 2, at.Owners[h.owner].Name+": "+
				words.Size(h.bytes))
			from += wide
		}
	}
	return y + 18
}

func (p *Placement) guests() int {
	if p == nil {
		return 0
	}
	return lists.Count(p.Owners, func(o Owner) bool { return o.Role == RoleGuest })
}

// maxGuests are fully described; further lab nodes have only their first line.
const maxGuests = 24

func (sh sheet) guestsPanel(v *view, width int) *picture {
	at := v.Placement
	if at == nil {
		return &picture{}
	}
	inner := width - 2*sh.margin
	// Narrow boxes let more lab nodes stand in a row.
	switch {
	case width >= 2*sh.column && at.drawsGuests():
		inner = min(sh.column*3/2, (width-gap)/2-2*sh.margin)
	case width >= 2*sh.column:
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
		if guests <= maxGuests && len(o.Nodes) > 0 {
			p.H = p.guestNodes(&at.Owners[i], sh.margin, y-8, inner) + 6
		}
		rooms = append(rooms, p)
	}
	return pack(rooms, width, 0, func(p *picture, _ int, r rect) { p.box(r, "panel", 6, "") })
}

// placementPage completes the heading "Cross-node placements" with Calm if there are no findings.
func (v *view) placementPage() page {
	p := page{Head: show.NewHead(show.Base+pictureCSS+pageCSS, ""), Heading: v.heading(),
		Result: v.Placement.Result, Facts: v.facts(),
		Emulated: v.Provenance.Emulated, Summary: v.summary(), Calm: "None.", Pictures: v.pictures()}
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

func (v *view) summary() string {
	head := "Findings: "
	if v.Placement != nil {
		head = "Cross-node placements: "
	}
	return head + findingsText(v.Findings)
}

func (v *view) describePlacement() string {
	return fmt.Sprintf("Lab nodes and NUMA nodes as rooms, with the owner of each core, of memory and of devices: %s. "+
		"Tables below the picture on the page, and -o table, say the same.", findingsText(v.Findings))
}
