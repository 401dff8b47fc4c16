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

// A Writer is standard output or standard error. It takes text for people, and shows everything that a
// terminal would interpret as an escape: such bytes may come from a name in a foreign file, an answer of a
// database or an error. All output passes through it, so no other place has to be trusted with that.
type Writer struct {
	File *os.File

	mu    sync.Mutex
	exact bool
	color bool
	rest  []byte // an incomplete letter or colour at the end of the last write
}

// Exact turns the escapes off: for the output of other programs, and for output that programs read.
func (w *Writer) Exact() { w.exact = true }

// Color lets colours pass from now on.
func (w *Writer) Color() { w.color = true }

// colors matches the colours that rackless uses (ECMA-48, section 8.3.117). It leaves out attributes that
// hide text, which a foreign name could use.
var colors = regexp.MustCompile(`\x1b\[(?:[012]|[39][0-7])(?:;(?:[012]|[39][0-7]))*m`)

// maxColor is the maximum length of a colour in bytes.
const maxColor = 16

// Write writes b, made safe unless Exact was called. An incomplete letter or colour waits for the next write.
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

// clean makes text safe, and keeps colours if they are on.
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

// unfinished returns the number of bytes at the end of text that may be the beginning of a letter or a
// colour, which the next write completes.
func unfinished(text []byte) int {
	at := bytes.LastIndexByte(text, 0x1b)
	if at >= 0 && len(text)-at < maxColor && !bytes.ContainsAny(text[at:], "m\n") {
		return len(text) - at
	}
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			return words.Either(utf8.FullRune(last), 0, n)
		}
	}
	return 0
}
