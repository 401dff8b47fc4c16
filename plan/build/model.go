package build

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A Model is what was measured on a host, in place of the published figures. Its file is JSON or YAML (plan --model).
type Model struct {
	// Weights replaces single weights by their JSON names: {"gpu_nic_path": 700}.
	Weights map[string]int64 `json:"weights,omitempty"`
	// Pairs are measured bandwidths between GPUs and NICs.
	Pairs []MeasuredPair `json:"pairs,omitempty"`
	// Source says where the figures are from; it is repeated as evidence.
	Source string `json:"source,omitempty"`
}

// A MeasuredPair is the bandwidth between a GPU and a NIC.
type MeasuredPair struct {
	GPU  string  `json:"gpu"`  // address or name
	NIC  string  `json:"nic"`  // likewise
	Gbps float64 `json:"gbps"` // more than 0; the best pair of the file has no loss
}

// Limits of a model's file.
const (
	// MaxModelSize is in bytes. A thousand pairs take 100 KiB.
	MaxModelSize = 1 << 20
	// maxModelTokens bounds the work of the YAML parser, whose time grows faster than the text. A
	// thousand pairs are 15,000 tokens.
	maxModelTokens = 60_000
	// maxModelDepth bounds nesting; the parser recurses, and a Go program cannot recover from an
	// exhausted stack. A model needs three levels.
	maxModelDepth = 8
)

// A ModelError is what is wrong with a model's file.
type ModelError struct {
	File         string // as given to ParseModel
	Line, Column int    // from 1; 0 where the fault has no place
	What         string
}

// Error returns "file:line:column: what".
func (e *ModelError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.What
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.What)
}

// ParseModel reads a Model from YAML, of which JSON is a part. The name is only used in messages.
// Keys that a Model does not have are refused, and so are anchors, tags and several documents: a
// file of figures needs none, and they can make a small file large. Whether weights and devices are
// called so, and whether the figures can be right, [Problem] says. The error is a *[ModelError].
func ParseModel(name string, data []byte) (*Model, error) {
	r := &modelReader{file: name}
	m, err := r.read(data)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// A modelReader reads one file.
type modelReader struct{ file string }

// fail makes an error at a token, or at no place.
func (r *modelReader) fail(at *token.Token, format string, args ...any) error {
	e := &ModelError{File: r.file, What: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		e.Line, e.Column = at.Position.Line, at.Position.Column
	}
	return e
}

const modelWant = "want weights, pairs or both"

func (r *modelReader) read(data []byte) (*Model, error) {
	if len(data) > MaxModelSize {
		return nil, r.fail(nil, "%d bytes, and a model has at most %d", len(data), MaxModelSize)
	}
	text := strings.TrimPrefix(string(data), "\ufeff") // what some editors write first
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, r.fail(nil, "not UTF-8 text")
	}
	file, err := r.parse(text)
	if err != nil {
		return nil, err
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, r.fail(doc.Body.GetToken(), "more than one document: put each model in a file of its own")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, r.fail(nil, "empty: %s", modelWant)
	}
	m, err := r.model(body)
	if err == nil && len(m.Weights) == 0 && len(m.Pairs) == 0 {
		return nil, r.fail(body.GetToken(), "neither weights nor pairs: %s", modelWant)
	}
	return m, err
}

// parse makes a tree of the text, and refuses what a model never needs before the parser sees it.
func (r *modelReader) parse(text string) (_ *ast.File, err error) {
	// The file can hold anything: a panic of the YAML library must not take the program down.
	defer func() {
		if recover() != nil {
			err = r.fail(nil, "not valid YAML")
		}
	}()
	tokens := lexer.Tokenize(text)
	if len(tokens) > maxModelTokens {
		return nil, r.fail(nil, "%d keys and values, brackets counted, and a model has at most %d", len(tokens),
			maxModelTokens)
	}
	open, dashes := 0, 0 // nesting by brackets, and by "- - -" in a row
	for _, t := range tokens {
		dashes++
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType,
			token.MappingKeyType:
			return nil, r.fail(t, "%q: a model has plain keys and values only", t.Value)
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		}
		if t.Type != token.SequenceEntryType {
			dashes = 0
		}
		if open > maxModelDepth || dashes > maxModelDepth {
			return nil, r.fail(t, "nested too deeply")
		}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) {
			return nil, r.fail(y.GetToken(), "not valid YAML: %s", strings.ToValidUTF8(plainLine(y.GetMessage()), "?"))
		}
		return nil, r.fail(nil, "not valid YAML: %s", plainLine(err.Error()))
	}
	return file, nil
}

// plainLine keeps what a text of the file could do to a terminal out of a message.
func plainLine(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// entries returns the keys and values of a mapping.
func (r *modelReader) entries(n ast.Node, what string) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, r.fail(n.GetToken(), "%s: want keys and values", what)
}

// model reads the whole document.
func (r *modelReader) model(n ast.Node) (*Model, error) {
	entries, err := r.entries(n, "the model")
	if err != nil {
		return nil, err
	}
	m := &Model{}
	for _, e := range entries {
		switch key := e.Key.GetToken(); key.Value {
		case "weights":
			m.Weights, err = r.weights(e.Value)
		case "pairs":
			m.Pairs, err = r.pairs(e.Value)
		case "source":
			m.Source, err = r.text(e.Value, key.Value)
		default:
			err = r.fail(key, "%q: no such key: a model has weights, pairs and source", key.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// weights reads whole numbers by name.
func (r *modelReader) weights(n ast.Node) (map[string]int64, error) {
	entries, err := r.entries(n, "weights")
	if err != nil {
		return nil, err
	}
	weights := make(map[string]int64, len(entries))
	for _, e := range entries {
		key, value := e.Key.GetToken(), e.Value.GetToken()
		if e.Value.Type() != ast.IntegerType {
			return nil, r.fail(value, "weights: %s: %q: want a whole number of basis points", plainText(key.Value),
				value.Value)
		}
		w, err := strconv.ParseInt(value.Value, 10, 64)
		if err != nil {
			return nil, r.fail(value, "weights: %s: %q: want a whole number from 0 to %d", plainText(key.Value),
				value.Value, MaxWeight)
		}
		weights[key.Value] = w
	}
	return weights, nil
}

// pairs reads what was measured between devices.
func (r *modelReader) pairs(n ast.Node) ([]MeasuredPair, error) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, r.fail(n.GetToken(), "pairs: want a list of {gpu: GPU0, nic: NIC0, gbps: 392}")
	}
	pairs := make([]MeasuredPair, 0, len(list.Values))
	for _, v := range list.Values {
		entries, err := r.entries(v, "pairs")
		if err != nil {
			return nil, err
		}
		var p MeasuredPair
		seen := map[string]bool{}
		for _, e := range entries {
			key := e.Key.GetToken()
			seen[key.Value] = true
			switch key.Value {
			case "gpu":
				p.GPU, err = r.text(e.Value, "gpu")
			case "nic":
				p.NIC, err = r.text(e.Value, "nic")
			case "gbps":
				p.Gbps, err = r.number(e.Value)
			default:
				err = r.fail(key, "pairs: %q: no such key: a pair has gpu, nic and gbps", key.Value)
			}
			if err != nil {
				return nil, err
			}
		}
		for _, key := range []string{"gpu", "nic", "gbps"} {
			if !seen[key] {
				return nil, r.fail(v.GetToken(), "pairs: %s is missing: a pair has gpu, nic and gbps", key)
			}
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// text reads a text that stands on one line, or in a block.
func (r *modelReader) text(n ast.Node, key string) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	}
	return "", r.fail(n.GetToken(), "%s: %q: want text: put it in quotes", key, n.GetToken().Value)
}

// number reads a bandwidth. The parser takes JSON's 3e2 for text.
func (r *modelReader) number(n ast.Node) (float64, error) {
	t := n.GetToken()
	plain := n.Type() == ast.IntegerType || n.Type() == ast.FloatType || n.Type() == ast.StringType &&
		t.Type == token.StringType
	if v, err := strconv.ParseFloat(t.Value, 64); plain && err == nil && strings.Trim(t.Value,
		"0123456789+-.eE") == "" {
		return v, nil
	}
	return 0, r.fail(t, "gbps: %q: want a number of Gb/s", t.Value)
}
