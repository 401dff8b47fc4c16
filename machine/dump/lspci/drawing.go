package lspci

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

// A drawing has the bus of each open branch of a drawn tree, by the column of the branch's + or \.
//
//	-+-[0000:20]-+-00.0  Host bridge
//	 |           \-03.1-[21]--+-00.0  NIC
//	 |                        \-00.1  NIC
//	 \-[0000:40]---00.0-[41]--
//
// Source: ls-tree.c of pciutils. A bus with one function has no branch, an empty one ends after its number.
type drawing struct {
	open []branch // in ascending order of columns
}

const maxBranches = 256

type branch struct {
	col int
	bus *bus // nil for the root buses
}

type bus struct {
	domain uint32
	number uint8
	above  *topology.PCIAddr // the bridge; nil for a root bus, or if the bridge was cut off
	root   string
}

// cutOff is the bus of bridges at the edge of a cut-out piece, which lacks its number.
var cutOff = &bus{}

var (
	rootBus   = lazyregexp.New(`^\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})\]`)
	cutBridge = lazyregexp.New(`^[01][0-9a-f]\.[0-7]-\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\]`)
	slotDrawn = lazyregexp.New(`^([01][0-9a-f])\.([0-7])`)
	behind    = lazyregexp.New(`^-\[(?:[0-9a-f]{4,8}:)?([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]`)
)

func (p *parser) draw(line string, n int) error {
	if line[0] == '-' {
		p.drawing.open = nil
		return p.drawBus(line, 0, nil, n)
	}
	// A line continues the branch at its first + or \. Branches further right have ended.
	col := strings.IndexAny(line, `+\`)
	// A cut-out piece may have lost the first character of some lines. Branches are further apart than that.
	for _, off := range []int{0, 1, -1} {
		for i := len(p.drawing.open) - 1; i >= 0; i-- {
			if b := p.drawing.open[i]; b.col == col+off {
				p.drawing.open = p.drawing.open[:i+1]
				if b.bus == cutOff {
					return p.drawCut(line, col+2, n)
				}
				return p.drawItem(line, col+2, b.bus, n)
			}
		}
	}
	if rootBus().MatchString(line[min(col+2, len(line)):]) {
		// The first root of the piece is not the machine's first root.
		p.drawing.open = []branch{{col, nil}}
		return p.drawItem(line, col+2, nil, n)
	}
	if len(p.drawing.open) == 0 {
		p.drawing.open = []branch{{col, cutOff}}
		return p.drawCut(line, col+2, n)
	}
	return where.At(n, "the branch in column %d hangs on nothing that is drawn above it", col+1)
}

// drawCut reads an item on a bus with its number cut off. Only a bridge shows buses behind it; other functions are
// noted.
func (p *parser) drawCut(line string, at, n int) error {
	m := cutBridge().FindStringSubmatch(line[min(at, len(line)):])
	if m == nil {
		p.notes.Note(n, "the bus of %q is cut off, so its address is not known", where.Clip(strings.TrimSpace(line)))
		return nil
	}
	domain, _ := strconv.ParseUint(cmp.Or(m[1], "0"), 16, 32)
	return p.drawBus(line, at+len(m[0]), &bus{domain: uint32(domain), number: hex8(m[2])}, n)
}

func (p *parser) drawBus(line string, at int, b *bus, n int) error {
	dashes := at
	for at < len(line) && line[at] == '-' {
		at++
	}
	if at == len(line) || line[at] == ' ' {
		return nil // an empty bus
	}
	if line[at] == '+' {
		if len(p.drawing.open) >= maxBranches {
			return where.At(n, "branches nested more than %d deep", maxBranches)
		}
		p.drawing.open = append(p.drawing.open, branch{at, b})
		at += len("+-")
	}
	if at <= dashes {
		return where.At(n, "column %d: want a dash behind a bus", at+1)
	}
	return p.drawItem(line, at, b, n)
}

func (p *parser) drawItem(line string, at int, b *bus, n int) error {
	at = min(at, len(line))
	if b == nil {
		m := rootBus().FindStringSubmatch(line[at:])
		if m == nil {
			return where.At(n, "column %d: want the number of a root bus, such as [0000:40]", at+1)
		}
		domain, _ := strconv.ParseUint(m[1], 16, 32) // 0 if missing
		root := &bus{domain: uint32(domain), number: hex8(m[2])}
		root.root = pci.RootName(topology.PCIAddr{Domain: root.domain, Bus: root.number})
		return p.drawBus(line, at+len(m[0]), root, n)
	}
	m := slotDrawn().FindStringSubmatch(line[at:])
	if m == nil {
		return where.At(n, "column %d: want a function, such as 1c.0", at+1)
	}
	d := p.function(topology.PCIAddr{Domain: b.domain, Bus: b.number, Device: hex8(m[1]), Function: m[2][0] - '0'}, n)
	if !d.drawn {
		d.drawn, d.Parent, d.Root, d.ParentUnknown = true, b.above, b.root, b.above == nil && b.root == ""
	}
	rest := line[at+len(m[0]):]
	if m := behind().FindStringSubmatch(rest); m != nil {
		first, last := hex8(m[1]), hex8(cmp.Or(m[2], m[1]))
		// Bus numbers rise on the way down.
		if first <= b.number || last < first {
			return where.At(n, "bus %02x cannot lead to the buses %s", b.number, m[0][1:])
		}
		bridge := d.bridge()
		bridge.Secondary, bridge.Subordinate = first, last
		below := &bus{domain: b.domain, number: first, above: new(d.Address), root: b.root}
		return p.drawBus(line, at+len(line[at:])-len(rest)+len(m[0]), below, n)
	}
	if name := strings.TrimSpace(rest); name != "" {
		if rest[0] != ' ' {
			return where.At(n, "%q behind a function; want its name or the buses behind it", where.Clip(rest))
		}
		var id topology.PCIDevice
		id.Vendor, id.Device, id.VendorName, id.DeviceName = parseName(name)
		p.identify(d, &id, n)
		p.current = nil
	}
	return nil
}
