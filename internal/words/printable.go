package words

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes text from outside safe to show: whatever could move a terminal's cursor, change
// colours, reverse the order of letters or hide some is shown as its Go escape instead. A line break
// becomes a space.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Visible(s))
}

// shown reports whether Visible keeps a character as it is. Among those that Go calls printable are some without a
// shape of their own, which make two names look the same.
func shown(r rune) bool {
	return r == '\n' || r == '\t' ||
		unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Visible is Printable with line breaks and tabs kept, for a page, where errors and command lines
// may have several lines, and for a terminal.
func Visible(s string) string {
	// Nearly all texts are clean, and a picture has thousands: those are not built anew.
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !shown(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n") {
		switch {
		case shown(r):
			b.WriteRune(r)
		case unicode.IsPrint(r): // which QuoteRune leaves as it is
			b.WriteString(`\u` + strconv.FormatInt(int64(r), 16))
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
