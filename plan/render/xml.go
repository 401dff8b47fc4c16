package render

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// RacklessNamespace is for <metadata>, which libvirt preserves without reading.
const RacklessNamespace = "https://github.com/rackless/rackless/libvirt/1"

var prefixes = map[string]string{
	RacklessNamespace: "rackless:",
	"http://libvirt.org/schemas/domain/qemu/1.0": "qemu:", // libvirt passes these arguments to QEMU
}

// A Mark identifies the lab node in the metadata of a domain.
type Mark struct {
	XMLName xml.Name `xml:"https://github.com/rackless/rackless/libvirt/1 node"`
	Lab     string   `xml:"lab,attr"`
	Name    string   `xml:"name,attr"`
	Plan    string   `xml:"plan,attr"` // its schema: "rackless/plan/v1"
	Host    string   `xml:"host,attr,omitempty"`
	// Isolated lists CPUs of the plan, for a host that is not booted so yet.
	Isolated string `xml:"isolated,attr,omitempty"`
	// Defined is added by the code that defines the domain.
	Defined *Defined `xml:"https://github.com/rackless/rackless/libvirt/1 defined"`
}

// Defined is the document with which a domain was defined, because libvirt preserves neither its form nor its order.
type Defined struct {
	Digest string `xml:"digest,attr"`
	Packed string `xml:",chardata"`
}

type place struct {
	path  string // from below the root: "cpu/numa/cell"
	index int    // among equal names within the same parent
}

// reasons become comments above elements. libvirt drops them.
type reasons map[place]string

func (r reasons) add(path, why string) { r.addAt(path, 0, why) }

func (r reasons) addAt(path string, index int, why string) { r[place{path, index}] = xmlComment(why) }

// XML has two spaces of indentation, and attributes in single quotes like libvirt's. Invalid characters become U+FFFD,
// so callers must check outside names first.
func XML(v any) ([]byte, error) { return explainedXML(v, nil) }

func explainedXML(v any, why reasons) ([]byte, error) {
	// encoding/xml supports neither self-closing tags nor comments above elements.
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

// libvirt's elements have text or children, never both.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

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

// Both escape characters that would end the text, and white space that a parser would otherwise normalise.
var (
	attrEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&apos;", "\t", "&#9;", "\n",
		"&#10;", "\r", "&#13;")
	textEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#13;")
)

// xmlComment separates two hyphens, which XML does not allow in comments, and replaces control characters by spaces.
func xmlComment(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= utf8.RuneError && r <= 0xffff { // XML does not allow U+FFFE and U+FFFF
			return ' '
		}
		return r
	}, text)
	for strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "--", "- -")
	}
	return strings.TrimSpace(text)
}

// columns leaves room for line numbers on most screens.
const columns = 110

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

// scaled uses the largest exact unit, up to GiB.
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
