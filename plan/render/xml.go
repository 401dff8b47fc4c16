package render

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// RacklessNamespace is the namespace of what rackless notes below <metadata>, which libvirt keeps and does not read.
const RacklessNamespace = "https://github.com/rackless/rackless/libvirt/1"

// prefixes are how XML writes the namespaces of elements that are not libvirt's own.
var prefixes = map[string]string{
	RacklessNamespace: "rackless:",
	"http://libvirt.org/schemas/domain/qemu/1.0": "qemu:", // arguments that libvirt hands to QEMU as they are
}

// A Mark is the element of rackless in the metadata of a domain: which lab node it is.
type Mark struct {
	XMLName xml.Name `xml:"https://github.com/rackless/rackless/libvirt/1 node"`
	Lab     string   `xml:"lab,attr"`
	Name    string   `xml:"name,attr"`
	Plan    string   `xml:"plan,attr"` // the schema of the plan: "rackless/plan/v1"
	Host    string   `xml:"host,attr,omitempty"`
	// Defined is added by who defines the domain; nil in what Domains makes.
	Defined *Defined `xml:"https://github.com/rackless/rackless/libvirt/1 defined"`
}

// Defined is the document that a domain was defined with, of which libvirt itself keeps neither form nor order.
type Defined struct {
	Digest string `xml:"digest,attr"`
	Packed string `xml:",chardata"`
}

// A place is an element below the root of a document.
type place struct {
	path  string // names from below the root, as in "cpu/numa/cell"
	index int    // among the elements of this name inside the same element
}

// reasons are why a document has its settings. Each becomes the comment above its element. libvirt
// drops comments when it takes a file in, so they are about the file alone.
type reasons map[place]string

// add notes the reason for the first element of the path.
func (r reasons) add(path, why string) { r.addAt(path, 0, why) }

// addAt notes the reason for one of several elements of the path.
func (r reasons) addAt(path string, index int, why string) { r[place{path, index}] = xmlComment(why) }

// XML returns v as XML for people: two spaces of indentation, elements without content closed in
// themselves, attributes in single quotes as libvirt has them. Characters that XML cannot hold
// become U+FFFD, as encoding/xml has it: who takes names from outside checks them first.
func XML(v any) ([]byte, error) { return explainedXML(v, nil) }

// explainedXML is XML with comments.
func explainedXML(v any, why reasons) ([]byte, error) {
	// encoding/xml has no self-closing tags and no comments above an element: what it wrote is read
	// back and printed otherwise.
	compact, err := xml.Marshal(v)
	var root element
	if err == nil {
		err = xml.Unmarshal(compact, &root)
	}
	if err != nil {
		return nil, fmt.Errorf("write XML: %w", err)
	}
	var b bytes.Buffer
	root.print(&b, "", place{}, "", why)
	return b.Bytes(), nil
}

// An element is one node of any document. Elements of libvirt have text or children, never both.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

// print writes e, which is at a place, inside an element of the namespace outer.
func (e *element) print(b *bytes.Buffer, indent string, at place, outer string, why reasons) {
	if text := why[at]; text != "" {
		printComment(b, indent, text)
	}
	prefix := prefixes[e.XMLName.Space]
	name := prefix + e.XMLName.Local
	b.WriteString(indent + "<" + name)
	if prefix != "" && e.XMLName.Space != outer {
		fmt.Fprintf(b, " xmlns:%s='%s'", strings.TrimSuffix(prefix, ":"), e.XMLName.Space)
	}
	for _, a := range e.Attrs {
		if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
			fmt.Fprintf(b, " %s='%s'", a.Name.Local, attrEscaper.Replace(a.Value))
		}
	}
	switch {
	case len(e.Children) > 0:
		b.WriteString(">\n")
		count := map[string]int{}
		for _, c := range e.Children {
			path := strings.TrimPrefix(at.path+"/"+c.XMLName.Local, "/")
			c.print(b, indent+"  ", place{path, count[path]}, e.XMLName.Space, why)
			count[path]++
		}
		b.WriteString(indent + "</" + name + ">\n")
	case e.Text != "":
		b.WriteString(">" + textEscaper.Replace(e.Text) + "</" + name + ">\n")
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

// xmlComment makes text fit for a comment: XML has no form for two hyphens inside of one, so they are
// set apart. Control characters, line breaks among them, become spaces.
func xmlComment(text string) string {
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

// columns is how wide comments may get: what fits beside line numbers on most screens.
const columns = 110

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

// scaled returns bytes in the largest unit that is exact, up to GiB.
func scaled(b uint64) (value uint, unit string) {
	for _, u := range []struct {
		unit  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if b>>u.shift<<u.shift == b {
			return uint(b >> u.shift), u.unit
		}
	}
	return uint(b), "b"
}
