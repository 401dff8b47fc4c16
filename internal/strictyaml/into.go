package strictyaml

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Parse reads a file into v, a pointer to a struct with yaml or json tags. The sorted errors are in d.Errs.
func (d *Reader) Parse(data []byte, v any) {
	body := d.Read(data)
	if body == nil {
		return
	}
	d.Values[""] = PlaceOf(body)
	d.into("", body, reflect.ValueOf(v).Elem())
	d.Errs.Sort()
}

// MustParse panics if the file, which is embedded in the program, has an error.
func MustParse(name string, data []byte, v any) {
	r := New(&Format{Name: "file", File: name, MaxSize: 1 << 20, MaxTokens: 10_000, MaxDepth: 8}, name)
	if r.Parse(data, v); len(r.Errs) > 0 {
		panic(r.Errs)
	}
}

// Place returns the position of a path such as "gpus[1].address", or of the nearest enclosing value.
func (d *Reader) Place(path string) Place {
	for path != "" {
		if at, ok := d.Values[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return d.Values[""]
}

// Into reads a value into the variable that v points to.
func (d *Reader) Into(path string, n ast.Node, v any) { d.into(path, n, reflect.ValueOf(v).Elem()) }

// into leaves a field unchanged if its key has no value.
func (d *Reader) into(path string, n ast.Node, v reflect.Value) {
	if rule := d.Format.Types[v.Type()]; rule != nil {
		rule(path, n, v)
		return
	}
	// A type's own text decoder takes precedence over its kind: an address is a struct, a size is a number.
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := d.scalar(path, n, true); ok {
			if err := t.UnmarshalText([]byte(s)); err != nil {
				d.Fail(d.ValuePlace(path, n), Error{Key: path, What: err.Error()})
			}
		}
		return
	}
	// A number without a unit is no duration.
	if v.Type() == reflect.TypeFor[time.Duration]() {
		if s, ok := d.scalar(path, n, true); ok {
			t, err := time.ParseDuration(s)
			if err != nil {
				d.wrong(path, n, "a time such as 20s or 1m30s")
			}
			v.SetInt(int64(t))
		}
		return
	}
	switch v.Kind() {
	// A pointer distinguishes a missing key from a zero value.
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.into(path, n, v.Elem())
	case reflect.Struct:
		d.fields(path, n, v)
	case reflect.Slice:
		d.list(path, n, v)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.Entries(path, n, func(name string, _ Place, value ast.Node) {
			item := reflect.New(v.Type().Elem()).Elem()
			d.into(Join(path, name), value, item)
			v.SetMapIndex(reflect.ValueOf(name), item)
		})
	case reflect.String:
		s, _ := d.scalar(path, n, d.Format.LooseText)
		v.SetString(s)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.wrong(path, n, "true or false")
			return
		}
		v.SetBool(b.Value)
	// The caller, which knows the key's meaning, checks the range.
	case reflect.Int, reflect.Int64:
		if i := d.Integer(path, n, math.MinInt, math.MaxInt); i != nil {
			v.SetInt(int64(*i))
		}
	case reflect.Uint64:
		if i := d.Integer(path, n, 0, math.MaxInt); i != nil {
			v.SetUint(uint64(*i))
		}
	case reflect.Float64:
		v.SetFloat(d.number(path, n))
	default:
		panic(fmt.Sprintf("strictyaml: a field of type %v", v.Type()))
	}
}

// Fields reads the keys of a mapping into a struct, even if its type has a rule.
func (d *Reader) Fields(path string, n ast.Node, v any) { d.fields(path, n, reflect.ValueOf(v).Elem()) }

func (d *Reader) fields(path string, n ast.Node, v reflect.Value) {
	keys := d.keysOf(v.Type())
	d.Mapping(path, n, keys.names, func(i int, path string, n ast.Node) {
		f := v.FieldByIndex(keys.fields[i].Index)
		rule := d.Format.Rules[keys.fields[i].Tag.Get("rule")]
		switch {
		case rule == nil && IsNull(n) && !d.needsValue(f.Type()):
		case rule == nil:
			d.into(path, n, f)
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			rule(path, n, f.Elem())
		default:
			rule(path, n, f)
		}
	})
}

type structKeys struct {
	names  []string
	fields []reflect.StructField
}

// keysOf has a cache, since long lists need the keys many times.
func (d *Reader) keysOf(t reflect.Type) *structKeys {
	if known := d.keys[t]; known != nil {
		return known
	}
	k := &structKeys{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
		if name != "" && name != "-" {
			k.names, k.fields = append(k.names, name), append(k.fields, f)
		}
	}
	d.keys[t] = k
	return k
}

func (d *Reader) needsValue(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return d.Format.NeedValues && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Map
}

// A Rule reads one value, instead of the default for the variable's type.
type Rule func(path string, n ast.Node, v reflect.Value)

// RuleOf returns a Rule that stores the result of read, unless nil.
func RuleOf[T any](read func(path string, n ast.Node) *T) Rule {
	return func(path string, n ast.Node, v reflect.Value) {
		if value := read(path, n); value != nil {
			v.Set(reflect.ValueOf(*value))
		}
	}
}

func (d *Reader) list(path string, n ast.Node, v reflect.Value) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(path, n, "a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, item := range list.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.Values[at] = PlaceOf(item)
		d.into(at, item, v.Index(i))
	}
}

// scalar also accepts numbers and booleans, as written, if loose.
func (d *Reader) scalar(path string, n ast.Node, loose bool) (string, bool) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if loose {
			return n.GetToken().Value, true
		}
	}
	return d.Text(path, n, "text")
}

// The parser takes JSON's 3e2 for text.
func (d *Reader) number(path string, n ast.Node) float64 {
	t := n.GetToken()
	switch n.Type() {
	case ast.IntegerType, ast.FloatType, ast.StringType:
		v, err := strconv.ParseFloat(t.Value, 64)
		quoted := t.Type == token.DoubleQuoteType || t.Type == token.SingleQuoteType
		if err == nil && !quoted && strings.Trim(t.Value, "0123456789+-.eE") == "" {
			return v
		}
	}
	d.wrong(path, n, "a number")
	return 0
}

func (d *Reader) wrong(path string, n ast.Node, want string) {
	d.Fail(d.ValuePlace(path, n), Error{Key: path, What: "wrong type", Have: Describe(n), Want: want})
}
