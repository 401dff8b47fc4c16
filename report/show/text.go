package show

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes text from outside safe to show: whatever could move a terminal's cursor, change
// colours or reverse the order of letters is shown as its Go escape instead. A line break becomes a
// space.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Visible(s))
}

// shown reports whether Visible keeps a character as it is.
func shown(r rune) bool { return r == '\n' || r == '\t' || unicode.IsPrint(r) }

// Visible is Printable with line breaks and tabs kept, for a page, where errors and command lines
// may have several lines.
func Visible(s string) string {
	// Nearly all texts are clean, and a picture has thousands: those are not built anew.
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !shown(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n") {
		if shown(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
