package texts

import (
	"strings"

	"github.com/rackless/rackless/machine/dump/xmltree"
)

var xmlLimits = xmltree.Limits{Bytes: maxText, Elements: 1 << 18, Depth: 64}

func (r *reader) xml() *xmltree.Element {
	b := []byte(r.Text.Text)
	root, err := xmltree.Read(b, xmlLimits)
	if whole, cut := xmltree.Closed(b); err != nil && cut {
		r.note(0, "the text is cut off: what would follow is not known")
		root, err = xmltree.Read(whole, xmlLimits)
	}
	if err != nil {
		r.note(0, "%v", err)
		return &xmltree.Element{}
	}
	return root
}

// at returns the first element on a path, or an empty one, in which lookups find nothing.
func at(e *xmltree.Element, path ...string) *xmltree.Element {
	for _, name := range path {
		next := &xmltree.Element{}
		for k := range e.All(name) {
			next = k
			break
		}
		e = next
	}
	return e
}

func text(e *xmltree.Element) string { return strings.TrimSpace(string(e.Text)) }
