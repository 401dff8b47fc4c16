package show

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // style sheets and script
	"encoding/base64"
	"html/template"
	"io"
)

// Base is for pages whose pictures have their own style.
//
//go:embed base.css
var Base string

//go:embed page.css
var charts string

// Style is Base and the style of charts. It is the only text in pages that is not escaped.
var Style = Base + charts

// TileStyle is for figures in large type at the head of a page: dl.tiles. It follows Style.
//
//go:embed tiles.css
var TileStyle string

// TileTemplate defines the template "tiles", which shows a list of tiles.
//
//go:embed tiles.html
var TileTemplate string

// A Tile shows one figure in large type at the head of a page.
type Tile struct {
	Name, Figure, Unit, Note string
	Loud                     bool // it throws doubt on the other figures
}

// SortScript sorts tables of class sort by a clicked head. Pages work without it.
//
//go:embed sort.js
var SortScript string

// SortStyle is for sortable tables and the download button. It follows Style.
//
//go:embed sort.css
var SortStyle string

// A Head has the style sheet and the script. The content security policy has their hashes, so that a browser uses
// nothing injected by a text.
type Head struct {
	Style                 template.CSS // ours and not escaped
	Script                template.JS
	StyleHash, ScriptHash string
}

// NewHead returns the head of a page.
func NewHead(style, script string) Head {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}
	return Head{template.CSS(style), template.JS(script), hash(style), hash(script)}
}

// Execute buffers the output of a template, because templates write thousands of small pieces.
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

// CSV is the media type of tables for download.
const CSV = "text/csv;charset=utf-8"
