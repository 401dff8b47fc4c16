// Package strictyaml reads small YAML files that people write, and reports all errors with their exact position.
//
// Some YAML is dangerous: a page of aliases can stand for gigabytes, and deep nesting exhausts the stack. So anchors,
// tags, directives and a second document are refused before the parser sees them. Size, depth and the number of keys
// have limits, and a panic of the YAML library becomes an error.
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

// A Format describes a kind of file. The limits must be set, the texts of advice may be empty.
type Format struct {
	// Name is the contents of the file, such as "lab", and File the kind, such as "lab file".
	Name, File string
	// MaxSize is in bytes.
	MaxSize int
	// MaxTokens limits the work: the YAML parser's time grows with the square of the keys, 4 s for 24,000 keys.
	MaxTokens int
	// MaxDepth limits nesting: the YAML parser recurses, and a Go program cannot recover from an exhausted stack.
	MaxDepth int
	// EmptyWant and EmptyFix are for an empty file.
	EmptyWant, EmptyFix string
	// LargeFix and AliasFix suggest an alternative to repetition and to anchors.
	LargeFix, AliasFix string
	// LooseText accepts numbers and booleans as text, as written.
	LooseText bool
	// NeedValues makes a key without a value an error, unless it would be a list or a mapping.
	NeedValues bool
	// Rules maps the tag "rule" of fields to Rules, and Types maps types.
	Rules map[string]Rule
	Types map[reflect.Type]Rule
	// UnknownFix suggests the right section for an unknown key, or "" for near.
	UnknownFix func(path, name, near string) string
	// MappingFix is for another value in place of a mapping.
	MappingFix func(path string, n ast.Node) string
}

// Place is a position from 1; the zero Place is none.
type Place struct{ Line, Column int }

func TokenPlace(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{t.Position.Line, t.Position.Column}
}

// A Reader reads one file and collects its errors.
type Reader struct {
	Format *Format
	Errs   Errors
	Keys   map[string]Place // of a dotted path
	Values map[string]Place // of a dotted path

	file  string
	text  string
	lines []string        // split once because a bad file can have thousands of errors
	meant map[string]bool // keys that misspelt keys probably meant
	keys  map[reflect.Type]*structKeys
}

// New takes the file's name only for messages.
func New(f *Format, file string) *Reader {
	return &Reader{Format: f, file: file, Keys: map[string]Place{}, Values: map[string]Place{},
		meant: map[string]bool{}, keys: map[reflect.Type]*structKeys{}}
}

// Fail records an error. The caller sets everything but file, position and excerpt.
func (d *Reader) Fail(at Place, e Error) {
	e.File, e.Line, e.Column = d.file, at.Line, at.Column
	e.Excerpt = excerpt(d.lines, at.Line, at.Column)
	d.Errs = append(d.Errs, &e)
}

// Read returns the body of the only document. On error it records the reason and returns nil.
func (d *Reader) Read(data []byte) ast.Node {
	f := d.Format
	if len(data) > f.MaxSize {
		d.Fail(Place{}, Error{What: "file too large", Have: fmt.Sprintf("%d bytes", len(data)),
			Want: fmt.Sprintf("at most %d", f.MaxSize), Fix: f.LargeFix})
		return nil
	}
	// YAML allows a byte order mark (section 5.2).
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

// firstInvalid returns the place of the first byte that YAML does not allow, or "".
func firstInvalid(text string) (_ Place, what string) {
	at := Place{1, 1}
	for i, r := range text {
		if r == 0 { // UTF-16 without a byte order mark contains many zeros
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

// tokens refuses anchors, aliases and merge keys before the parser sees them.
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
	// Nesting by indentation is limited by MaxTokens and MaxSize: each level costs a line of growing length.
	open, dashes := 0, 0 // by brackets, and by "- - -" in a row
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

var errParserPanic = errors.New("malformed YAML")

// guard turns a panic of the YAML library into an error. Fuzzing has found none so far.
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

// PlaceOf returns the first key of a block mapping, not the colon that the YAML library reports.
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
