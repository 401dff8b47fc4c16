package show

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // for the style sheets and the script
	"encoding/base64"
	"html/template"
	"io"
)

// Base is the style of text and tables, for pages whose pictures have their own style.
//
//go:embed base.css
var Base string

//go:embed page.css
var charts string

// Style is the style sheet of the pages: Base and the style of charts. It is the only text in them that is not
// escaped.
var Style = Base + charts

// SortScript sorts the tables of class sort by a clicked column head. Pages work without it, too.
//
//go:embed sort.js
var SortScript string

// SortStyle is the style of sortable tables and of the button that downloads their figures. It follows Style.
//
//go:embed sort.css
var SortStyle string

// A Head holds the style sheet and the script of a self-contained page. The page's content security policy has their
// hashes, so that a browser uses only these, and nothing injected by a text.
type Head struct {
	Style                 template.CSS // Style and Script are ours and not escaped
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

// Execute writes the output of a template. It buffers the output, because templates write in thousands of small
// pieces.
func Execute(w io.Writer, t *template.Template, data any) error {
	b := bufio.NewWriter(w)
	if err := t.Execute(b, data); err != nil {
		return err
	}
	return b.Flush()
}

// DataURL returns a URL that contains its content.
func DataURL[T string | []byte](kind string, content T) template.URL {
	return template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString([]byte(content)))
}

// CSV is the media type of tables offered for download.
const CSV = "text/csv;charset=utf-8"
