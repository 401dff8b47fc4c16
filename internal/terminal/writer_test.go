package terminal

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*Writer)
		in   []string // one write each
		want string
	}{
		"text stays":             {nil, []string{"a\tb\n", "é ─ 中\n"}, "a\tb\né ─ 中\n"},
		"escapes are shown":      {nil, []string{"a\x1b[2J\x1b]0;t\x07b\r\n"}, `a\x1b[2J\x1b]0;t\ab` + "\n"},
		"colours of others, too": {nil, []string{"\x1b[31mred\x1b[0m"}, `\x1b[31mred\x1b[0m`},
		"C1 and what reverses":   {nil, []string{"\u009b31m \u202eabc\u2066"}, `\u009b31m \u202eabc\u2066`},
		"what has no shape": {nil, []string{"a\u200bb\ufe0f\u3164\U000e0041\u00ad"},
			`a\u200bb\ufe0f\u3164\U000e0041\u00ad`},
		"no UTF-8":                {nil, []string{"a\x9bb\xff\n"}, "a\ufffdb\ufffd\n"},
		"a letter in two writes":  {nil, []string{"a\xe4", "\xb8", "\xad."}, "a中."},
		"an escape in two writes": {nil, []string{"a\x1b", "[2Jb\n"}, `a\x1b[2Jb` + "\n"},
		"own colours": {(*Writer).Color, []string{"\x1b[31mred\x1b[0m \x1b[1;33mx\x1b[0m"},
			"\x1b[31mred\x1b[0m \x1b[1;33mx\x1b[0m"},
		"a colour in three writes": {(*Writer).Color, []string{"\x1b", "[3", "1mred\x1b[0m"}, "\x1b[31mred\x1b[0m"},
		"hidden text is no colour": {(*Writer).Color, []string{"\x1b[8mx\x1b[2J\x1b[38;5;1m"},
			`\x1b[8mx\x1b[2J\x1b[38;5;1m`},
		"bytes": {(*Writer).Exact, []string{"\x1b[2J\xff\u202e\r\n"}, "\x1b[2J\xff\u202e\r\n"},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		w := &Writer{File: f}
		if c.set != nil {
			c.set(w)
		}
		for _, s := range c.in {
			if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%s: wrote %d, %v", name, n, err)
			}
		}
		got, err := os.ReadFile(f.Name())
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
		f.Close()
	}
}
