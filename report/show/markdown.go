package show

import (
	"strings"
	"unicode"
)

// Markdown makes text mean itself in Markdown, on one line. An underscore inside a word marks
// nothing and stays readable.
func Markdown(s string) string {
	var b strings.Builder
	runes := []rune(strings.Join(strings.Fields(s), " "))
	word := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '&':
			b.WriteString("&amp;")
			continue
		case strings.ContainsRune("\\`*[]|#>~$", r), r == '_' && (!word(i-1) || !word(i+1)), i == 0 &&
			strings.ContainsRune("-+=", r) && !word(1):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Fenced is a block of code in Markdown; its fence is longer than any in the text.
func Fenced(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence
}
