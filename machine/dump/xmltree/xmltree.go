// Package xmltree reads the XML of other tools' dumps.
package xmltree

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
)

// An Element is an element of a file.
type Element struct {
	Name  string
	Line  int
	Attrs []xml.Attr
	Kids  []*Element
	Text  []byte // white space between elements is dropped
}

// Attr returns an attribute, or "".
func (e *Element) Attr(name string) string {
	value, _ := e.Lookup(name)
	return value
}

// Lookup returns an attribute; ok is false if missing.
func (e *Element) Lookup(name string) (value string, ok bool) {
	for i := range e.Attrs {
		if e.Attrs[i].Name.Local == name && e.Attrs[i].Name.Space == "" {
			return e.Attrs[i].Value, true
		}
	}
	return "", false
}

// All yields the children of e with a name.
func (e *Element) All(name string) iter.Seq[*Element] {
	return func(yield func(*Element) bool) {
		for _, k := range e.Kids {
			if k.Name == name && !yield(k) {
				return
			}
		}
	}
}

// Limits bound a file, because dumps are untrusted. The depth also bounds recursion over the tree.
type Limits struct {
	Bytes, Elements, Depth int
}

// Closed closes the open elements of truncated XML, and reports whether it was truncated.
func Closed(b []byte) ([]byte, bool) {
	var open []string
	d := xml.NewDecoder(bytes.NewReader(b))
	for end := int64(0); ; end = d.InputOffset() {
		token, err := d.Token()
		if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok && strings.Contains(syntax.Msg, "unexpected EOF") {
			whole := bytes.Clone(b[:end])
			for _, name := range slices.Backward(open) {
				whole = append(whole, "</"+name+">"...)
			}
			return whole, len(open) > 0
		}
		if err != nil {
			return b, false
		}
		switch t := token.(type) {
		case xml.StartElement:
			open = append(open, t.Name.Local)
		case xml.EndElement:
			open = open[:max(0, len(open)-1)]
		}
	}
}

// NCCL reads at most 16, and hwloc writes some 20.
const maxAttributes = 64

// Read parses a whole file. It refuses a DTD within the file and entities of its own, which can expand a small file
// into a huge one. Errors are of type *where.Error.
func Read(b []byte, limits Limits) (*Element, error) {
	if len(b) > limits.Bytes {
		return nil, where.At(1, "file of %d bytes; at most %d are read", len(b), limits.Bytes)
	}
	// RawToken is several times faster than Token. The caller must match the tags.
	r := reader{Decoder: xml.NewDecoder(bytes.NewReader(b)), limits: limits}
	r.CharsetReader = func(label string, _ io.Reader) (io.Reader, error) { return nil, encodingError(label) }
	for {
		// White space before an element is a token of its own.
		r.line, _ = r.InputPos()
		token, err := r.RawToken()
		if err == io.EOF && len(r.open) == 0 && r.root != nil {
			return r.root, nil
		}
		if err != nil {
			return nil, r.endOrSyntax(err)
		}
		if err := r.take(token); err != nil {
			return nil, err
		}
	}
}

type reader struct {
	*xml.Decoder
	limits Limits
	line   int // of the current token
	root   *Element
	open   []*Element
	count  int
}

func (r *reader) fail(format string, args ...any) error {
	if n := len(r.open); n > 0 {
		format, args = "%s: "+format, append([]any{where.Clip(r.open[n-1].Name)}, args...)
	}
	return where.At(r.line, format, args...)
}

// take processes a token.
func (r *reader) take(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		return r.start(t)
	case xml.EndElement:
		if len(r.open) == 0 {
			return r.fail("</%s> without a beginning", where.Clip(t.Name.Local))
		}
		if e := r.open[len(r.open)-1]; e.Name != t.Name.Local {
			return r.fail("</%s> where </%s> should close line %d", where.Clip(t.Name.Local), where.Clip(e.Name),
				e.Line)
		}
		r.open = r.open[:len(r.open)-1]
	case xml.CharData:
		switch text := bytes.Trim(t, " \t\r\n\ufeff"); {
		case len(text) == 0:
		case len(r.open) == 0:
			return r.fail("text outside of elements; is this XML?")
		default:
			e := r.open[len(r.open)-1]
			e.Text = append(e.Text, t...)
		}
	case xml.Directive:
		if bytes.IndexByte(t, '[') >= 0 {
			return r.fail("DOCTYPE with declarations inside it; entities are not expanded: take out what is between " +
				"[ and ]")
		}
	}
	return nil
}

func (r *reader) start(t xml.StartElement) error {
	e := &Element{Name: t.Name.Local, Line: r.line, Attrs: t.Attr}
	switch r.count++; {
	case r.count > r.limits.Elements:
		return r.fail("more than %d elements", r.limits.Elements)
	case len(r.open) == r.limits.Depth:
		return r.fail("elements more than %d deep", r.limits.Depth)
	case len(t.Attr) > maxAttributes:
		return r.fail("<%s> has %d attributes; at most %d are taken", where.Clip(e.Name), len(t.Attr), maxAttributes)
	case len(r.open) > 0:
		above := r.open[len(r.open)-1]
		above.Kids = append(above.Kids, e)
	case r.root != nil:
		return r.fail("second root element %q", where.Clip(e.Name))
	default:
		r.root = e
	}
	// XML forbids duplicate attributes, and readers differ in the one that they use.
	for i, a := range t.Attr {
		for _, b := range t.Attr[:i] {
			if a.Name == b.Name {
				return r.fail("<%s> has the attribute %q twice", where.Clip(e.Name), where.Clip(a.Name.Local))
			}
		}
	}
	r.open = append(r.open, e)
	return nil
}

func (r *reader) endOrSyntax(err error) error {
	syntax, isSyntax := errors.AsType[*xml.SyntaxError](err)
	encoding, isEncoding := errors.AsType[encodingError](err)
	switch {
	case err == io.EOF && len(r.open) > 0:
		return r.fail("the file ends inside the element of line %d: it was cut off", r.open[len(r.open)-1].Line)
	case err == io.EOF:
		return r.fail("no element in the file")
	case isSyntax && strings.Contains(syntax.Msg, "unexpected EOF"):
		return r.fail("the file ends inside a tag: it was cut off")
	case isSyntax:
		return r.fail("%s", syntax.Msg)
	case isEncoding:
		return r.fail("%w", encoding)
	}
	return r.fail("%w", err)
}

type encodingError string

func (e encodingError) Error() string {
	return fmt.Sprintf("encoding %q; UTF-8 is wanted", where.Clip(string(e)))
}
