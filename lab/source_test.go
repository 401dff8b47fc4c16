package lab

import (
	"errors"
	"strings"
	"testing"
)

func TestGuardTurnsAPanicIntoAnError(t *testing.T) {
	_, err := guard(func() (int, error) { panic("index out of range") })
	if !errors.Is(err, errParserPanic) {
		t.Errorf("got %v", err)
	}
	if v, err := guard(func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
	// Such an error has no place, but it says what to look at.
	s := &source{file: "f"}
	s.syntax(errParserPanic)
	if got, want := s.errs.Error(), "f: malformed YAML; check the quotes, brackets and indentation"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFirstInvalidByte(t *testing.T) {
	tests := []struct {
		name, text string
		at         place
		what       string
	}{
		{"plain text", "a: b\n", place{}, ""},
		{"text beyond ASCII", "ä: €\n", place{}, ""},
		{"the replacement character itself is allowed", "a: \ufffd", place{}, ""},
		{"a broken first byte", "\xff", place{1, 1}, "not UTF-8 text"},
		{"a cut character at the end", "a: \xe2\x82", place{1, 4}, "not UTF-8 text"},
		{"columns count characters", "€€\xff", place{1, 3}, "not UTF-8 text"},
		{"lines are counted", "a\nb\n\x00", place{3, 1}, "NUL byte in the text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, what := firstInvalid(tt.text)
			if at != tt.at || what != tt.what {
				t.Errorf("got %v %q, want %v %q", at, what, tt.at, tt.what)
			}
		})
	}
}

func TestUTF16IsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"with a byte order mark":    "\xff\xfen\x00a\x00m\x00e\x00",
		"without a byte order mark": "n\x00a\x00m\x00e\x00",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(),
			"save the file as UTF-8 text") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestExcerpt(t *testing.T) {
	long := strings.Repeat("x", 150)
	tests := []struct {
		name         string
		lines        []string
		line, column int
		want         string
	}{
		{"no place", []string{"a"}, 0, 0, ""},
		{"past the end", []string{"a"}, 2, 1, ""},
		{"the first line", []string{"abc", "d"}, 1, 2, ">    1 | abc\n       |  ^"},
		{"two lines before", []string{"a", "b", "c", "d"}, 4, 1, "     2 | b\n     3 | c\n>    4 | d\n       | ^"},
		{"a tab is one column", []string{"\ta"}, 1, 2, ">    1 |  a\n       |  ^"},
		{"what cannot be printed is one column", []string{"\x1b[1ma"}, 1, 5, ">    1 | \ufffd[1ma\n       |     ^"},
		{"a Windows line end is not shown", []string{"a\r"}, 1, 1, ">    1 | a\n       | ^"},
		{"past the end of the line", []string{"a:"}, 1, 3, ">    1 | a:\n       |   ^"},
		{"a long line is cut", []string{long}, 1, 1, ">    1 | " + long[:100] + "\n       | ^"},
		{"a long line is moved", []string{long + "y"}, 1, 151, ">    1 | " + long[:49] + "y\n       | " +
			strings.Repeat(" ", 49) + "^"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := excerpt(tt.lines, tt.line, tt.column); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestQuoteIsBounded(t *testing.T) {
	tests := []struct{ text, want string }{
		{"a", `"a"`},
		{"a\x1b[0m", `"a\x1b[0m"`},
		{strings.Repeat("ä", 60), `"` + strings.Repeat("ä", 60) + `"`},
		{strings.Repeat("ä", 61), `"` + strings.Repeat("ä", 60) + `..."`},
	}
	for _, tt := range tests {
		if got := quote(tt.text); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
