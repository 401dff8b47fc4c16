// Package strictyaml reads small YAML files that people write, and tells them exactly what is wrong and where.
//
// YAML can do more than such a file needs, and a part of that is dangerous: aliases of a page stand for gigabytes, and
// deep nesting exhausts the stack. So anchors, tags, directives and a second document are refused before the parser
// sees them, size, depth and the number of keys have limits, and a panic of the YAML library is an error. Unknown keys,
// keys that come twice and values of a wrong type are faults with a place and with advice; reading goes on after a
// fault, so that one run shows all of them.
package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A Format is a kind of file: what messages call it, and how much of it is read. The limits must be set; the texts of
// advice may be left out.
type Format struct {
	// Name is what one file holds, such as "lab", and File what it is called, such as "lab file".
	Name, File string
	// MaxSize is in bytes.
	MaxSize int
	// MaxTokens bounds the work: the time of the YAML parser grows with the square of the keys, 4 s for 24,000 of them.
	MaxTokens int
	// MaxDepth bounds nesting: the YAML parser recurses, and a Go program cannot recover from an exhausted stack.
	MaxDepth int
	// EmptyWant and EmptyFix say what is missing in an empty file, and what to begin with.
	EmptyWant, EmptyFix string
	// LargeFix and AliasFix say what to do in place of repeating much, and in place of anchors.
	LargeFix, AliasFix string
	// LooseText takes numbers and truth values as texts, as they were written.
	LooseText bool
	// NeedValues makes a key without a value a fault, unless its value would be a list or a mapping.
	NeedValues bool
	// Rules read fields by their tag "rule", and Types values by their type.
	Rules map[string]Rule
	Types map[reflect.Type]Rule
	// UnknownFix says where an unknown key belongs; "" for the nearest known key, which may be "", too.
	UnknownFix func(path, name, near string) string
	// MappingFix advises on what was written in place of a mapping.
	MappingFix func(path string, n ast.Node) string
}

// Place is a position in the file, both from 1; the zero place is nowhere.
type Place struct{ Line, Column int }

func TokenPlace(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{t.Position.Line, t.Position.Column}
}

// A Reader reads one file. It holds the faults found so far.
type Reader struct {
	Format *Format
	Errs   Errors
	Keys   map[string]Place // where the key of a dotted path was written
	Values map[string]Place // where its value was written

	file  string
	text  string
	lines []string        // of text, split once: a bad file can have thousands of faults
	meant map[string]bool // keys that an unknown key was probably meant to be
	keys  map[reflect.Type]*structKeys
}

// New makes a Reader of a file in a format. The file's name is only used in messages.
func New(f *Format, file string) *Reader {
	return &Reader{Format: f, file: file, Keys: map[string]Place{}, Values: map[string]Place{},
		meant: map[string]bool{}, keys: map[reflect.Type]*structKeys{}}
}

// Fail records a fault. The caller fills in everything but file, place and excerpt.
func (d *Reader) Fail(at Place, e Error) {
	e.File, e.Line, e.Column = d.file, at.Line, at.Column
	e.Excerpt = excerpt(d.lines, at.Line, at.Column)
	d.Errs = append(d.Errs, &e)
}

// Read turns the text into the body of its only document, or records why it cannot and returns nil.
func (d *Reader) Read(data []byte) ast.Node {
	f := d.Format
	if len(data) > f.MaxSize {
		d.Fail(Place{}, Error{What: "file too large", Have: fmt.Sprintf("%d bytes", len(data)),
			Want: fmt.Sprintf("at most %d", f.MaxSize), Fix: f.LargeFix})
		return nil
	}
	// A byte order mark is what some editors write first; YAML allows it (section 5.2).
	d.text = strings.TrimPrefix(string(data), "\ufeff")
	d.lines = strings.Split(d.text, "\n")
	if at, what := firstInvalid(d.text); what != "" {
		d.Fail(at, Error{What: what, Fix: "save the file as UTF-8 text"})
		return nil
	}
	tokens, ok := d.tokens()
	if !ok {
		return nil
	}
	file, err := parse(tokens)
	if err != nil {
		d.syntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			at := TokenPlace(doc.Start)
			if at == (Place{}) {
				at = PlaceOf(doc.Body)
			}
			d.Fail(at, Error{What: "more than one document in the file", Want: "one " + f.Name,
				Fix: "put every " + f.Name + " in a file of its own"})
			return nil
		default:
			body = doc.Body
		}
	}
	if body == nil {
		d.Fail(Place{}, Error{What: "empty " + f.File, Want: f.EmptyWant, Fix: f.EmptyFix})
	}
	return body
}

// firstInvalid returns the place of the first byte that YAML does not allow, and what is wrong with it: "" if none is.
func firstInvalid(text string) (_ Place, what string) {
	at := Place{1, 1}
	for i, r := range text {
		if r == 0 { // UTF-16 without a byte order mark is full of them
			return at, "NUL byte in the text"
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return at, "not UTF-8 text"
			}
		}
		at.Column++
		if r == '\n' {
			at = Place{at.Line + 1, 1}
		}
	}
	return Place{}, ""
}

// tokens scans the text and refuses what such a file never needs before the parser sees it. Anchors, aliases and merge
// keys go: a page of them can stand for gigabytes.
func (d *Reader) tokens() (_ token.Tokens, ok bool) {
	tokens, err := Tokenize(d.text)
	if err != nil {
		d.syntax(err)
		return nil, false
	}
	if len(tokens) > d.Format.MaxTokens {
		d.Fail(Place{}, Error{What: "too many keys and values", Have: fmt.Sprintf("%d tokens", len(tokens)),
			Want: fmt.Sprintf("at most %d", d.Format.MaxTokens), Fix: d.Format.LargeFix})
		return nil, false
	}
	// Nesting by indentation needs no count here: MaxTokens and MaxSize bound it, since each level of it costs
	// a line of growing length.
	open, dashes := 0, 0 // nesting by brackets, and by "- - -" in a row
	for _, t := range tokens {
		refuse := ""
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			refuse = "anchors, aliases and merge keys"
		case token.TagType:
			refuse = "tags"
		case token.DirectiveType:
			refuse = "directives"
		case token.MappingKeyType:
			refuse = "keys with \"?\""
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		}
		if t.Type == token.SequenceEntryType {
			dashes++
		} else {
			dashes = 0
		}
		if refuse != "" {
			fix := "write plain keys and values"
			if d.Format.AliasFix != "" &&
				(t.Type == token.AnchorType || t.Type == token.AliasType || t.Type == token.MergeKeyType) {
				fix = d.Format.AliasFix
			}
			d.Fail(TokenPlace(t), Error{What: refuse + " are not used in " + d.Format.File + "s",
				Have: Quote(strings.TrimSpace(t.Value)), Fix: fix})
			return nil, false
		}
		if open > d.Format.MaxDepth || dashes > d.Format.MaxDepth {
			d.Fail(TokenPlace(t), Error{What: "nested too deeply", Want: fmt.Sprintf("at most %d levels",
				d.Format.MaxDepth)})
			return nil, false
		}
	}
	return tokens, true
}

// errParserPanic stands for a panic of the YAML library.
var errParserPanic = errors.New("malformed YAML")

// guard calls the YAML library. The library is large and the file can hold anything: a panic there must not take the
// program down, so it is an error like any other. (Fuzzing has found none so far.)
func guard[T any](call func() (T, error)) (result T, err error) {
	defer func() {
		if recover() != nil {
			err = errParserPanic
		}
	}()
	return call()
}

func Tokenize(text string) (token.Tokens, error) {
	return guard(func() (token.Tokens, error) { return lexer.Tokenize(text), nil })
}

// parse allows duplicate keys because the decoder reports them better, with the line of the first.
func parse(tokens token.Tokens) (*ast.File, error) {
	return guard(func() (*ast.File, error) { return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) })
}

// syntax records an error of the YAML library.
func (d *Reader) syntax(err error) {
	fix := "check the quotes, brackets and indentation"
	y, ok := errors.AsType[yaml.Error](err)
	if !ok {
		d.Fail(Place{}, Error{What: err.Error(), Fix: fix})
		return
	}
	if strings.Contains(y.GetMessage(), "tab") || strings.Contains(y.GetMessage(), "\t") {
		fix = "indent with spaces; YAML does not allow tabs"
	}
	what := strings.ReplaceAll(y.GetMessage(), "\t", "\\t")
	d.Fail(TokenPlace(y.GetToken()), Error{What: "not valid YAML: " + Shorten(strings.ToValidUTF8(what, "?")),
		Fix: fix})
}

// PlaceOf returns where a value begins. A block mapping begins at its first key, not at the colon that the YAML
// library gives.
func PlaceOf(n ast.Node) Place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return PlaceOf(n.Values[0])
		}
	case *ast.MappingValueNode:
		return TokenPlace(n.Key.GetToken())
	}
	return TokenPlace(n.GetToken())
}
