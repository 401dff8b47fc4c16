package libvirtxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// columns is how wide comments may get: what fits beside line numbers on most screens.
const columns = 110

// Marshal returns v as XML for people: two spaces of indentation, attributes in single quotes as
// libvirt has them, and each Why as a comment above its element. Characters that XML cannot hold
// become U+FFFD, as encoding/xml has it: who takes names from outside checks them first.
func Marshal(v any) ([]byte, error) {
	compact, err := xml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write XML: %w", err)
	}
	root, err := parse(compact)
	if err != nil {
		return nil, fmt.Errorf("write XML: %w", err)
	}
	var b bytes.Buffer
	root.print(&b, 0, "")
	return b.Bytes(), nil
}

// Unmarshal reads a domain. Elements and attributes that Domain does not have are passed over; so are comments.
func Unmarshal(data []byte) (*Domain, error) {
	var d Domain
	if err := xml.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read domain XML: %w", err)
	}
	return &d, nil
}

// Comment makes text fit for a Why: XML has no way to write two hyphens inside a comment, so they
// are set apart. Control characters, line breaks among them, become spaces.
func Comment(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= utf8.RuneError && r <= 0xffff { // U+FFFE and U+FFFF are no characters of XML
			return ' '
		}
		return r
	}, text)
	for strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "--", "- -")
	}
	return strings.TrimSpace(text)
}

// An element is one node of a parsed document. Elements of libvirt have text or children, never both.
type element struct {
	name     xml.Name
	attrs    []xml.Attr
	children []*element
	text     string
	comment  string
}

// parse reads back what encoding/xml wrote. It is the only way to print otherwise: encoding/xml has
// no self-closing tags, and writes a comment inside the element that it is about.
func parse(data []byte) (*element, error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	var stack []*element
	var root *element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name}
			for _, a := range t.Attr {
				if a.Name.Local != "xmlns" {
					e.attrs = append(e.attrs, xml.Attr{Name: a.Name, Value: a.Value})
				}
			}
			if len(stack) > 0 {
				top := stack[len(stack)-1]
				top.children = append(top.children, e)
			} else {
				root = e
			}
			stack = append(stack, e)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].text += string(t)
			}
		case xml.Comment:
			if len(stack) > 0 {
				stack[len(stack)-1].comment += string(t)
			}
		}
	}
	if root == nil {
		return nil, errors.New("no element")
	}
	return root, nil
}

// prefix returns what stands before the names of a namespace.
func prefix(space string) string {
	switch space {
	case QEMUNamespace:
		return "qemu:"
	case RacklessNamespace:
		return "rackless:"
	}
	return ""
}

// print writes e, indented by depth, inside an element of namespace outer.
func (e *element) print(b *bytes.Buffer, depth int, outer string) {
	indent := strings.Repeat("  ", depth)
	if e.comment != "" {
		printComment(b, indent, e.comment)
	}
	name := prefix(e.name.Space) + e.name.Local
	b.WriteString(indent + "<" + name)
	if p := prefix(e.name.Space); p != "" && e.name.Space != outer {
		fmt.Fprintf(b, " xmlns:%s='%s'", strings.TrimSuffix(p, ":"), e.name.Space)
	}
	for _, a := range e.attrs {
		fmt.Fprintf(b, " %s='%s'", a.Name.Local, attrEscaper.Replace(a.Value))
	}
	switch {
	case len(e.children) > 0:
		b.WriteString(">\n")
		for _, c := range e.children {
			c.print(b, depth+1, e.name.Space)
		}
		b.WriteString(indent + "</" + name + ">\n")
	case e.text != "":
		b.WriteString(">" + textEscaper.Replace(e.text) + "</" + name + ">\n")
	default:
		b.WriteString("/>\n")
	}
}

// Both escape what would end the text, and white space that a parser would otherwise normalise away.
var (
	attrEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&apos;", "\t", "&#9;", "\n",
		"&#10;", "\r", "&#13;")
	textEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#13;")
)

// printComment breaks the text into lines.
func printComment(b *bytes.Buffer, indent, text string) {
	line := indent + "<!--"
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			b.WriteString(line + "\n")
			line = indent + "    "
		}
		line += " " + word
	}
	b.WriteString(line + " -->\n")
}
