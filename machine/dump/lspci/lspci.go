package lspci

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

// Limits on what is read. A dump of a machine with a thousand functions (-vvxxxx) has some 25 MB.
const (
	maxText    = 64 << 20
	maxDevices = 1 << 14
)

// groupText is how scripts name an IOMMU group.
const groupText = `(?i:IOMMU[ _]?)?(?i:Group):?[ \t]*([0-9]+)[ \t]*[:\-]?(?:[ \t]+\[[^\]\n]*\])*`

// idText is the ID of a function and the mark of one that can be reset, as scripts print them before its address.
const idText = `\[[0-9a-f]{4}:[0-9a-f]{4}\][ \t]+(?:\[R\][ \t]+)?`

// startForm matches how a text of lspci starts: a function, a record for programs, a drawing. Quotes and indentation
// may stand before it.
const startForm = `(?m)^([> \t]*)(?:[*\-]+>?[ \t]+)?(?:` +
	`(?:` + groupText + `[ \t]+)?(?:` + idText + `)?` +
	`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7][0-9a-f:./]* (?:"|Class |[0-9a-f]{4}: |[A-Z0-9][^:\n]*: )|` +
	// Tools that list IOMMU groups leave the colon behind the class out.
	`(?:` + groupText + `[ \t]+|` + idText + `)(?:` + idText + `)?` +
	`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7][ \t]+[A-Z0-9]|` +
	`(?:Slot|Device):[ \t]+(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]|` +
	`(?:-(?:\+-)?|[+\\]-)\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}\]-|` +
	// A piece of a drawing begins anywhere: with a bridge that leads to other buses.
	`[+\\]-[01][0-9a-f]\.[0-7]-\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-)`

var (
	start = lazyregexp.New(startForm)
	// group matches a line of a list of IOMMU groups, as scripts that walk /sys/kernel/iommu_groups
	// print it: a heading above the functions of a group, or the group before each. Between it and
	// the function, scripts print IDs and marks.
	group = lazyregexp.New(`^[*#=\- \t]*` + groupText + `(?:[*#=\- \t]*|[ \t]+(\S.*))$`)
	// function matches the line that starts a function in a list.
	function = lazyregexp.New(`^((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])[ \t]+(\S.*)$`)
	// named matches what names the function of the lines below where grep left only these: a command line that asks
	// for one function, or its address alone, as a loop over functions prints it.
	named = lazyregexp.New(`(?m)^(?:.*\blspci\b.* -\w*s[ \t]*|[> \t]*)` +
		`((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7])(?::?[ \t]*\r?$|[ \t].*\blspci\b|[ \t]*[|>])`)
	aLink = lazyregexp.New(`(?m)^[> \t]*Lnk(?:Cap|Sta):[ \t]+(?:Port #\d+, )?Speed `)
	// path matches one with the bridges above (-PP): "00:01.0/01:00.0 VGA compatible controller: ...".
	path = lazyregexp.New(`^((?:[0-9a-f]{4,8}:)?)` +
		`([0-9a-f]{2}:[01][0-9a-f]\.[0-7](?:/[0-9a-f]{2}:[01][0-9a-f]\.[0-7])+)[ \t]+(\S.*)$`)
	// almost matches a line that looks like one and is not.
	almost = lazyregexp.New(`^[0-9a-fA-F]{1,8}:[0-9a-fA-F:./]*\.[0-9a-fA-F]+[ \t]`)
	// record matches a line of a record for programs.
	record = lazyregexp.New(
		`^(Slot|Class|Vendor|Device|SVendor|SDevice|PhySlot|Rev|ProgIf|Driver|Module|NUMANode|IOMMUGroup)` +
			`:[ \t]+(\S.*)$`)
	dump  = lazyregexp.New(`^([0-9a-f]{2,3}):((?: [0-9a-f]{2}){1,16})$`)
	drawn = lazyregexp.New(`^(?:-(?:\+-)?\[|[ |]*[+\\]-)`)
)

// Line matches a line with which a text of lspci in a longer text begins, without indentation: those by which Sniff
// tells a text, and the heading of an IOMMU group.
var Line = lazyregexp.New(startForm + `|^(?i:IOMMU group) \d+:?$`)

// Sniff reports whether head, the start of a text, looks like lspci's.
func Sniff(head []byte) bool { return start.Match(head) || aLink.Match(head) }

// Parse reads the text in b. name is what messages and the provenance call it. The error is an *Error.
func Parse(b []byte, name string) (*topology.Host, error) {
	h, err := parse(b, name)
	return where.Finish(h, err, name)
}

// A device is a function while it is being read.
type device struct {
	topology.PCIDevice
	line    int
	section string // the capability that the lines are in

	listsCapabilities bool // and they could be read
	drawn             bool // it is in a drawing, so its place is known
	tellsBuses        bool // it is a bridge, and its buses are stated, if only to say that there are none
	nextBAR           int  // the lowest number that the next BAR without one can have
	config            []byte
	vfsOff            bool // virtual functions are not enabled, whatever their number
}

// A parser collects the functions of a text.
type parser struct {
	h        *topology.Host
	devices  map[topology.PCIAddr]*device
	current  *device // that detail lines belong to
	inRecord bool    // current is of records for programs
	group    *int    // IOMMU group whose functions a list names

	notes   where.Notes
	drawing drawing

	paths      bool // a path from a root bus was seen (-PP): what has none stands on one
	anyDriver  bool // a line on a driver or module was seen: those without one have none
	strayLink  int  // line of the first link that is of no function
	denied     int  // functions whose capabilities could not be read
	deniedLine int  // the first of them
}

func parse(b []byte, name string) (*topology.Host, error) {
	if len(b) > maxText {
		return nil, where.At(0, "text of %d bytes: at most %d are taken", len(b), maxText)
	}
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceLspci, Name: name, Tool: "lspci"}}
	p := &parser{h: h, devices: map[topology.PCIAddr]*device{},
		notes: where.Notes{Host: h, File: cmp.Or(name, "lspci")}}
	// Text that was quoted in a mail or indented in a report has the same characters before each line.
	// The first line that is surely lspci's shows which.
	text := string(b)
	prefix := ""
	if m := start.FindStringSubmatch(text); m != nil {
		prefix = m[1]
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimRight(strings.TrimPrefix(line, prefix), " \t\r")
		if err := p.line(line, n); err != nil {
			return nil, err
		}
		if len(p.devices) > maxDevices {
			return nil, where.At(n, "more than %d functions", maxDevices)
		}
	}
	if len(p.devices) == 0 && p.strayLink > 0 {
		return nil, where.At(p.strayLink, "%s; copy the line with the address above it as well", strayText)
	}
	if len(p.devices) == 0 {
		return nil, where.At(0, "no PCI function found; want the output of lspci -vvnn, of lspci -tv or of "+
			"lspci -vmmkn")
	}
	p.finish()
	return p.h, nil
}

// line reads one line, without what all lines have at their start.
func (p *parser) line(line string, n int) error {
	// The order of the questions matters: a line of a drawing may begin with a space, as details do.
	// A line of a function's details, "IOMMU group: 12", is no heading, unless there have been headings.
	if m := heading(line); m != nil && (p.current == nil || p.group != nil || m[2] != "") {
		p.current = nil
		p.group = p.number("IOMMU group", m[1], n)
		if m[2] == "" {
			return nil
		}
		line = withID(m[2], strings.TrimSuffix(line, m[2]))
	} else if p.group != nil {
		line = unmarked(line)
	}
	switch {
	case line == "":
		p.current, p.inRecord, p.group = nil, false, nil
		return nil
	case strings.IndexByte("-+\\ |", line[0]) >= 0 && drawn.MatchString(line):
		p.current = nil
		return p.draw(line, n)
	case line[0] == ' ' || line[0] == '\t':
		p.detail(strings.TrimSpace(line), n)
		return nil
	}
	if m := dump.FindStringSubmatch(line); m != nil {
		p.hex(m[1], m[2])
		return nil
	}
	if m := function.FindStringSubmatch(line); m != nil {
		return p.header(m[1], m[2], n)
	}
	if m := named.FindStringSubmatch(line); m != nil {
		d, err := p.at(m[1], n)
		p.current, p.inRecord = d, false
		return err
	}
	if m := path.FindStringSubmatch(line); m != nil {
		return p.path(m[1], strings.Split(m[2], "/"), m[3], n)
	}
	if m := record.FindStringSubmatch(line); m != nil {
		// "Device:" is a device's name, or in the older records (-vm) the address.
		if p.inRecord || m[1] == "Slot" || m[1] == "Device" && function.MatchString(m[2]+" x") {
			return p.record(m[1], m[2], n)
		}
	}
	if almost.MatchString(line) && p.current == nil {
		address, _, _ := strings.Cut(line, " ")
		return p.badAddress(address, n)
	}
	// Web pages take indentation away. What is no detail is not known to detail, so other text does no harm.
	p.detail(line, n)
	return nil
}

// heading matches a line of a list of IOMMU groups. Most lines have no such word, and no expression is needed for them.
func heading(line string) []string {
	if !strings.Contains(line, "roup") && !strings.Contains(line, "ROUP") {
		return nil
	}
	return group.FindStringSubmatch(line)
}

// unmarked returns the line of a function below the heading of its group without indentation, IDs
// and marks: "\t[10de:1b80] [R] 04:00.0 VGA compatible controller: ...". Other lines stay as they
// are.
func unmarked(line string) string {
	rest := strings.TrimLeft(line, " \t*->")
	for strings.HasPrefix(rest, "[") {
		_, after, ok := strings.Cut(rest, "]")
		if !ok {
			return line
		}
		rest = strings.TrimLeft(after, " \t")
	}
	if function.MatchString(rest) {
		return withID(rest, strings.TrimSuffix(line, rest))
	}
	return line
}

// shownID matches the ID of a function.
var shownID = lazyregexp.New(`\[[0-9a-f]{4}:[0-9a-f]{4}\]`)

// withID returns the line of a function with the ID that stands before it at its end, where lspci has it.
func withID(line, before string) string {
	if ids := shownID.FindAllString(before, 1); ids != nil && !shownID.MatchString(line) {
		return line + " " + ids[0]
	}
	return line
}

// badAddress explains an address that cannot be read.
func (p *parser) badAddress(s string, n int) error {
	if strings.Contains(s, "/") {
		return where.At(n, "%q is a path without buses (lspci -P); run lspci with -PP, or without", where.Clip(s))
	}
	if _, err := topology.ParsePCIAddr(s); err != nil {
		return where.At(n, "%v", err)
	}
	return where.At(n, "%q is not followed by a class and a name", where.Clip(s))
}

// path reads a function whose bridges are stated, from the root bus down.
func (p *parser) path(domain string, steps []string, rest string, n int) error {
	p.paths = true
	var above *topology.PCIAddr
	for _, step := range steps {
		d, err := p.at(domain+step, n)
		if err != nil {
			return err
		}
		switch {
		case d.drawn:
		case above == nil:
			d.drawn, d.Root = true, pci.RootName(d.Address)
		case above.Bus >= d.Address.Bus:
			return where.At(n, "%s cannot be behind %s: numbers of buses rise on the way down", d.Address, above)
		default:
			d.drawn, d.Parent = true, above
		}
		above = new(d.Address)
	}
	return p.header(domain+steps[len(steps)-1], rest, n)
}

// at returns the function at an address, which may have been seen before: in a drawing, or in a
// shorter list in the same text.
func (p *parser) at(address string, n int) (*device, error) {
	a, err := topology.ParsePCIAddr(address)
	if err != nil {
		return nil, where.At(n, "%v", err)
	}
	return p.function(a, n), nil
}

func (p *parser) function(a topology.PCIAddr, n int) *device {
	// A text may describe a function in several parts, such as a drawing and a list. Their facts add up,
	// but capabilities and BARs are counted again in each.
	d := p.devices[a]
	if d == nil {
		d = &device{line: n}
		d.Address = a
		p.devices[a] = d
	}
	d.section, d.nextBAR = "", 0
	return d
}

// finish makes the Host of what was collected.
func (p *parser) finish() {
	if p.denied > 0 {
		p.notes.Note(p.deniedLine, "capabilities of %d functions: access denied; run lspci as root", p.denied)
	}
	// Whatever depends on other functions waits until all are known: what is above a function, and whether
	// a missing driver means that there is none.
	order := slices.SortedFunc(maps.Keys(p.devices), topology.PCIAddr.Compare)
	found := make([]*device, 0, len(order))
	for _, a := range order {
		d := p.devices[a]
		d.readConfig()
		pci.Name(&d.PCIDevice)
		if d.IsBridge() && d.Bridge == nil {
			d.Bridge = &topology.Bridge{} // its buses are not known
		}
		if d.Bridge != nil && d.Bridge.Port == "" && d.listsCapabilities {
			d.Bridge.Port = pci.PortBridge // all capabilities are known, and PCI Express is not among them
		}
		if p.anyDriver {
			d.DriverKnown = true
		}
		slices.SortFunc(d.BARs, func(a, b topology.BAR) int { return cmp.Compare(a.Index, b.Index) })
		if s := d.SRIOV; s != nil {
			if d.vfsOff {
				s.Enabled = new(0)
			}
			s.VFs = pci.VirtualFunctions(d.Address, s)
		}
		found = append(found, d)
	}
	p.place(found)
	for _, d := range found {
		if d.drawn && d.Class == nil {
			p.guess(d)
		}
		p.h.PCI = append(p.h.PCI, d.PCIDevice)
	}
}

// place finds what is above the functions that no drawing or path has placed.
//
// Bus 0 is always a root bus. Another bus is one if the bridges of its domain are there and none of
// them leads to it; where they are not, as in plain lists and lists of single functions, it is not
// known what is above, unless the text states paths.
func (p *parser) place(found []*device) {
	// The domains with a bridge that leads somewhere, and those with one that does not tell.
	leads, unknown := map[uint32]bool{}, map[uint32]bool{}
	all := make([]*topology.PCIDevice, len(found))
	for i, d := range found {
		all[i] = &d.PCIDevice
		if d.Bridge != nil && d.Bridge.Secondary > 0 {
			leads[d.Address.Domain] = true
		} else if d.IsBridge() && !d.drawn && !d.tellsBuses {
			unknown[d.Address.Domain] = true
		}
	}
	pci.Place(all, func(d *topology.PCIDevice) bool {
		domain := d.Address.Domain
		if d.ParentUnknown { // its bridge was cut off a drawing
			return false
		}
		return d.Address.Bus == 0 || p.paths || leads[domain] && !unknown[domain]
	})
}

// An Error is a text that is not of lspci, or one that cannot be right.
type Error = where.Error
