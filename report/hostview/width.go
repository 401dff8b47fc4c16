package hostview

import (
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// A font is what a text of a picture is written in.
type font = show.Font

// drawable leaves out what a picture has no place for: marks that stack above or below a letter, and the few
// letters that are as wide as a sentence. Lines stay apart.
func drawable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x300:
			return r
		case unicode.Is(unicode.M, r):
			return -1
		case r >= 0xfb50 && r <= 0xfdff, r >= 0x12000 && r <= 0x1254f:
			return '\uFFFD' // Arabic ligatures and cuneiform
		}
		return r
	}, words.Visible(s))
}
