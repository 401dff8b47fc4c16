package lab

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxDepth bounds nesting. A lab file needs four levels; the YAML parser recurses, and a Go program cannot
	// recover from an exhausted stack.
	maxDepth = 16
	// maxTokens bounds the work: the time of the YAML parser grows with the square of the keys, 4 s for 24,000 of them.
	// 500 nodes with every key written out, 8 NICs each and our own comments are 16,000 tokens.
	maxTokens = 30_000
)

// place is a position in the file, both from 1; the zero place is nowhere.
type place struct{ line, column int }

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// source is the text of a lab file and the faults found in it so far.
type source struct {
	file  string
	text  string
	lines []string // of text, split once: a bad file can have thousands of faults
	errs  Errors
}

// fail records a fault. The caller fills in everything but file, place and excerpt.
func (s *source) fail(at place, e Error) {
	e.File, e.Line, e.Column = s.file, at.line, at.column
	e.Excerpt = excerpt(s.lines, at.line, at.column)
	s.errs = append(s.errs, &e)
}

// read turns the text into the body of its only document, or records why it cannot and returns nil.
func (s *source) read(data []byte) ast.Node {
	if len(data) > MaxFileSize {
		s.fail(place{}, Error{What: "file too large", Have: fmt.Sprintf("%d bytes", len(data)),
			Want: fmt.Sprintf("at most %d", MaxFileSize), Fix: "use count and defaults instead of repeated nodes"})
		return nil
	}
	// A byte order mark is what some editors write first; YAML allows it (section 5.2).
	s.text = strings.TrimPrefix(string(data), "\ufeff")
	s.lines = strings.Split(s.text, "\n")
	if at, what := firstInvalid(s.text); what != "" {
		s.fail(at, Error{What: what, Fix: "save the file as UTF-8 text"})
		return nil
	}
	tokens, ok := s.tokens()
	if !ok {
		return nil
	}
	file, err := parse(tokens)
	if err != nil {
		s.syntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			at := placeOf(doc.Start)
			if at == (place{}) {
				at = placeOfNode(doc.Body)
			}
			s.fail(at, Error{What: "more than one document in the file", Want: "one lab",
				Fix: "put every lab in a file of its own"})
			return nil
		default:
			body = doc.Body
		}
	}
	if body == nil {
		s.fail(place{}, Error{What: "empty lab file", Want: "a name and nodes",
			Fix: "start with \"name: pair\" and \"nodes: {vm: {count: 2}}\""})
	}
	return body
}

// firstInvalid returns the place of the first byte that YAML does not allow, and what is wrong with it: "" if none is.
func firstInvalid(text string) (_ place, what string) {
	at := place{1, 1}
	for i, r := range text {
		if r == 0 { // UTF-16 without a byte order mark is full of them
			return at, "NUL byte in the text"
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return at, "not UTF-8 text"
			}
		}
		at.column++
		if r == '\n' {
			at = place{at.line + 1, 1}
		}
	}
	return place{}, ""
}

// tokens scans the text and refuses what a lab file never needs before the parser sees it. Anchors, aliases and merge
// keys go: a page of them can stand for gigabytes, and defaults and count say the same in less.
func (s *source) tokens() (_ token.Tokens, ok bool) {
	tokens, err := tokenize(s.text)
	if err != nil {
		s.syntax(err)
		return nil, false
	}
	if len(tokens) > maxTokens {
		s.fail(place{}, Error{What: "too many keys and values", Have: fmt.Sprintf("%d tokens", len(tokens)),
			Want: fmt.Sprintf("at most %d", maxTokens), Fix: "use count and defaults instead of repeated nodes"})
		return nil, false
	}
	open, dashes := 0, 0 // nesting by brackets, and by "- - -" in a row
	for _, t := range tokens {
		refuse := ""
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			refuse = "anchors, aliases and merge keys are not used in lab files"
		case token.TagType:
			refuse = "tags are not used in lab files"
		case token.DirectiveType:
			refuse = "directives are not used in lab files"
		case token.MappingKeyType:
			refuse = "keys with \"?\" are not used in lab files"
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
			if t.Type == token.AnchorType || t.Type == token.AliasType || t.Type == token.MergeKeyType {
				fix = "use defaults for shared settings and count for equal nodes"
			}
			s.fail(placeOf(t), Error{What: refuse, Have: quote(strings.TrimSpace(t.Value)), Fix: fix})
			return nil, false
		}
		if open > maxDepth || dashes > maxDepth {
			s.fail(placeOf(t), Error{What: "nested too deeply", Want: fmt.Sprintf("at most %d levels", maxDepth)})
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

func tokenize(text string) (token.Tokens, error) {
	return guard(func() (token.Tokens, error) { return lexer.Tokenize(text), nil })
}

// parse allows duplicate keys because the decoder reports them better, with the line of the first.
func parse(tokens token.Tokens) (*ast.File, error) {
	return guard(func() (*ast.File, error) { return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) })
}

// syntax records an error of the YAML library.
func (s *source) syntax(err error) {
	var y yaml.Error
	if !errors.As(err, &y) {
		s.fail(place{}, Error{What: err.Error(), Fix: "check the quotes, brackets and indentation"})
		return
	}
	fix := "check the quotes, brackets and indentation"
	if strings.Contains(y.GetMessage(), "tab") || strings.Contains(y.GetMessage(), "\t") {
		fix = "indent with spaces; YAML does not allow tabs"
	}
	what := strings.ReplaceAll(y.GetMessage(), "\t", "\\t")
	s.fail(placeOf(y.GetToken()), Error{What: "not valid YAML: " + shorten(strings.ToValidUTF8(what, "?")), Fix: fix})
}

// placeOfNode returns where a value begins. A block mapping begins at its first key, not at the colon that the YAML
// library gives.
func placeOfNode(n ast.Node) place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return placeOfNode(n.Values[0])
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key.GetToken())
	}
	return placeOf(n.GetToken())
}
