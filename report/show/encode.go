package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/goccy/go-yaml"
)

// Output forms: for people, and for programs.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
)

// ForPrograms reports whether Encode supports a form.
func ForPrograms(form string) bool { return form == JSON || form == YAML }

// Encode writes v as indented JSON, or as YAML with the same keys in the same order. It writes everything at once, or
// nothing if the encoding fails.
func Encode(w io.Writer, form string, v any) error { return encode(w, form, v, "  ") }

// EncodeNext writes one value of a stream: as a line of JSON, or as a YAML document.
func EncodeNext(w io.Writer, form string, v any) error {
	if form == YAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return encode(w, form, v, "")
}

func encode(w io.Writer, form string, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // outside of HTML, "<" needs no escape
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	out := b.Bytes()
	if form == YAML {
		var err error
		if out, err = toYAML(out); err != nil {
			return Wrapf(err, "print as YAML")
		}
	}
	_, err := w.Write(out)
	return err
}

// toYAML converts JSON to YAML. JSON is valid YAML, so it is parsed as YAML to keep the order of its keys, which a
// plain decode would sort.
func toYAML(text []byte) ([]byte, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yaml.MarshalWithOptions(v, yaml.IndentSequence(true))
}

// Wrapf prefixes an error with a description of the failed step, as fmt.Errorf does. It returns nil for nil, so that
// the last step of an output needs no branch.
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// Clean returns a deep copy with f applied to every text, including map keys and named string types, so that no
// output misses a field. Unexported fields are shared with the original.
//
// f is called once for each distinct text, because studies of a million figures have few.
func Clean[T any](v T, f func(string) string) T {
	c := cleaner{f: f, known: map[string]string{}}
	c.clean(reflect.ValueOf(&v).Elem())
	return v
}

type cleaner struct {
	f     func(string) string
	known map[string]string
}

func (c *cleaner) text(s string) string {
	out, ok := c.known[s]
	if !ok {
		out = c.f(s)
		c.known[s] = out
	}
	return out
}

func (c *cleaner) clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); s != "" {
			v.SetString(c.text(s))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out := reflect.New(v.Type().Elem())
			out.Elem().Set(v.Elem())
			c.clean(out.Elem())
			v.Set(out)
		}
	case reflect.Slice:
		if v.IsNil() || !hasText(v.Type().Elem()) {
			break
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(out, v)
		for i := range out.Len() {
			c.clean(out.Index(i))
		}
		v.Set(out)
	case reflect.Array:
		for i := range v.Len() {
			c.clean(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			break
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for _, k := range v.MapKeys() {
			key, value := reflect.New(k.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(k)
			value.Set(v.MapIndex(k))
			c.clean(key)
			c.clean(value)
			out.SetMapIndex(key, value)
		}
		v.Set(out)
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() && hasText(field.Type) {
				c.clean(v.Field(i))
			}
		}
	}
}

// hasText reports whether a type can hold text. It lets clean skip lists of a million numbers.
func hasText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
