package strictyaml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/rackless/rackless/internal/words"
)

// Mapping calls each for present keys of a fixed set, with the index in names and the dotted path.
func (d *Reader) Mapping(path string, n ast.Node, names []string, each func(i int, path string, n ast.Node)) {
	d.Entries(path, n, func(name string, at Place, value ast.Node) {
		if i := slices.Index(names, name); i >= 0 {
			each(i, Join(path, name), value)
			return
		}
		// The format knows keys that belong elsewhere. The key that was probably meant counts as written, so that its
		// absence is not a second error.
		near, fix := Nearest(name, names), ""
		if d.Format.UnknownFix != nil {
			fix = d.Format.UnknownFix(path, name, near)
		}
		if fix == "" && near != "" {
			fix = "did you mean " + near + "?"
			d.meant[Join(path, near)] = true
		}
		d.Fail(at, Error{Key: path, What: "unknown key", Have: Quote(name), Want: words.Or(names), Fix: fix})
	})
}

// Has reports whether a key was written, even if misspelt.
func (d *Reader) Has(path string) bool {
	_, ok := d.Keys[path]
	return ok || d.meant[path]
}

// Entries records an error for keys that are not text or duplicate.
func (d *Reader) Entries(path string, n ast.Node, each func(name string, at Place, value ast.Node)) {
	d.Pairs(path, n, func(k ast.Node) (string, *Error) {
		if s, ok := k.(*ast.StringNode); ok {
			return s.Value, nil
		}
		// 007 and 7, or ~ and null, are the same key for some YAML readers and different ones for others.
		return "", &Error{What: "key is not text", Have: Describe(k), Fix: QuoteFix(k)}
	}, each)
}

// Pairs records an error for keys that read refuses or that are duplicate.
func (d *Reader) Pairs(path string, n ast.Node, read func(ast.Node) (string, *Error), each func(name string, at Place,
	value ast.Node)) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		fix := ""
		if d.Format.MappingFix != nil {
			fix = d.Format.MappingFix(path, n)
		}
		d.Fail(PlaceOf(n), Error{Key: path, What: "wrong type", Have: Describe(n), Want: "keys with values", Fix: fix})
		return
	}
	// The YAML library allows duplicate keys here, because only this code can name both lines.
	seen := make(map[string]Place, len(values))
	for _, v := range values {
		at := TokenPlace(v.Key.GetToken())
		name, e := read(v.Key)
		if e != nil {
			e.Key = path
			d.Fail(at, *e)
			continue
		}
		if first, twice := seen[name]; twice {
			d.Fail(at, Error{Key: Join(path, name), What: "key is there twice",
				Have: fmt.Sprintf("lines %d and %d", first.Line, at.Line), Fix: "remove one of them"})
			continue
		}
		seen[name] = at
		d.Keys[Join(path, name)] = at
		d.Values[Join(path, name)] = PlaceOf(v.Value)
		each(name, at, v.Value)
	}
}

// Integer accepts only plain decimals, because 010 is eight in YAML 1.1 and ten in 1.2.
func (d *Reader) Integer(path string, n ast.Node, low, high int) *int {
	digits := n.GetToken().Value
	v, err := strconv.Atoi(digits)
	_, number := n.(*ast.IntegerNode)
	plain := err == nil && strconv.Itoa(v) == digits
	if number && plain && low <= v && v <= high {
		return &v
	}
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	switch {
	case low == math.MinInt:
		want = "a whole number"
	case high == math.MaxInt:
		want = fmt.Sprintf("a whole number from %d", low)
	}
	e := Error{Key: path, What: "out of range", Have: Describe(n), Want: want}
	switch {
	case !number:
		e.What = "wrong type"
		if s, isText := n.(*ast.StringNode); isText && s.Value != "" && strings.Trim(s.Value, "0123456789") == "" {
			e.Fix = "remove the quotes"
			if s.Token.Type == token.StringType { // unquoted: the YAML library returns a number past 64 bits as text
				e.What, e.Have, e.Fix = "out of range", Shorten(s.Value), ""
			}
		}
	case !plain && (err == nil || strings.Trim(digits, "-0123456789") != ""): // also 1_000
		e.What, e.Fix = "not a plain decimal number", "write it with the digits 0 to 9 and no leading zero"
	}
	d.Fail(d.ValuePlace(path, n), e)
	return nil
}

// Text refuses numbers and booleans, because a name such as 1e3 would change when decoded.
func (d *Reader) Text(path string, n ast.Node, want string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		if n.Value != nil {
			return n.Value.Value, true
		}
	}
	d.Fail(d.ValuePlace(path, n), Error{Key: path, What: "wrong type", Have: Describe(n), Want: want, Fix: QuoteFix(n)})
	return "", false
}

// ValuePlace returns the place of a key if its value is missing.
func (d *Reader) ValuePlace(path string, n ast.Node) Place {
	if IsNull(n) && n.GetToken().Value != "null" && n.GetToken().Value != "~" {
		return d.Keys[path]
	}
	return PlaceOf(n)
}

func IsNull(n ast.Node) bool { _, ok := n.(*ast.NullNode); return ok }

func IsMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// Describe describes a value, for the "have" of a message.
func Describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode:
		return Quote(n.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	}
	return Shorten(n.GetToken().Value) // numbers and booleans, as written
}

// Join quotes keys that are not plain words, since keys come from the file.
func Join(path, name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" ||
		len(name) > MaxQuoted || name == "" {
		// The path keeps the full key, because positions are looked up by path.
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// QuoteFix suggests quotes if a scalar was meant as text.
func QuoteFix(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return "to mean it as text, quote it: " + Quote(n.GetToken().Value)
	}
	return ""
}
