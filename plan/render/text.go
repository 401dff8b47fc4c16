package render

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// oneLine replaces control characters and separators by spaces: a line break must not end a comment or a value.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

const commentWidth = 110

// comment does not split words longer than a line.
func comment(prefix, text string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(text, "\n") {
		line := strings.TrimRight(prefix, " ")
		for _, word := range strings.Fields(oneLine(part)) {
			switch {
			case line == strings.TrimRight(prefix, " "):
				line = prefix + word
			case len(line)+1+len(word) > commentWidth:
				b.WriteString(line + "\n")
				line = prefix + word
			default:
				line += " " + word
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// safeName keeps letters, digits, hyphens and underscores; any other byte becomes _ and two hexadecimal digits. Names
// of labs do not change.
func safeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', i > 0 && (c == '-' || c == '_'):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return cmp.Or(b.String(), "_")
}
