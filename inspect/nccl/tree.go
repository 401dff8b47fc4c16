package nccl

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"

	"github.com/rackless/rackless/inspect/where"
)

// Limits on what is read. NCCL itself takes at most 16 attributes a node, and a machine has some hundred nodes.
const (
	maxBytes      = 16 << 20
	maxElements   = 100_000
	maxDepth      = 64
	maxAttributes = 64
)

// An element is an element of the file, with the line it starts on.
type element struct {
	name     string
	line     int
	attrs    map[string]string
	children []*element
}

// parents lists where the elements that are read may stand. An element in another place would be
// lost without a word, so it is an error. Elements of other names are left out with all they hold:
// newer versions have more (c2c, and the nodes of other plugins).
var parents = map[string][]string{
	"cpu":    {"system"},
	"pci":    {"cpu", "pci"},
	"gpu":    {"pci"},
	"nic":    {"cpu", "pci"},
	"net":    {"nic"},
	"nvlink": {"gpu"},
	"xgmi":   {"gpu"},
}

// parseTree reads the whole file as elements.
func parseTree(b []byte) (*element, error) {
	if len(b) > maxBytes {
		return nil, where.At(0, "file of %d bytes: at most %d are taken", len(b), maxBytes)
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	var root *element
	var open []*element
	count := 0
	for {
		line, _ := d.InputPos()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, syntaxError(err, d)
		}
		switch t := token.(type) {
		case xml.Directive:
			// Document types declare entities; a topology has none.
			return nil, where.At(line, "<!%s>: declarations are not taken in a topology", where.Clip(string(t)))
		case xml.StartElement:
			// White space before the element is a token of its own, so the position before the
			// token is that of the element.
			if count++; count > maxElements {
				return nil, where.At(line, "more than %d elements", maxElements)
			}
			if len(open) == maxDepth {
				return nil, where.At(line, "elements nested more than %d deep", maxDepth)
			}
			e, err := newElement(t, line)
			if err != nil {
				return nil, err
			}
			switch {
			case len(open) > 0:
				parent := open[len(open)-1]
				if err := checkPlace(e, parent); err != nil {
					return nil, err
				}
				if _, known := parents[e.name]; !known {
					if err := d.Skip(); err != nil {
						return nil, syntaxError(err, d)
					}
					continue
				}
				parent.children = append(parent.children, e)
			case root != nil:
				return nil, where.At(line, "a second topology, <%s>, behind the first one; want "+
					"one in a file", where.Clip(e.name))
			default:
				root = e
				if err := checkRoot(e); err != nil {
					return nil, err
				}
			}
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
	if root == nil {
		return nil, where.At(0, "no XML element found; want <system> with what NCCL_TOPO_DUMP_FILE writes")
	}
	return root, nil
}

// syntaxError gives an error of the decoder its line.
func syntaxError(err error, d *xml.Decoder) error {
	line, _ := d.InputPos()
	why := err.Error()
	var s *xml.SyntaxError
	if errors.As(err, &s) {
		line, why = s.Line, s.Msg
	}
	return &Error{Line: line, Why: "XML: " + where.Clip(why)}
}

func newElement(t xml.StartElement, line int) (*element, error) {
	if len(t.Attr) > maxAttributes {
		return nil, where.At(line, "<%s> has %d attributes; at most %d are taken",
			where.Clip(t.Name.Local), len(t.Attr), maxAttributes)
	}
	e := &element{name: t.Name.Local, line: line, attrs: make(map[string]string, len(t.Attr))}
	for _, a := range t.Attr {
		if _, twice := e.attrs[a.Name.Local]; twice {
			return nil, where.At(line, "<%s> has the attribute %q twice", where.Clip(e.name), where.Clip(a.Name.Local))
		}
		e.attrs[a.Name.Local] = a.Value
	}
	return e, nil
}

// checkRoot tells a topology from what else is given in its place.
func checkRoot(e *element) error {
	switch e.name {
	case "system":
		return nil
	case "graphs", "graph":
		return where.At(e.line, "this is a graph of NCCL (NCCL_GRAPH_DUMP_FILE): it has rings and trees, "+
			"not the machine; give what NCCL_TOPO_DUMP_FILE writes")
	case "topology":
		return where.At(e.line, "this is a topology of hwloc, not of NCCL")
	}
	return where.At(e.line, "the file starts with <%s>; want <system>, as NCCL_TOPO_DUMP_FILE "+
		"writes it", where.Clip(e.name))
}

// checkPlace reports an element that stands where it cannot.
func checkPlace(e, parent *element) error {
	if want, known := parents[e.name]; known && !slices.Contains(want, parent.name) {
		return where.At(e.line, "<%s> in <%s>; want it in <%s>", e.name, parent.name, want[0])
	}
	return nil
}
