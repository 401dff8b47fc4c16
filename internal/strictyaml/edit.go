package strictyaml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Edit returns a file in which a key has another value, given in YAML. The key is a path such as fabric.mtu, or
// traffic.0.bytes for the first entry of a list. Missing keys are added, and comments are lost.
func Edit(text []byte, key, value string) ([]byte, error) {
	var doc yaml.MapSlice
	// The order of keys may matter: a lab gives addresses to nodes by theirs.
	if err := yaml.UnmarshalWithOptions(text, &doc, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		return nil, err
	}
	out, err := edit(doc, "", strings.Split(key, "."), v)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(out)
}

// edit sets a value in the part of a document at a path. The part is nil if it is missing.
func edit(in any, at string, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	name := path[0]
	next := Join(at, name)
	switch in := in.(type) {
	case nil:
		inner, err := edit(nil, next, path[1:], value)
		return yaml.MapSlice{{Key: name, Value: inner}}, err
	case yaml.MapSlice:
		for i, item := range in {
			if item.Key == name {
				inner, err := edit(item.Value, next, path[1:], value)
				in[i].Value = inner
				return in, err
			}
		}
		inner, err := edit(nil, next, path[1:], value)
		return append(in, yaml.MapItem{Key: name, Value: inner}), err
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(in) {
			return nil, fmt.Errorf("%s is a list of %d, without an entry %q", at, len(in), name)
		}
		in[i], err = edit(in[i], next, path[1:], value)
		return in, err
	}
	return nil, fmt.Errorf("%s has no keys of its own", at)
}
