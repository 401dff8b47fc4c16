package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
)

// Forms of a result: for people, and for programs.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
)

// ForPrograms reports whether a form is one that Encode writes.
func ForPrograms(form string) bool { return form == JSON || form == YAML }

// Encode writes v as JSON, indented, or as YAML with the same keys in the same order. It is written
// whole or not at all.
func Encode(w io.Writer, form string, v any) error { return encode(w, form, v, "  ") }

// EncodeNext writes one value of a stream: as a line of JSON, or as a document of YAML.
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
	e.SetEscapeHTML(false) // "<" is a letter like others outside a page
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

// toYAML turns JSON into YAML. JSON is YAML: it is read as such, with the order of its keys, which a plain decode would
// sort.
func toYAML(text []byte) ([]byte, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yaml.MarshalWithOptions(v, yaml.IndentSequence(true))
}

// Wrapf puts what was being done before an error, as fmt.Errorf does. No error stays none, so that the last step of an
// output, which is the one that can fail, needs no branch.
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
