package words

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// A Message is a text that another program wrote, for a page: what stands in the line, and the rest.
type Message struct {
	Text  string // one line of ours
	Whole string // what is folded up behind it; empty: Text is all
}

// Bounds of a message, in characters.
const (
	maxMessageLine = 160
	maxMessage     = 4000
)

// ownWords is where another program begins to speak: with its name, or with the place of an assertion in its source.
var ownWords = regexp.MustCompile(`\b(qemu-system-\w+|qemu-img|virsh|libvirtd?)(\[\d+\])?: |` +
	`[\w./-]+\.(c|h|cc|cpp):\d+|Assertion `)

// Fold makes a message of a text. A long one, and what a program such as QEMU printed itself, must not stand in the
// middle of a page: a reader looks for what happened, and a maintainer for the whole text.
func Fold(text string) Message {
	text = strings.TrimSpace(Visible(text))
	if n := utf8.RuneCountInString(text); n > maxMessage {
		text = string([]rune(text)[:maxMessage]) + "… (" + Count(n-maxMessage, "more character") + ")"
	}
	line, _, _ := strings.Cut(text, "\n")
	if at := ownWords.FindStringIndex(line); at != nil {
		if line = strings.TrimRight(line[:at[0]], " :;,('`"); line == "" {
			line = "a program failed, and said why"
		}
	}
	if r := []rune(line); len(r) > maxMessageLine {
		line = strings.TrimRight(string(r[:maxMessageLine]), " ")
		if at := strings.LastIndexByte(line, ' '); at > len(line)/2 {
			line = line[:at]
		}
		line += "…"
	}
	if line == text {
		return Message{Text: text}
	}
	return Message{line, text}
}
