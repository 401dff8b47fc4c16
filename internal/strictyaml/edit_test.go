package strictyaml

import (
	"strings"
	"testing"
)

// A key gets another value, in its place, or is added.
func TestEdit(t *testing.T) {
	const text = "b: 1 # first\na: {x: w}\nlist:\n- {k: 1}\n- {k: 2}\n"
	for _, c := range []struct{ key, value, want string }{
		{"b", "2", "b: 2\na:\n  x: w\nlist:\n- k: 1\n- k: 2\n"},
		{"a.z", "400KiB:1600KiB:20%", "b: 1\na:\n  x: w\n  z: 400KiB:1600KiB:20%\nlist:\n- k: 1\n- k: 2\n"},
		{"list.1.k", "3", "b: 1\na:\n  x: w\nlist:\n- k: 1\n- k: 3\n"},
		{"c.d", "e", "b: 1\na:\n  x: w\nlist:\n- k: 1\n- k: 2\nc:\n  d: e\n"},
	} {
		got, err := Edit([]byte(text), c.key, c.value)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s: have %q, %v, want %q", c.key, c.value, got, err, c.want)
		}
	}
	for _, c := range []struct{ key, value, want string }{
		{"b.c", "1", "b has no keys of its own"},
		{"a.x.w", "1", "a.x has no keys of its own"},
		{"list.2.n", "1", `list is a list of 2, without an entry "2"`},
		{"list.n", "1", `without an entry "n"`},
		{"b", "{", ""},
	} {
		if _, err := Edit([]byte(text), c.key, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}
