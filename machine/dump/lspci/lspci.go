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

// A dump of a machine with a thousand functions (-vvxxxx) has some 25 MB.
const (
	maxText    = 64 << 20
	maxDevices = 1 << 14
)

const groupText = `(?i:IOMMU[ _]?)?(?i:Group):?[ \t]*([0-9]+)[ \t]*[:\-]?(?:[ \t]+\[[^\]\n]*\])*`

// idText matches the ID and the mark of a resettable function, which scripts print before the address.
const idText = `\[[0-9a-f]{4}:[0-9a-f]{4}\][ \t]+(?:\[R\][ \t]+)?`

// startForm matches the start of a text of lspci, possibly after quotes and indentation.
const startForm = `(?m)^([> \t]*)(?:[*\-]+>?[ \t]+)?(?:` +
	`(?:` + groupText + `[ \t]+)?(?:` + idText + `)?` +
	`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7][0-9a-f:./]* (?:"|Class |[0-9a-f]{4}: |[A-Z0-9][^:\n]*: )|` +
	// Tools that list IOMMU groups omit the colon after the class.
	`(?:` + groupText + `[ \t]+|` + idText + `)(?:` + idText + `)?` +
	`(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7][ \t]+[A-Z0-9]|` +
	`(?:Slot|Device):[ \t]+(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]|` +
	`(?:-(?:\+-)?|[+\\]-)\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}\]-|` +
	// A cut-out piece of a drawing begins with a bridge that leads to other buses.
	`[+\\]-[01][0-9a-f]\.[0-7]-\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-)`

var (
	start = lazyregexp.New(startForm)
	// group matches a line of scripts that walk /sys/kernel/iommu_groups: a heading above the functions of a group, or
	// the group before each function.
	group    = lazyregexp.New(`^[*#=\- \t]*` + groupText + `(?:[*#=\- \t]*|[ \t]+(\S.*))$`)
	function = lazyregexp.New(`^((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])[ \t]+(\S.*)$`)
	// named matches the command line or the address that names the function of the lines below, in text filtered by
	// grep.
	named = lazyregexp.New(`(?m)^(?:.*\blspci\b.* -\w*s[ \t]*|[> \t]*)` +
		`((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7])(?::?[ \t]*\r?$|[ \t].*\blspci\b|[ \t]*[|>])`)
	aLink = lazyregexp.New(`(?m)^[> \t]*Lnk(?:Cap|Sta):[ \t]+(?:Port #\d+, )?Speed `)
	// path matches "00:01.0/01:00.0 VGA compatible controller: ..." (-PP).
	path = lazyregexp.New(`^((?:[0-9a-f]{4,8}:)?)` +
		`([0-9a-f]{2}:[01][0-9a-f]\.[0-7](?:/[0-9a-f]{2}:[01][0-9a-f]\.[0-7])+)[ \t]+(\S.*)$`)
	almost = lazyregexp.New(`^[0-9a-fA-F]{1,8}:[0-9a-fA-F:./]*\.[0-9a-fA-F]+[ \t]`)
	record = lazyregexp.New(
		`^(Slot|Class|Vendor|Device|SVendor|SDevice|PhySlot|Rev|ProgIf|Driver|Module|NUMANode|IOMMUGroup)` +
			`:[ \t]+(\S.*)$`)
	dump  = lazyregexp.New(`^([0-9a-f]{2,3}):((?: [0-9a-f]{2}){1,16})$`)
	drawn = lazyregexp.New(`^(?:-(?:\+-)?\[|[ |]*[+\\]-)`)
)

// Line matches a line that may begin a text of lspci within a longer text, without indentation.
var Line = lazyregexp.New(startForm + `|^(?i:IOMMU group) \d+:?$`)

// Sniff reports whether head, the start of a text, looks like lspci's.
func Sniff(head []byte) bool { return start().Match(head) || aLink().Match(head) }

// Parse reads the output of lspci. name appears in messages and the provenance; the error is an *Error.
func Parse(b []byte, name string) (*topology.Host, error) {
	h, err := parse(b, name)
	return where.Finish(h, err, name)
}

type device struct {
	topology.PCIDevice
	line    int
	section string // the capability of the following lines

	listsCapabilities bool // the text lists its capabilities, and they were readable
	drawn             bool
	tellsBuses        bool // it is a bridge and the text states its buses, or none
	nextBAR           int  // lowest possible number of the next BAR
	config            []byte
	vfsOff            bool // virtual functions are disabled
}

type parser struct {
	h        *topology.Host
	devices  map[topology.PCIAddr]*device
	current  *device
	inRecord bool
	group    *int

	notes   where.Notes
	drawing drawing

	paths      bool // paths from a root bus were seen (-PP)
	anyDriver  bool
	strayLink  int
	denied     int
	deniedLine int
}

func parse(b []byte, name string) (*topology.Host, error) {
	if len(b) > maxText {
		return nil, where.At(0, "text of %d bytes: at most %d are taken", len(b), maxText)
	}
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceLspci, Name: name, Tool: "lspci"}}
	p := &parser{h: h, devices: map[topology.PCIAddr]*device{},
		notes: where.Notes{Host: h, File: cmp.Or(name, "lspci")}}
	// Quoted or indented text has a common prefix, which the first line that is surely lspci's shows.
	text := string(b)
	prefix := ""
	if m := start().FindStringSubmatch(text); m != nil {
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

func (p *parser) line(line string, n int) error {
	// A line of a drawing may begin with a space, like details. The detail line "IOMMU group: 12" is not a heading,
	// unless there have been headings.
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
	case strings.IndexByte("-+\\ |", line[0]) >= 0 && drawn().MatchString(line):
		p.current = nil
		return p.draw(line, n)
	case line[0] == ' ' || line[0] == '\t':
		p.detail(strings.TrimSpace(line), n)
		return nil
	}
	if m := dump().FindStringSubmatch(line); m != nil {
		p.hex(m[1], m[2])
		return nil
	}
	if m := function().FindStringSubmatch(line); m != nil {
		return p.header(m[1], m[2], n)
	}
	if m := named().FindStringSubmatch(line); m != nil {
		d, err := p.at(m[1], n)
		p.current, p.inRecord = d, false
		return err
	}
	if m := path().FindStringSubmatch(line); m != nil {
		return p.path(m[1], strings.Split(m[2], "/"), m[3], n)
	}
	if m := record().FindStringSubmatch(line); m != nil {
		// "Device:" is a device's name or, in older records (-vm), the address.
		if p.inRecord || m[1] == "Slot" || m[1] == "Device" && function().MatchString(m[2]+" x") {
			return p.record(m[1], m[2], n)
		}
	}
	if almost().MatchString(line) && p.current == nil {
		address, _, _ := strings.Cut(line, " ")
		return p.badAddress(address, n)
	}
	// Web pages remove indentation.
	p.detail(line, n)
	return nil
}

// heading looks for the word first, because a regular expression is slower.
func heading(line string) []string {
	if !strings.Contains(line, "roup") && !strings.Contains(line, "ROUP") {
		return nil
	}
	return group().FindStringSubmatch(line)
}

// unmarked returns the line of a function below a group's heading without indentation, IDs and marks: "\t[10de:1b80]
// [R] 04:00.0 VGA compatible controller: ...".
func unmarked(line string) string {
	rest := strings.TrimLeft(line, " \t*->")
	for strings.HasPrefix(rest, "[") {
		_, after, ok := strings.Cut(rest, "]")
		if !ok {
			return line
		}
		rest = strings.TrimLeft(after, " \t")
	}
	if function().MatchString(rest) {
		return withID(rest, strings.TrimSuffix(line, rest))
	}
	return line
}

var shownID = lazyregexp.New(`\[[0-9a-f]{4}:[0-9a-f]{4}\]`)

func withID(line, before string) string {
	if ids := shownID().FindAllString(before, 1); ids != nil && !shownID().MatchString(line) {
		return line + " " + ids[0]
	}
	return line
}

func (p *parser) badAddress(s string, n int) error {
	if strings.Contains(s, "/") {
		return where.At(n, "%q is a path without buses (lspci -P); run lspci with -PP, or without", where.Clip(s))
	}
	if _, err := topology.ParsePCIAddr(s); err != nil {
		return where.At(n, "%v", err)
	}
	return where.At(n, "%q is not followed by a class and a name", where.Clip(s))
}

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

// at returns the function at an address, which another part of the text may already have added.
func (p *parser) at(address string, n int) (*device, error) {
	a, err := topology.ParsePCIAddr(address)
	if err != nil {
		return nil, where.At(n, "%v", err)
	}
	return p.function(a, n), nil
}

func (p *parser) function(a topology.PCIAddr, n int) *device {
	// Each part of a text lists capabilities and BARs from the start.
	d := p.devices[a]
	if d == nil {
		d = &device{line: n}
		d.Address = a
		p.devices[a] = d
	}
	d.section, d.nextBAR = "", 0
	return d
}

func (p *parser) finish() {
	if p.denied > 0 {
		p.notes.Note(p.deniedLine, "capabilities of %d functions: access denied; run lspci as root", p.denied)
	}
	// The parent of a function, and whether a missing driver line means no driver, depend on all functions.
	order := slices.SortedFunc(maps.Keys(p.devices), topology.PCIAddr.Compare)
	found := make([]*device, 0, len(order))
	for _, a := range order {
		d := p.devices[a]
		d.readConfig()
		pci.Name(&d.PCIDevice)
		if d.IsBridge() && d.Bridge == nil {
			d.Bridge = &topology.Bridge{} // with unknown buses
		}
		if d.Bridge != nil && d.Bridge.Port == "" && d.listsCapabilities {
			d.Bridge.Port = pci.PortBridge // all capabilities are known, without PCI Express
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

// place finds the parents of the functions that no drawing or path has placed.
//
// Bus 0 is always a root bus. Another bus is a root bus if the text has the bridges of its domain and none of them
// leads to it. If the bridges are missing, the parent is unknown, unless the text has paths.
func (p *parser) place(found []*device) {
	// leads has the domains with a bridge that states its buses, unknown the domains with a bridge that does not.
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
		if d.ParentUnknown { // a drawing without its bridge
			return false
		}
		return d.Address.Bus == 0 || p.paths || leads[domain] && !unknown[domain]
	})
}

// An Error is a text that is not from lspci, or inconsistent.
type Error = where.Error
