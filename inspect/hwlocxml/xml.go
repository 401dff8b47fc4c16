package hwlocxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/rackless/rackless/inspect/where"
)

// An element is an XML element with what hwloc puts into one: attributes, other elements, and text in two of them.
type element struct {
	name  string
	line  int
	attrs []xml.Attr
	kids  []*element
	text  []byte // of indexes and u64values; that of others is not kept
}

// String names the element in messages.
func (e *element) String() string {
	if t, _ := e.attr("type"); t != "" && e.name == "object" {
		return "object " + t
	}
	return e.name
}

// attr returns an attribute; ok is false where there is none.
func (e *element) attr(name string) (value string, ok bool) {
	for i := range e.attrs {
		if e.attrs[i].Name.Local == name && e.attrs[i].Name.Space == "" {
			return e.attrs[i].Value, true
		}
	}
	return "", false
}

// kind returns the object's type, in the words of version 2 where a word was changed.
func (e *element) kind() string {
	t, _ := e.attr("type")
	switch t {
	case "Socket":
		return "Package"
	case "Node", "NUMANode":
		return "NUMANode"
	case "Proc": // before 1.0
		return "PU"
	case "Group":
		// A die was a group before hwloc 2.1; 104 is the kind of such a group.
		if sub, _ := e.attr("subtype"); sub == "Die" {
			return "Die"
		}
		if kind, _ := e.attr("kind"); kind == "104" {
			return "Die"
		}
	}
	return t
}

// info returns the value of the element's info of that name, "" where there is none. DMI strings
// come with spaces at their ends.
func (e *element) info(name string) string {
	for _, k := range e.kids {
		if k.name != "info" {
			continue
		}
		if n, _ := k.attr("name"); n == name {
			v, _ := k.attr("value")
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// subtype returns the object's subtype. Version 1 has it as an info.
func (e *element) subtype() string {
	if s, ok := e.attr("subtype"); ok {
		return s
	}
	if s := e.info("Type"); s != "" {
		return s
	}
	return e.info("CoProcType")
}

// objects yields the object itself and all objects below it, in the order of the file.
func (e *element) objects() iter.Seq[*element] {
	return func(yield func(*element) bool) { e.walk(yield) }
}

func (e *element) walk(yield func(*element) bool) bool {
	if !yield(e) {
		return false
	}
	for _, k := range e.kids {
		if k.name == "object" && !k.walk(yield) {
			return false
		}
	}
	return true
}

// readTree reads a whole file. It takes XML without a DTD inside it and without entities of its
// own: hwloc writes none, and they are how small files become large ones.
func readTree(b []byte, name string) (*element, error) {
	if len(b) > MaxBytes {
		return nil, &Error{Name: name, Line: 1, Err: fmt.Errorf("file of %d bytes; at most %d are read", len(b),
			MaxBytes)}
	}
	// RawToken is several times faster than Token, which resolves name spaces. It leaves to its caller to match tags.
	d := xml.NewDecoder(bytes.NewReader(b))
	d.CharsetReader = func(label string, _ io.Reader) (io.Reader, error) { return nil, encodingError(label) }
	var root *element
	var open []*element
	for count := 0; ; {
		line, _ := d.InputPos()
		fail := func(format string, args ...any) error {
			in := ""
			if len(open) > 0 {
				in = open[len(open)-1].String()
			}
			return &Error{Name: name, Line: line, In: in, Err: fmt.Errorf(format, args...)}
		}
		token, err := d.RawToken()
		if err != nil {
			if err == io.EOF && len(open) == 0 && root != nil {
				return root, nil
			}
			return nil, endOrSyntax(err, open, fail)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, line: line, attrs: t.Attr}
			if count++; count > maxElements {
				return nil, fail("more than %d elements", maxElements)
			}
			switch {
			case len(open) == maxDepth:
				return nil, fail("elements more than %d deep", maxDepth)
			case len(open) > 0:
				above := open[len(open)-1]
				above.kids = append(above.kids, e)
			case root != nil:
				return nil, fail("second root element %q", e.name)
			default:
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			if len(open) == 0 {
				return nil, fail("</%s> without a beginning", t.Name.Local)
			}
			if e := open[len(open)-1]; e.name != t.Name.Local {
				return nil, fail("</%s> where </%s> should close line %d", t.Name.Local, e.name, e.line)
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) == 0 {
				if len(bytes.Trim(t, " \t\r\n\ufeff")) > 0 {
					return nil, fail("text outside of elements; is this XML?")
				}
			} else if e := open[len(open)-1]; e.name == "indexes" || e.name == "u64values" {
				e.text = append(e.text, t...)
			}
		case xml.Directive:
			if bytes.IndexByte(t, '[') >= 0 {
				return nil, fail("DOCTYPE with declarations inside it; hwloc writes none, and entities are not " +
					"expanded: take out what is between [ and ]")
			}
		}
	}
}

// endOrSyntax makes a message of what the decoder gave up with.
func endOrSyntax(err error, open []*element, fail func(string, ...any) error) error {
	var syntax *xml.SyntaxError
	var encoding encodingError
	switch {
	case err == io.EOF && len(open) > 0:
		return fail("the file ends inside the element of line %d: it was cut off", open[len(open)-1].line)
	case err == io.EOF:
		return fail("no element in the file")
	case errors.As(err, &syntax) && strings.Contains(syntax.Msg, "unexpected EOF"):
		return fail("the file ends inside a tag: it was cut off")
	case errors.As(err, &syntax):
		return fail("%s", syntax.Msg)
	case errors.As(err, &encoding):
		return fail("%w", encoding)
	default:
		return fail("%w", err)
	}
}

// An encodingError is an encoding other than UTF-8, which is what hwloc writes.
type encodingError string

func (e encodingError) Error() string {
	return fmt.Sprintf("encoding %q; UTF-8 is wanted", where.Clip(string(e)))
}
