package show

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // for the style sheets and the script
	"encoding/base64"
	"html/template"
	"io"
)

// Base is the style of text and tables, for pages whose pictures have a style of their own.
//
//go:embed base.css
var Base string

//go:embed page.css
var charts string

// Style is the style sheet of the pages: Base, and charts. It is the one text in them that is not escaped.
var Style = Base + charts

// SortScript sorts the tables of class sort by the column whose head is pressed. Pages have it
// beside nothing else that runs, and work without it.
//
//go:embed sort.js
var SortScript string

// SortStyle is the style of those tables, and of the button that downloads their figures; it goes behind Style.
//
//go:embed sort.css
var SortStyle string

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
