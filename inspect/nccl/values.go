package nccl

import (
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// count returns an attribute that is a number from 0 up; nil where it is not there, not known (-1) or not one.
func (p *parser) count(e *element, name string, most int64) *int64 {
	s := e.Attr(name)
	if s == "" {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		p.note(e, "%s=%q is not a number", name, where.Clip(s))
		return nil
	case n < 0:
		return nil // NCCL's "not known"
	case n > most:
		p.note(e, "%s=%q is too large to be right", name, where.Clip(s))
		return nil
	}
	return &n
}

// attr returns what parse makes of an attribute. It is nil where the attribute is missing, and where
// parse fails; that is noted.
func attr[T any](p *parser, e *element, name string, parse func(s string) (T, error)) *T {
	s := e.Attr(name)
	if s == "" {
		return nil
	}
	v, err := parse(s)
	if err != nil {
		p.note(e, "%s: %v", name, err)
		return nil
	}
	return &v
}

// id16 returns a vendor or device ID. All ones and all zeros are stand-ins of files written by hand.
func (p *parser) id16(e *element, name string) *topology.ID16 {
	id := attr(p, e, name, topology.ParseID16)
	if id != nil && (*id == 0xffff || *id == 0) {
		return nil
	}
	return id
}

// speed returns a link speed in GT/s: "16 GT/s", "16.0 GT/s PCIe" as sysfs has it. "Unknown" and
// nothing at all are not known.
func (p *parser) speed(e *element) *float64 {
	s := e.Attr("link_speed")
	if s == "" || strings.HasPrefix(s, "Unknown") {
		return nil
	}
	number, unit, _ := strings.Cut(s, " ")
	gts, err := strconv.ParseFloat(number, 64)
	if err != nil || unit != "" && !strings.HasPrefix(unit, "GT/s") || !(gts >= 0 && gts <= 1024) {
		p.note(e, "link_speed=%q is not a speed in GT/s", where.Clip(s))
		return nil
	}
	if gts == 0 {
		return nil
	}
	return &gts
}

// link returns what the link can do. NCCL writes the highest speed and width that device and port
// have in common. A width of 0 is not known, nor is 255, which sysfs has for it.
func (p *parser) link(e *element) *topology.Link {
	l := topology.Link{MaxSpeedGTs: p.speed(e)}
	if w := p.count(e, "link_width", 255); w != nil && *w > 0 && *w < 255 {
		l.MaxWidth = new(int(*w))
	}
	if l.MaxSpeedGTs == nil && l.MaxWidth == nil {
		return nil
	}
	return &l
}

// address returns an address; addresses tie a topology together, so a wrong one is an error.
func address(e *element, name string) (topology.PCIAddr, error) {
	s, ok := e.Lookup(name)
	if !ok {
		return topology.PCIAddr{}, where.At(e.Line, "<%s> has no %s", e.Name, name)
	}
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		return topology.PCIAddr{}, where.At(e.Line, "<%s> %s: %v", e.Name, name, err)
	}
	return a, nil
}

// arch returns the instruction set of a GPU in the words of its compiler: "sm_90", "gfx90a". RCCL
// has a gcn beside sm, whose sm is a number of compute units; gcn is a number in older versions, in
// which 910 was gfx90a, and a name with features ("gfx942:sramecc+:xnack-") in newer ones.
func arch(e *element) string {
	if gcn, ok := e.Lookup("gcn"); ok {
		gcn, _, _ = strings.Cut(gcn, ":")
		gcn = strings.TrimPrefix(gcn, "gfx")
		if gcn == "910" {
			gcn = "90a"
		}
		return words.Either(!isWord(gcn), "", "gfx"+gcn)
	}
	if sm := e.Attr("sm"); isWord(sm) {
		return "sm_" + sm
	}
	return ""
}

// isWord reports whether s is a short run of digits and letters.
func isWord(s string) bool {
	return s != "" && len(s) <= 8 && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}
