package emulate

import (
	"encoding"
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

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// Limits of a profile's file.
const (
	// MaxProfileSize is in bytes. The built-in profiles have less than 4 KiB, comments and all.
	MaxProfileSize = 16 << 10
	// maxTokens bounds the work of the YAML parser, whose time grows faster than the text.
	maxTokens = 4_000
	// maxDepth bounds nesting; the parser recurses, and a Go program cannot recover from an
	// exhausted stack. A profile needs four levels.
	maxDepth = 8
)

// A ProfileError is what is wrong with a profile's file.
type ProfileError struct {
	File         string // as given to ParseProfile
	Line, Column int    // from 1; 0 where the fault has no place
	What         string
}

// Error returns "file:line:column: what".
func (e *ProfileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.What
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.What)
}

// ParseProfile reads a profile from YAML and checks that such a machine can be made. The file's
// name is only used in messages. Keys that a profile does not have are refused, and so are anchors,
// tags and several documents. The error is a *[ProfileError].
func ParseProfile(name string, data []byte) (*Profile, error) {
	fail := func(at *token.Token, format string, args ...any) error {
		e := &ProfileError{File: name, What: fmt.Sprintf(format, args...)}
		if at != nil && at.Position != nil {
			e.Line, e.Column = at.Position.Line, at.Position.Column
		}
		return e
	}
	if len(data) > MaxProfileSize {
		return nil, fail(nil, "%d bytes, and a profile has at most %d", len(data), MaxProfileSize)
	}
	text := strings.TrimPrefix(string(data), "\ufeff") // what some editors write first
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, fail(nil, "not UTF-8 text")
	}
	file, err := parse(text, fail)
	if err != nil {
		return nil, err
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, fail(first(doc.Body), "more than one document: put each profile in a file of its own")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, fail(nil, "empty: start with \"name: my-server\"")
	}
	p := new(Profile)
	if err := decode(body, p); err != nil {
		var y yaml.Error
		if errors.As(err, &y) {
			return nil, fail(y.GetToken(), "%s", explain(y))
		}
		return nil, fail(first(placeOf(body, err)), "%v", err)
	}
	if f := p.check(); f != nil {
		return nil, fail(tokenAt(file, f.path), "%s", f.what)
	}
	return p, nil
}

// parse makes a tree of the text, and refuses what a profile never needs before the parser sees it.
func parse(text string, fail func(*token.Token, string, ...any) error) (_ *ast.File, err error) {
	// The file can hold anything: a panic of the YAML library must not take the program down.
	defer func() {
		if recover() != nil {
			err = fail(nil, "not valid YAML")
		}
	}()
	tokens := lexer.Tokenize(text)
	if len(tokens) > maxTokens {
		return nil, fail(nil, "%d keys and values, brackets counted, and a profile has at most %d", len(tokens),
			maxTokens)
	}
	open, dashes := 0, 0 // nesting by brackets, and by "- - -" in a row
	for _, t := range tokens {
		dashes++
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType,
			token.MappingKeyType:
			return nil, fail(t, "%q: a profile has plain keys and values only", t.Value)
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		}
		if t.Type != token.SequenceEntryType {
			dashes = 0
		}
		// Indentation nests too; a column is at least one level's.
		if open > maxDepth || dashes > maxDepth || t.Position != nil && t.Position.IndentNum > 16*maxDepth {
			return nil, fail(t, "nested too deeply")
		}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) {
			return nil, fail(y.GetToken(), "%s", y.GetMessage())
		}
		return nil, fail(nil, "not valid YAML: %v", err)
	}
	return file, nil
}

// decode fills p from the tree. The library may panic on trees that it did not expect.
func decode(body ast.Node, p *Profile) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not a profile: %v", r)
		}
	}()
	return yaml.NodeToValue(body, p, yaml.Strict())
}

// placeOf returns the node of a value that does not parse with the error, or the tree: the library
// passes the errors of texts on without a place.
func placeOf(body ast.Node, err error) ast.Node {
	found := body
	ast.Walk(visitor(func(n ast.Node) bool {
		s, ok := n.(*ast.StringNode)
		text := ""
		if ok {
			text = s.Value
		} else if i, isInt := n.(*ast.IntegerNode); isInt { // 8 where 8GiB is meant
			text = i.GetToken().Value
		} else {
			return found == body
		}
		var address topology.PCIAddr
		var size lab.Bytes
		for _, u := range []encoding.TextUnmarshaler{&address, &size} {
			if e := u.UnmarshalText([]byte(text)); e != nil && strings.Contains(err.Error(), e.Error()) &&
				found == body {
				found = n
			}
		}
		return found == body
	}), body)
	return found
}

// A visitor is a function that is called for each node, and says whether to go on below it.
type visitor func(ast.Node) bool

// Visit is called by ast.Walk.
func (v visitor) Visit(n ast.Node) ast.Visitor {
	if v(n) {
		return v
	}
	return nil
}

// explain words an error of the YAML library, and says which keys there are where one is unknown.
func explain(y yaml.Error) string {
	what := y.GetMessage()
	if _, ok := y.(*yaml.UnknownFieldError); ok {
		what = strings.Replace(what, "unknown field", "unknown key", 1)
		if near := nearestKey(y.GetToken()); near != "" {
			what += "; did you mean " + near + "?"
		}
	}
	return what
}

// nearestKey returns the key of a profile that begins as the token does, or that the token begins
// with: "numa" for numa_node, "gpu" for gpus.
func nearestKey(t *token.Token) string {
	if t == nil || t.Value == "" {
		return ""
	}
	types := []any{NUMANode{}, GPU{}, NIC{}, Switch{}}
	if t.Position != nil && t.Position.Column == 1 {
		types = []any{Profile{}}
	}
	for _, v := range types {
		for f := range reflect.TypeOf(v).Fields() {
			key := f.Tag.Get("yaml")
			if strings.HasPrefix(key, t.Value) || strings.HasPrefix(t.Value, key) {
				return key
			}
		}
	}
	return ""
}

// tokenAt returns the token that a path leads to, or the nearest above it that is there.
func tokenAt(file *ast.File, path string) *token.Token {
	for path != "" {
		if p, err := yaml.PathString(path); err == nil {
			if n, err := p.FilterFile(file); err == nil && n != nil && n.GetToken() != nil {
				return first(n)
			}
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return nil
}

// first returns where a node begins: the token of a mapping is the colon of its first entry.
func first(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}
