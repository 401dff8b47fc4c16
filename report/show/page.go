package show

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"io"
)

// A Head is the style sheet and the script of a page that needs nothing but itself. The content security policy in
// the page names their hashes, so that a browser applies and runs these and nothing that a text smuggled in.
type Head struct {
	Style                 template.CSS // not escaped: it is ours, as Script is
	Script                template.JS
	StyleHash, ScriptHash string
}

// NewHead returns the head of a page with these.
func NewHead(style, script string) Head {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}
	return Head{template.CSS(style), template.JS(script), hash(style), hash(script)}
}

// Execute writes what a template makes of data. Templates write a page in thousands of small pieces.
func Execute(w io.Writer, t *template.Template, data any) error {
	b := bufio.NewWriter(w)
	if err := t.Execute(b, data); err != nil {
		return err
	}
	return b.Flush()
}

// DataURL is the address of content that stands in the address itself.
func DataURL[T string | []byte](kind string, content T) template.URL {
	return template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString([]byte(content)))
}

// CSV is the kind of the tables that a page offers for download.
const CSV = "text/csv;charset=utf-8"
