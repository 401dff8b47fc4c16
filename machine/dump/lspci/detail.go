package lspci

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

var (
	capability = lazyregexp.New(`^Capabilities: \[[0-9a-f]+(?: v[0-9]+)?\] (.*)$`)
	express    = lazyregexp.New(`^Express (?:\(v[0-9]+\) )?(.*)$`)
	buses      = lazyregexp.New(`^Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})`)
	linkSpeed  = lazyregexp.New(`\bSpeed ([0-9.]+)GT/s`)
	linkWidth  = lazyregexp.New(`\bWidth x([0-9]+)`)
	region     = lazyregexp.New(
		`^(?:Region ([0-9]): )?(?:\[virtual\] )?(Memory at|I/O ports at|Expansion ROM at) \S+(.*)$`)
	regionSize = lazyregexp.New(`\[size=([0-9]+)([KMGT]?)\]`)
	vfCounts   = lazyregexp.New(`^Initial VFs: [0-9]+, Total VFs: ([0-9]+), Number of VFs: ([0-9]+)`)
	vfPlaces   = lazyregexp.New(`^VF offset: ([0-9]+), stride: ([0-9]+)`)
	power      = lazyregexp.New(`^Status: (D[0-3])\b`)
	flagNode   = lazyregexp.New(`\bNUMA node ([0-9]+)`)
	flagGroup  = lazyregexp.New(`\bIOMMU group ([0-9]+)`)
)

const strayText = "the state of a link, and no function above it"

// detail reads a line of the current function. It ignores unknown lines.
func (p *parser) detail(s string, n int) {
	d := p.current
	if d == nil && strings.HasPrefix(s, "LnkSta:") && aLink().MatchString(s) {
		p.notes.Note(n, strayText)
		p.strayLink = cmp.Or(p.strayLink, n)
	}
	if d == nil || p.inRecord {
		return
	}
	key, value, ok := strings.Cut(s, ":")
	value = strings.TrimSpace(value)
	if !ok {
		if region().MatchString(s) {
			d.region(s)
		} else if strings.HasPrefix(s, "!!! Unknown header type 7f") {
			d.Dead = true
		}
		return
	}
	switch key {
	case "Capabilities":
		p.capability(d, s, n)
	case "Subsystem":
		d.subsystem(value)
	case "Physical Slot":
		d.Slot = value
	case "NUMA node":
		d.NUMANode = p.number(key, value, n)
	case "IOMMU group":
		d.IOMMUGroup = p.number(key, value, n)
	case "Flags":
		// With a single -v, this line has data that otherwise has lines of its own.
		if m := flagNode().FindStringSubmatch(value); m != nil {
			d.NUMANode = p.number(key, m[1], n)
		}
		if m := flagGroup().FindStringSubmatch(value); m != nil {
			d.IOMMUGroup = p.number(key, m[1], n)
		}
	case "Kernel driver in use":
		d.Driver, p.anyDriver = value, true
	case "Kernel modules":
		p.anyDriver = true
		d.addCandidates(value)
	case "Bus":
		d.buses(s)
	case "LnkCap":
		if l := d.link(); l != nil {
			l.MaxSpeedGTs, l.MaxWidth = speedAndWidth(value)
			d.dropEmptyLink()
		}
	case "LnkSta":
		if l := d.link(); l != nil {
			l.SpeedGTs, l.Width = speedAndWidth(value)
			d.dropEmptyLink()
		}
	case "Status":
		if m := power().FindStringSubmatch(s); m != nil && d.section == "Power Management" {
			d.PowerState = m[1]
			if m[1] == "D3" {
				d.PowerState = "D3hot"
			}
		}
	default:
		d.extended(s, key, value)
	}
}

func (p *parser) number(key, value string, n int) *int {
	v, err := strconv.Atoi(value)
	if err != nil || v < 0 || v >= topology.MaxCPUs {
		p.notes.Note(n, "%s: %q is not a number", where.Clip(key), where.Clip(value))
		return nil
	}
	return &v
}

func (d *device) extended(s, key, value string) {
	switch {
	case key == "ACSCtl":
		on := func(flag string) bool { return strings.Contains(value, flag+"+") }
		d.ACS = &topology.ACS{
			SourceValidation: on("SrcValid"), RequestRedirect: on("ReqRedir"), CompletionRedir: on("CmpltRedir"),
			UpstreamForward: on("UpstreamFwd"), DirectTranslated: on("DirectTrans"),
		}
	case key == "AtomicOpsCap" && d.Bridge != nil:
		lacks := func(flag string) bool { return strings.Contains(value, flag+"-") }
		d.NoAtomics = d.Bridge.Port == pci.PortRoot && (lacks("32bit") || lacks("64bit")) ||
			(d.Bridge.Port == pci.PortUpstream || d.Bridge.Port == pci.PortDownstream) && lacks("Routing")
	case key == "AtomicOpsCtl" && d.Bridge != nil && d.Bridge.Port != pci.PortRoot:
		d.NoAtomics = d.NoAtomics || strings.Contains(value, "EgressBlck+")
	case key == "ATSCtl":
		d.ATS = new(strings.Contains(value, "Enable+"))
	case key == "IOVCtl":
		d.vfsOff = strings.Contains(value, "Enable-")
	case strings.HasPrefix(key, "Initial VFs"):
		if m := vfCounts().FindStringSubmatch(s); m != nil {
			s := d.sriov()
			s.Total, s.Enabled = rid(m[1]), rid(m[2])
		}
	case strings.HasPrefix(key, "VF offset"):
		if m := vfPlaces().FindStringSubmatch(s); m != nil {
			s := d.sriov()
			s.Offset, s.Stride = rid(m[1]), rid(m[2])
		}
	case region().MatchString(s):
		d.region(s)
	}
}

func (d *device) sriov() *topology.SRIOV {
	d.SRIOV = cmp.Or(d.SRIOV, &topology.SRIOV{})
	return d.SRIOV
}

func rid(s string) *int {
	if v, err := strconv.ParseUint(s, 10, 16); err == nil {
		return new(int(v))
	}
	return nil
}

func (p *parser) capability(d *device, s string, n int) {
	if strings.HasSuffix(s, "<access denied>") {
		if p.denied++; p.denied == 1 {
			p.deniedLine = n
		}
		return
	}
	m := capability().FindStringSubmatch(s)
	if m == nil {
		return
	}
	d.listsCapabilities = true
	d.section = ""
	what := m[1]
	if strings.HasPrefix(what, "Power Management") {
		d.section = "Power Management"
	} else if strings.HasPrefix(what, "Single Root I/O Virtualization") {
		d.section = "SR-IOV"
		d.sriov()
	} else if name, ok := strings.CutPrefix(what, "Subsystem: "); ok { // a bridge's subsystem
		d.subsystem(name)
	} else if e := express().FindStringSubmatch(what); e != nil {
		d.section = "Express"
		d.port(e[1])
	}
}

// port reads "Root Port (Slot+), MSI 00".
func (d *device) port(what string) {
	port := ""
	switch {
	case strings.HasPrefix(what, "Root Port"):
		port = pci.PortRoot
	case strings.HasPrefix(what, "Upstream Port"):
		port = pci.PortUpstream
	case strings.HasPrefix(what, "Downstream Port"):
		port = pci.PortDownstream
	case strings.Contains(what, "Bridge"): // "PCI-Express to PCI/PCI-X Bridge", or the reverse
		port = pci.PortBridge
	default:
		return // an endpoint
	}
	// Host bridges of some processors have the capability of a root port, but no bus behind them.
	if d.Bridge == nil && d.Class != nil && d.Class.Sub() == topology.SubHostBridge {
		return
	}
	d.bridge().Port = port
}

func (d *device) bridge() *topology.Bridge {
	d.Bridge = cmp.Or(d.Bridge, &topology.Bridge{})
	return d.Bridge
}

// buses reads "Bus: primary=00, secondary=01, subordinate=02, sec-latency=0".
func (d *device) buses(s string) {
	m := buses().FindStringSubmatch(s)
	if m == nil {
		return
	}
	d.tellsBuses = true
	secondary, subordinate := hex8(m[2]), hex8(m[3])
	if secondary == 0 || subordinate < secondary {
		return // not set up by the firmware
	}
	b := d.bridge()
	b.Secondary, b.Subordinate = secondary, subordinate
}

// hex8 returns the value of two matched hexadecimal digits.
func hex8(digits string) uint8 {
	v, _ := strconv.ParseUint(digits, 16, 8)
	return uint8(v)
}

// link returns the link to fill in, or nil outside of the PCI Express capability. Text filtered by grep may name no
// capability.
func (d *device) link() *topology.Link {
	if d.section != "Express" && d.section != "" {
		return nil
	}
	d.Link = cmp.Or(d.Link, &topology.Link{})
	return d.Link
}

// dropEmptyLink removes a link without data, of a function inside the processor.
func (d *device) dropEmptyLink() {
	if *d.Link == (topology.Link{}) {
		d.Link = nil
	}
}

// speedAndWidth parses "Port #0, Speed 16GT/s, Width x16, ASPM L1" and "Speed 2.5GT/s (downgraded), Width x8 (ok)". A
// link of width 0 is down, so it has no speed.
func speedAndWidth(s string) (speed *float64, width *int) {
	if m := linkWidth().FindStringSubmatch(s); m != nil {
		v, err := strconv.Atoi(m[1])
		switch {
		case err == nil && v == 0:
			return nil, nil
		case err == nil && v <= 32:
			width = &v
		}
	}
	if m := linkSpeed().FindStringSubmatch(s); m != nil {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil && v > 0 && v <= 1024 {
			speed = &v
		}
	}
	return speed, width
}

// subsystem reads "NVIDIA Corporation Device [10de:1533]".
func (d *device) subsystem(s string) {
	vendor, device, _, _ := parseName(s)
	d.setSubsystem(vendor, device)
}

// Numbers of BARs as in topology.BAR.
const (
	romBAR = 6
	vfBAR  = 7
)

// region reads "Region 1: Memory at 3f000000000 (64-bit, prefetchable) [size=64G]". It skips a range without a size:
// the range has no address, or lspci read a dump.
func (d *device) region(s string) {
	m := region().FindStringSubmatch(s)
	if m == nil {
		return
	}
	b := topology.BAR{
		IO:           m[2] == "I/O ports at",
		Bits64:       strings.Contains(m[3], "(64-bit"),
		Prefetchable: strings.Contains(m[3], ", prefetchable)"),
		Unassigned:   strings.Contains(s, " <unassigned>"),
	}
	switch {
	case m[2] == "Expansion ROM at":
		b.Index = romBAR
	case m[1] != "":
		b.Index, _ = strconv.Atoi(m[1])
		if b.Index >= romBAR {
			return
		}
		if d.section == "SR-IOV" {
			b.Index += vfBAR
		}
	default:
		b.Index = d.nextBAR
		if d.nextBAR++; b.Bits64 {
			d.nextBAR++
		}
		if b.Index >= romBAR {
			return
		}
	}
	size := regionSize().FindStringSubmatch(m[3])
	if size == nil && !b.Unassigned {
		return
	}
	if size != nil {
		v, err := strconv.ParseUint(size[1], 10, 32)
		if err != nil || v == 0 {
			return
		}
		b.SizeBytes = v << (10 * strings.Index(" KMGT", cmp.Or(size[2], " ")))
	}
	// A second listing of the function replaces the first.
	for i := range d.BARs {
		if d.BARs[i].Index == b.Index {
			d.BARs[i] = b
			return
		}
	}
	d.BARs = append(d.BARs, b)
}

// hex keeps a line of a dump (-x): "10: 08 00 70 fd 08 00 80 fd ...". It skips everything after the first 256 bytes,
// because the text of -vv has all of it that the model needs.
func (p *parser) hex(offset, digits string) {
	if p.current == nil {
		return
	}
	at, err := strconv.ParseUint(offset, 16, 16)
	if err != nil || int(at) != len(p.current.config) || at >= pci.StandardSize {
		return // a gap, or a second dump
	}
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err == nil {
		p.current.config = append(p.current.config, b...)
	}
}

// readConfig adds facts that the text lacks, mainly numbers, which a list only has with -n.
func (d *device) readConfig() {
	if len(d.config) < pci.HeaderSize {
		return
	}
	// A read from memory cannot fail.
	c, _ := pci.Parse(bytes.NewReader(d.config), pci.Identity|pci.Subsystem|pci.Buses|pci.LinkState|pci.Capabilities)
	d.Dead = d.Dead || c.Dead
	if c.Vendor == nil || *c.Vendor == 0 {
		return
	}
	if d.Vendor == nil || d.Device == nil {
		d.Vendor, d.Device = c.Vendor, c.Device
	}
	d.Class, d.Revision = c.Class, cmp.Or(d.Revision, c.Revision)
	d.setSubsystem(c.SubsystemVendor, c.SubsystemDevice)
	d.Link = cmp.Or(d.Link, c.Link)
	if c.Bridge == nil {
		return
	}
	d.tellsBuses = true
	b := d.bridge()
	b.Port = cmp.Or(b.Port, c.Bridge.Port)
	if b.Secondary == 0 && c.Bridge.Secondary > 0 && c.Bridge.Subordinate >= c.Bridge.Secondary {
		b.Secondary, b.Subordinate = c.Bridge.Secondary, c.Bridge.Subordinate
	}
}
