package xmltree

import (
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	root, err := Read([]byte("<!-- c --><a x='1' y=''>\n <b>2</b> <c/>\n <b z='&lt;'/></a>\n"),
		Limits{Bytes: 100, Elements: 4, Depth: 2})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for b := range root.All("b") {
		got.WriteString(string(b.Text) + b.Attr("z"))
	}
	_, hasX := root.Lookup("x")
	_, hasZ := root.Lookup("z")
	if got.String() != "2<" || !hasX || hasZ || root.Kids[2].Line != 3 || len(root.Text) > 0 {
		t.Errorf("got %q, %+v", got.String(), root)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"<a>\n" + strings.Repeat("<b/>", 100):    "line 1: file of 404 bytes; at most 100 are read",
		"<a>\n<b/><b/><b/><b/></a>":              "line 2: a: more than 4 elements",
		"<a>\n<b><c/></b></a>":                   "line 2: b: elements more than 2 deep",
		"<a>\n<b " + strings.Repeat("x", 100):    "line 1: file of 107 bytes; at most 100 are read",
		"<a>\n<b x='1' x='2'/></a>":              `line 2: a: <b> has the attribute "x" twice`,
		"<a/>\n<b/>":                             `line 2: second root element "b"`,
		"<a>\n<%s>\n</b>":                        "line 2: a: expected element name after <",
		"<?xml version='1.0' encoding='x'?><a/>": `line 1: encoding "x"; UTF-8 is wanted`,
	} {
		if _, err := Read([]byte(text), Limits{Bytes: 100, Elements: 4, Depth: 2}); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
