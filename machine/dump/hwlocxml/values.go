package hwlocxml

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/dump/xmltree"
	"github.com/rackless/rackless/machine/topology"
)

// If parsing fails, these methods fail the file (see parser.fail) and return the result for a missing attribute.

// infinite means that all higher numbers are in the set.
const infinite = "0xf...f"

// set parses hexadecimal words of 32 bits, highest first; a word of 0 may be empty. An infinite set also includes all
// members of all above its words. ok is false if the attribute is missing. Source: hwloc/bitmap.h.
func (p *parser) set(e *element, attr string, all topology.CPUSet) (s topology.CPUSet, ok bool) {
	text, ok := e.Lookup(attr)
	if !ok {
		return s, false
	}
	words, endless := strings.CutPrefix(text, infinite)
	if endless {
		words = strings.TrimPrefix(words, ",")
	}
	s, err := topology.ParseCPUMask(words)
	if err != nil {
		p.fail(e, "%w", &setError{attr, err})
		return s, false
	}
	if endless {
		from := 0
		if words != "" {
			from = 32 * (strings.Count(words, ",") + 1)
		}
		s = s.Union(all.Difference(topology.CPURange(0, from-1)))
	}
	return s, true
}

type setError struct {
	attr string
	err  error
}

func (e *setError) Error() string {
	if wrong, ok := e.err.(*topology.CPUSetError); ok {
		return fmt.Sprintf("%s %q: at byte %d: %s", e.attr, wrong.In, wrong.Offset, wrong.Why)
	}
	return e.attr + ": " + e.err.Error()
}

func (e *setError) Unwrap() error { return e.err }

// number parses a decimal number; ok is false if it is missing or -1, unknown in the DTD.
func (p *parser) number(e *element, attr string) (v uint64, ok bool) {
	text, ok := e.Lookup(attr)
	if !ok || text == "-1" {
		return 0, false
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		p.fail(e, "%s %q is not a number", attr, where.Clip(text))
		return 0, false
	}
	return v, true
}

const (
	// unknownIndex is -1, which hwloc prints as unsigned.
	unknownIndex = 1<<32 - 1
	// maxIndex allows for the gaps of firmware: a real machine has package 983297.
	maxIndex = 1<<31 - 1
)

func (p *parser) osIndex(e *element) (int, bool) {
	v, ok := p.number(e, "os_index")
	if !ok || v == unknownIndex {
		return 0, false
	}
	if v > maxIndex {
		p.fail(e, "os_index %d is more than %d", v, maxIndex)
		return 0, false
	}
	return int(v), true
}

// indexOrSet returns os_index or, if that is missing, the only member of its own set.
func (p *parser) indexOrSet(e *element, attr, what string) int {
	if n, ok := p.osIndex(e); ok {
		return n
	}
	set, _ := p.set(e, attr, topology.CPUSet{})
	if set.Len() != 1 {
		p.fail(e, "neither os_index nor a %s of one %s", attr, what)
		return 0
	}
	return set.Min()
}

// float returns 0 if the attribute is missing.
func (p *parser) float(e *element, attr string) float64 {
	text, ok := e.Lookup(attr)
	if !ok {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		p.fail(e, "%s %q is not a number", attr, where.Clip(text))
		return 0
	}
	return v
}

// kibibytes parses an info in KiB; version 3 appends the unit. Infos never fail a file.
func kibibytes(s string) (size uint64, ok bool) {
	v, err := strconv.ParseUint(strings.TrimSuffix(s, "KiB"), 10, 64)
	hi, lo := bits.Mul64(v, 1024)
	return lo, err == nil && hi == 0
}

func decimal(s string) *uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// An Error is a file that cannot be read.
type Error = where.Error

// An element is an object, or data about one.
type element = xmltree.Element

func label(e *element) string {
	if t := e.Attr("type"); t != "" && e.Name == "object" {
		return "object " + t
	}
	return e.Name
}

// kindOf uses the type names of version 2.
func kindOf(e *element) string {
	t := e.Attr("type")
	switch t {
	case "Socket":
		return "Package"
	case "Node", "NUMANode":
		return "NUMANode"
	case "Proc": // before 1.0
		return "PU"
	case "Group":
		// Before hwloc 2.1 a die was a group of kind 104.
		if e.Attr("subtype") == "Die" || e.Attr("kind") == "104" {
			return "Die"
		}
	}
	return t
}

// infoOf returns an info, or "". It trims spaces, which DMI strings have at their ends.
func infoOf(e *element, name string) string {
	for k := range e.All("info") {
		if k.Attr("name") == name {
			return strings.TrimSpace(k.Attr("value"))
		}
	}
	return ""
}

// subtypeOf reads an info in version 1.
func subtypeOf(e *element) string {
	if s, ok := e.Lookup("subtype"); ok {
		return s
	}
	return cmp.Or(infoOf(e, "Type"), infoOf(e, "CoProcType"))
}

func objectsOf(e *element) iter.Seq[*element] {
	return func(yield func(*element) bool) { walk(e, yield) }
}

func walk(e *element, yield func(*element) bool) bool {
	if !yield(e) {
		return false
	}
	for k := range e.All("object") {
		if !walk(k, yield) {
			return false
		}
	}
	return true
}
