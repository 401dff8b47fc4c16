package hostview

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func headPanel(v *view, width int) *picture {
	p := &picture{W: width}
	y := p.paragraph(0, 18, v.heading(), fontHead, "", width, 24, 2) - 6
	for _, fact := range v.facts() {
		y = p.paragraph(0, y, fact, fontPlain, "", width, 17, 4)
	}
	source := ""
	if v.Placement == nil { // with a plan, the facts name the machine
		source = v.source()
	}
	if v.Provenance.Emulated {
		source += " Its devices are emulated."
	}
	p.H = p.paragraph(0, y, strings.TrimSpace(source), fontPlain, "soft", width, 17, 4) - 8
	return p
}

const maxListed = 24

// findingsPanel explains the marks in the picture, which only have IDs.
func (sh sheet) findingsPanel(v *view, width int) *picture {
	p := &picture{W: width}
	if len(v.Findings) == 0 {
		return p
	}
	p.box(rect{0, 0, width, 0}, "panel", 6, "")
	y := 20
	p.text(sh.margin, y, v.summary(), fontTitle, "", width-2*sh.margin)
	groups := families(v.Findings)
	for i, g := range groups {
		y += 18
		if i == maxListed {
			p.text(sh.margin, y, fmt.Sprintf("and %d more", len(groups)-i), fontSmall, "soft", width-2*sh.margin)
			break
		}
		subjects := lists.Map(g.Subjects, subjectText)
		full := drawable(fmt.Sprintf("%s %s: %s. %s Fix: %s", g.ID, subjects[0], g.Title, g.Evidences[0], g.Fix))
		p.Marks = append(p.Marks, markShape{rect{sh.margin, y - 10, markSize, markSize}, g.Severity, full})
		x := sh.margin + markSize + 4
		x += p.text(x, y, g.ID, fontBold, "", 60) + 8
		y = p.paragraph(x, y, some(subjects, 4)+": "+g.Title, fontSmall, "", width-sh.margin-x, 14, 2) - 14
	}
	// The height is known only now.
	p.H = y + 10
	p.Boxes[0].H = p.H
	return p
}

// nvlinkPanel is a bar if every two GPUs have the same links, else a ring with chords.
func (sh sheet) nvlinkPanel(s *scene, width int) *picture {
	var sets []*picture
	for _, set := range s.NVLink {
		// Chords of more than 16 GPUs cannot be made out.
		if set.Uniform || len(set.GPUs) > 16 {
			sets = append(sets, sh.nvlinkBar(set, width))
		} else {
			sets = append(sets, sh.nvlinkRing(set, width))
		}
	}
	if len(sets) == 0 {
		return &picture{W: width}
	}
	return pack(sets, width, 0, func(p *picture, i int, at rect) { p.box(at, "panel", 6, nvlinkText(s.NVLink[i])) })
}

func nvlinkText(set nvlinkSet) string {
	if set.Uniform {
		return fmt.Sprintf("%s between %s: %s between every two", set.Name, some(set.GPUs, 16), set.Classes[0].text())
	}
	var parts []string
	for _, c := range set.Classes {
		pairs := lists.Map(c.Pairs, func(p [2]int) string { return set.GPUs[p[0]] + " and " + set.GPUs[p[1]] })
		parts = append(parts, c.text()+": "+some(pairs, 40))
	}
	return set.Name + " " + strings.Join(parts, "; ")
}

func (sh sheet) nvlinkBar(set nvlinkSet, width int) *picture {
	const chip, high = 62, 24
	inner := width - 2*sh.margin
	perRow := min(len(set.GPUs), max(1, (inner+8)/(chip+8)))
	rows := (len(set.GPUs) + perRow - 1) / perRow
	alike := "not the same between every two; -o matrix has the pairs"
	if set.Uniform {
		alike = set.Classes[0].text() + " between every two"
	}
	label := drawable(set.Name + ": " + alike)
	p := &picture{W: max(perRow*(chip+8)-8, min(inner, fontTitle.Width(label))) + 2*sh.margin}
	y := 20
	p.text(sh.margin, y, label, fontTitle, "", p.W-2*sh.margin)
	y += 10
	for r := range rows {
		row := set.GPUs[r*perRow : min(len(set.GPUs), (r+1)*perRow)]
		bar := y + high + 10
		for i, name := range row {
			x := sh.margin + i*(chip+8)
			p.chip(x, y, chip, high, name)
			p.line("nvlink", 60, "", [2]int{x + chip/2, y + high}, [2]int{x + chip/2, bar})
		}
		p.line("nvlink", 80, nvlinkText(set), [2]int{sh.margin, bar}, [2]int{sh.margin + len(row)*(chip+8) - 8, bar})
		if r > 0 { // joins it to the one above
			p.line("nvlink", 80, "", [2]int{sh.margin, bar - high - 22}, [2]int{sh.margin, bar})
		}
		y = bar + 12
	}
	p.H = y
	return p
}

func (p *picture) chip(x, y, w, h int, name string) {
	p.Tops = append(p.Tops, boxShape{rect{x, y, w, h}, "card gpu", 4, drawable(name)})
	text := fontBold.Fit(drawable(name), w-6)
	p.text(x+(w-fontBold.Width(text))/2, y+h/2+4, text, fontBold, "", w-6)
}

// chord is in tenths of a pixel, by rate, or by links.
func chord(c nvlinkClass) int {
	if c.Rate > 0 {
		return wireWidth(c.Rate)
	}
	return min(100, 15+12*max(c.Links, 1))
}

func (sh sheet) nvlinkRing(set nvlinkSet, width int) *picture {
	const chip, high = 56, 24
	n := len(set.GPUs)
	// An arc of about 107 pixels keeps chips 56 wide apart.
	radius := max(60, n*17)
	// On a narrow sheet, chips may overlap.
	if 2*radius+chip+2*sh.margin > width {
		radius = (width - chip - 2*sh.margin) / 2
	}
	side := 2*radius + chip
	p := &picture{W: side + 2*sh.margin}
	p.text(sh.margin, 20, set.Name, fontTitle, "", side)
	cx, cy := sh.margin+side/2, 30+radius+high/2
	at := make([][2]int, n)
	for i := range n {
		// Clockwise from the top.
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		at[i] = [2]int{cx + int(math.Round(float64(radius)*math.Cos(angle))),
			cy + int(math.Round(float64(radius)*math.Sin(angle)))}
	}
	// Chips hide the ends of chords.
	for _, c := range set.Classes {
		for _, pair := range c.Pairs {
			full := fmt.Sprintf("%s: %s and %s", c.text(), set.GPUs[pair[0]], set.GPUs[pair[1]])
			p.line("nvlink", chord(c), full, at[pair[0]], at[pair[1]])
		}
	}
	for i, name := range set.GPUs {
		p.chip(at[i][0]-chip/2, at[i][1]-high/2, chip, high, name)
	}
	y := cy + radius + high/2 + 20
	for _, c := range set.Classes {
		p.line("nvlink", chord(c), "", [2]int{sh.margin, y - 4}, [2]int{sh.margin + 40, y - 4})
		p.text(sh.margin+48, y, fmt.Sprintf("%s: %s", c.text(), words.Count(len(c.Pairs), "pair")),
			fontSmall, "", side-48)
		y += 16
	}
	p.H = y
	return p
}

type legendBox struct {
	*picture
	x, y int
}

// entry returns the x of the sign.
func (l *legendBox) entry(sign int, words string) int {
	need := sign + 6 + fontSmall.Width(words)
	if l.x > 0 && l.x+need > l.W {
		l.x, l.y = 0, l.y+18
	}
	at := l.x
	l.text(at+sign+6, l.y, words, fontSmall, "soft", l.W-at-sign-6)
	l.x += need + 18
	return at
}

// legendPanel explains only signs in the picture.
func legendPanel(v *view, drawn *picture, width int) *picture {
	l := &legendBox{picture: &picture{W: width}, y: 14}
	classes := drawn.classes()
	for _, k := range []struct{ kind, words string }{{cardGPU, "GPU"}, {cardNIC, "NIC"}, {cardDisk, "storage"},
		{cardScreen, "screen only"}, {cardOther, "other device"}} {
		if classes["band "+k.kind] {
			at := l.entry(12, k.words)
			l.box(rect{at, l.y - 10, 12, 12}, "band "+k.kind, 2, "")
		}
	}
	if classes["stack"] {
		at := l.entry(16, "one card for several that are alike")
		l.box(rect{at + 3, l.y - 8, 13, 12}, "stack", 2, "")
		l.box(rect{at, l.y - 11, 13, 12}, "card", 2, "")
	}
	if classes["bridge"] {
		at := l.entry(24, "root port, bridge or switch; +1: one more below it")
		l.box(rect{at, l.y - 11, 24, 13}, "bridge", 3, "")
	}
	wire := func(class string, gbps float64, words string) {
		at := l.entry(30, words)
		l.line(class, wireWidth(gbps), "", [2]int{at, l.y - 4}, [2]int{at + 30, l.y - 4})
	}
	if classes["wire"] || classes["wire slow"] || classes["wire slow warned"] {
		// Each line is twice as wide as the previous one.
		for _, gbps := range []float64{1, 4, 16, 64} {
			wire("wire", gbps, fmt.Sprintf("%g GB/s", gbps))
		}
	}
	for _, w := range []struct {
		class string
		gbps  float64
		words string
	}{{"wire slow", 8, "below what the device can do"},
		{"wire slow warned", 8, "below what the device can do, with a warning"},
		{"wire dim", 0, "link whose rate is not known"}} {
		if classes[w.class] {
			wire(w.class, w.gbps, w.words)
		}
	}
	if classes["room odd"] {
		at := l.entry(24, "place not known")
		l.box(rect{at, l.y - 11, 24, 13}, "root odd", 3, "")
	}
	l.cells(v, drawn)
	for i, sev := range []finding.Severity{finding.Error, finding.Warning, finding.Info} {
		if slices.ContainsFunc(v.Findings, func(f finding.Finding) bool { return f.Severity.Rank() == i }) {
			at := l.entry(markSize, []string{"error", "warning", "note"}[i])
			l.Marks = append(l.Marks, markShape{rect{at, l.y - 9, markSize, markSize}, sev, ""})
		}
	}
	if len(l.Texts) > 0 {
		l.H = l.y + 6
	}
	return l.picture
}

func (l *legendBox) cells(v *view, drawn *picture) {
	has := func(f func(cellShape) bool) bool { return slices.ContainsFunc(drawn.Cells, f) }
	cell := func(c coreCell, words string, f func(cellShape) bool) {
		if has(f) {
			at := l.entry(14, words)
			l.cell(rect{at, l.y - 11, 14, 14}, nil, c)
		}
	}
	efficient := func(c cellShape) bool { return c.Efficient }
	at := v.Placement
	if at == nil {
		plain := "core"
		if len(v.Host.Cores) == 0 {
			plain = "CPU"
		}
		if drawn.classes()["cache"] {
			plain += "; a frame is an L3 cache"
		}
		cell(coreCell{Threads: 1}, plain, func(cellShape) bool { return true })
		cell(coreCell{Threads: 2}, "core with two threads", func(c cellShape) bool { return c.Threads > 1 })
		cell(coreCell{Threads: 1, Efficient: true}, "efficiency core", efficient)
		cell(coreCell{Threads: 1, Isolated: true}, "isolated", func(c cellShape) bool { return c.Isolated })
		return
	}
	for i, o := range at.Owners {
		if o.Role != RoleGuest && has(func(c cellShape) bool { return slices.Contains(c.Owners, i) }) {
			l.swatch(at, i, l.entry(14, o.Name), l.y-11)
		}
	}
	if len(at.Owners) > 0 {
		l.swatch(at, 0, l.entry(14, "lab node: its colour and letter; a frame is an L3 cache"), l.y-11)
	}
	if slices.ContainsFunc(drawn.Boxes, func(b boxShape) bool { return strings.HasPrefix(b.Class, "share ") }) {
		left := l.entry(24, "memory, by owner")
		l.box(rect{left, l.y - 11, 24, 12}, "cache", 2, "")
		l.box(rect{left, l.y - 11, 10, 12}, "share k0", 2, "")
	}
	cell(coreCell{Threads: 1, Efficient: true}, "efficiency core", efficient)
}

func (p *picture) classes() map[string]bool {
	all := lists.SetOf(p.Boxes, func(b boxShape) string { return b.Class })
	for _, l := range p.Lines {
		all[l.Class] = true
	}
	return all
}

type nvlinkSet struct {
	Name    string   // "XGMI" for AMD GPUs, which NCCL's files also call NVLink
	IDs     []string // GPU IDs in Host order
	GPUs    []string // GPU names
	Classes []nvlinkClass
	Uniform bool // every two GPUs have the same links
}

type nvlinkClass struct {
	Label string // such as NV18
	Links int
	Rate  float64  // all links, one way, in GB/s; 0 if unknown
	Pairs [][2]int // indexes into GPUs
}

// nvlinkRates are GB/s of one NVLink one way, from NVIDIA's data sheets. The first match counts; a name that contains
// another, such as H200 and H20, has the same rate.
var nvlinkRates = []struct {
	model string
	rate  float64
}{{"P100", 20}, {"B100", 50}, {"B200", 50}, {"B300", 50}, {"V100", 25}, {"A100", 25}, {"A800", 25}, {"A30", 25},
	{"H100", 25}, {"H800", 25}, {"H20", 25}, {"GH200", 25}}

// nvlinkRate is 0 if unknown.
func (v *view) nvlinkRate(g *topology.GPU) float64 {
	model := modelText(g.Model, v.device(g.Address))
	for _, r := range nvlinkRates {
		if strings.Contains(model, r.model) {
			return r.rate
		}
	}
	return 0
}

func (c nvlinkClass) text() string { return joined(", ", c.Label, gbpsText(c.Rate)) }

func (v *view) isAMD(g *topology.GPU) bool {
	d := v.device(g.Address)
	return d != nil && d.Vendor != nil && *d.Vendor == topology.VendorAMD || strings.HasPrefix(g.ComputeArch, "gfx")
}

func (v *view) nvlinkSets() []nvlinkSet {
	n := len(v.gpus)
	label := func(i, j int) string {
		if c := v.classes[[2]string{v.gpus[i].ID(), v.gpus[j].ID()}]; strings.HasPrefix(c, "NV") {
			return c
		}
		return ""
	}
	seen := make([]bool, n)
	var out []nvlinkSet
	for first := range n {
		// members grows during the loop.
		members := []int{first}
		for k := 0; k < len(members) && !seen[first]; k++ {
			for j := range n {
				if !slices.Contains(members, j) && label(members[k], j) != "" {
					members = append(members, j)
				}
			}
		}
		if len(members) < 2 {
			continue
		}
		slices.Sort(members)
		set := nvlinkSet{Name: "NVLink"}
		if v.isAMD(v.gpus[first]) {
			set.Name = "XGMI"
		}
		pairs := map[string][][2]int{}
		for a, m := range members {
			seen[m] = true
			set.IDs = append(set.IDs, v.gpus[m].ID())
			set.GPUs = append(set.GPUs, v.names[v.gpus[m].ID()])
			for b := a + 1; b < len(members); b++ {
				if l := label(m, members[b]); l != "" {
					pairs[l] = append(pairs[l], [2]int{a, b})
				}
			}
		}
		for l, p := range pairs {
			c := nvlinkClass{Label: l, Pairs: p}
			fmt.Sscanf(l, "NV%d", &c.Links) // 0 without a count
			c.Rate = float64(c.Links) * v.nvlinkRate(v.gpus[first])
			set.Classes = append(set.Classes, c)
		}
		slices.SortFunc(set.Classes, func(a, b nvlinkClass) int {
			return cmp.Or(b.Links-a.Links, strings.Compare(a.Label, b.Label))
		})
		set.Uniform = len(set.Classes) == 1 && len(set.Classes[0].Pairs) == len(members)*(len(members)-1)/2
		out = append(out, set)
	}
	return out
}
