package hostview

import (
	"bytes"
	"encoding/xml"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/rackless/rackless/machine/topology"
)

// hostile tries to break out of HTML text, attributes, styles, comments, SVG, DOT, and terminal output.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)><style>*{display:none}</style>` +
	`</title></svg></style><!--` + "`" + `{{.}}javascript:alert(1)"];evil[label="\N\` +
	"\x1b[2J\x1b]0;owned\x07\u202e\x00\xff\ufffe\ufdfd\n&amp;]]>"

func hostileDocument() *Document {
	h := epyc()
	for _, other := range []*topology.Host{dgx(), matrixOnly(), memoryOnly()} {
		h.GPUs = append(h.GPUs, other.GPUs...)
		h.NICs = append(h.NICs, other.NICs...)
		h.Storage = append(h.Storage, other.Storage...)
		h.Reported = append(h.Reported, other.Reported...)
	}
	h.Bonds = []topology.Bond{{Name: "b", Members: []string{"m"}, Mode: "802.3ad"}}
	h.Unread = []topology.Unread{{Path: "p", Why: "w"}}
	h.Tenants = append(h.Tenants, topology.Tenant{Name: "t", State: "s"})
	h.Packages[0].Model = "model"
	poison(reflect.ValueOf(h).Elem())
	findings := append(epycFindings(), dgxFindings()...)
	poison(reflect.ValueOf(&findings).Elem())
	return NewDocument(h, append(findings, epycFindings()...))
}

func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(v.String() + hostile)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i))
			}
		}
	}
}

func TestHostileTextCannotControlATerminalThroughAnyTable(t *testing.T) {
	d := hostileDocument()
	for name, out := range map[string][]byte{
		"table":  written(t, func(b *bytes.Buffer) error { return d.WriteTable(b, TableOptions{}) }),
		"matrix": written(t, func(b *bytes.Buffer) error { return d.WriteMatrix(b) }),
	} {
		if !strings.Contains(string(out), "alert(1)") {
			t.Errorf("%s: the hostile text is not there at all", name)
		}
		for _, r := range string(out) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s has %q in it", name, r)
				break
			}
		}
	}
}

func TestHostileTextStaysTextInThePage(t *testing.T) {
	page := string(written(t, func(b *bytes.Buffer) error { return hostileDocument().WritePage(b) }))
	for _, bad := range []string{"<script", "<img", "<style>*", "<!--", "onerror=alert(1)>", "\x1b", "\x00"} {
		if strings.Contains(page, bad) {
			t.Errorf("page contains %q from a field", bad)
		}
	}
	for tag, want := range map[string]int{"<style>": 1, "</style>": 1, "<svg": 4, "</svg>": 4, "</html>": 1} {
		if n := strings.Count(page, tag); n != want {
			t.Errorf("page has %d %s, want %d", n, tag, want)
		}
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 50 {
		t.Errorf("hostile text is shown as text %d times, want it in most places", n)
	}
}

func TestHostileTextStaysTextInThePicture(t *testing.T) {
	out := written(t, func(b *bytes.Buffer) error { return hostileDocument().WriteSVG(b) })
	known := map[string]bool{"svg": true, "title": true, "desc": true, "style": true, "rect": true, "path": true,
		"polyline": true, "circle": true, "g": true, "text": true}
	for _, name := range wellFormed(t, out) {
		if !known[name] {
			t.Errorf("an element <%s>", name)
		}
	}
	if bytes.Contains(out, []byte("<script")) {
		t.Error("a script")
	}
}

func wellFormed(t testing.TB, out []byte) []string {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(out))
	in.Strict = true
	var names []string
	for {
		token, err := in.Token()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			names = append(names, e.Name.Local)
		}
	}
}
