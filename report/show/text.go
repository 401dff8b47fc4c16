package show

import (
	"strconv"
	"strings"
	"unicode"
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

// Visible is Printable with line breaks and tabs kept, for a page, where errors and command lines
// may have several lines.
func Visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n") {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
