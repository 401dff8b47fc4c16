package words

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestPrintableLeavesNothingThatControlsATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":             "plain",
		"two\r\nlines\ttab": "two lines tab",
		"\x1b[31mred":       `\x1b[31mred`,
		"bell\a":            `bell\a`,
		"\u202egnp.exe":     `\u202egnp.exe`,
		"a\ufe0f\u3164":     `a\ufe0f\u3164`,
		"µs größer 中":       "µs größer 中",
		"bad \xff byte":     "bad \ufffd byte",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
		if got := strings.NewReplacer("\n", " ", "\t", " ").Replace(Visible(in)); got != want {
			t.Errorf("Visible(%q) = %q, want it to differ in line breaks and tabs only", in, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, r := range Printable(rapid.String().Draw(t, "text")) {
			if !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
				t.Errorf("%U is left", r)
			}
		}
	})
}
