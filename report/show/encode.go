package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/goccy/go-yaml"
)

// Output forms.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
)

// ForPrograms reports whether Encode supports a form.
func ForPrograms(form string) bool { return form == JSON || form == YAML }

// Encode writes v as indented JSON, or as YAML with the same keys in the same order, or nothing if that fails.
func Encode(w io.Writer, form string, v any) error { return encode(w, form, v, "  ") }

// EncodeNext writes one value of a stream: a line of JSON, or a YAML document.
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
	e.SetEscapeHTML(false)
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

// toYAML parses JSON as YAML to keep the order of keys, which a plain decode would sort.
func toYAML(text []byte) ([]byte, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yaml.MarshalWithOptions(v, yaml.IndentSequence(true))
}

// Wrapf prefixes an error as fmt.Errorf does, but returns nil for nil, so that the last step of an output needs no
// branch.
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// Clean returns a deep copy with f applied to every text, including map keys and named string types. Unexported fields
// are shared. f is called once for each distinct text: studies of a million figures have few.
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

// hasText lets clean skip lists of a million numbers.
func hasText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
