package terminal

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/words"
)

// A Writer is standard output or standard error. What is written to it is text for people, and what a terminal would
// take for more than letters is shown as an escape, wherever it comes from: a name in a foreign file, an answer of a
// database, an error. This is the last place on the way out, so that no other has to be relied on.
type Writer struct {
	File *os.File

	mu    sync.Mutex
	exact bool
	color bool
	rest  []byte // the beginning of a letter or of a colour
}

// Exact passes bytes on as they are from now on: what another program says, or what programs read.
func (w *Writer) Exact() { w.exact = true }

// Color lets colours through from now on.
func (w *Writer) Color() { w.color = true }

// colors are those that rackless uses (ECMA-48, section 8.3.117), without those that hide text.
var colors = regexp.MustCompile(`\x1b\[(?:[012]|[39][0-7])(?:;(?:[012]|[39][0-7]))*m`)

// maxColor bounds a colour in bytes.
const maxColor = 16

// Write shows b.
func (w *Writer) Write(b []byte) (int, error) {
	if w.exact {
		return w.File.Write(b)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, b...)
	end := len(text) - unfinished(text)
	w.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(w.File, w.clean(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// clean makes text safe, but for colours.
func (w *Writer) clean(text string) string {
	if !w.color || !strings.Contains(text, "\x1b") {
		return words.Visible(text)
	}
	var out strings.Builder
	at := 0
	for _, c := range colors.FindAllStringIndex(text, -1) {
		out.WriteString(words.Visible(text[at:c[0]]) + text[c[0]:c[1]])
		at = c[1]
	}
	return out.String() + words.Visible(text[at:])
}

// unfinished returns how many bytes at the end of text the next write may go on with.
func unfinished(text []byte) int {
	at := bytes.LastIndexByte(text, 0x1b)
	if at >= 0 && len(text)-at < maxColor && !bytes.ContainsAny(text[at:], "m\n") {
		return len(text) - at
	}
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
