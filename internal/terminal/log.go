package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
)

// followPause looks immediate and costs nothing.
const followPause = 200 * time.Millisecond

// PrintLog copies the last lines of a log, or all if lines is 0. With follow it continues until ctx is done or the file
// is removed, at the end of a lab.
func PrintLog(ctx context.Context, w io.Writer, path string, lines int, follow bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if lines > 0 {
		if err := seekLines(file, lines); err != nil {
			return err
		}
	}
	for {
		if _, err := io.Copy(w, file); err != nil {
			return err
		}
		if !follow {
			return nil
		}
		if wait.For(ctx, followPause) != nil {
			return nil // Ctrl-C is the normal end of following
		}
		now, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			_, err := io.Copy(w, file)
			return err
		}
		if err != nil {
			return err
		}
		at, err := file.Seek(0, io.SeekCurrent)
		if err == nil && now.Size() < at {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
		if have, err := file.Stat(); err != nil {
			return err
		} else if !os.SameFile(have, now) { // the node was recreated with a new log
			file.Close()
			if file, err = os.Open(path); err != nil {
				return err
			}
		}
	}
}

// seekLines moves to the n-th line from the end, in blocks, because a console's log can be large.
func seekLines(f *os.File, n int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	last := true // a newline at the end does not begin a line
	for at > 0 {
		chunk := min(at, int64(len(buf)))
		at -= chunk
		if _, err := f.ReadAt(buf[:chunk], at); err != nil {
			return err
		}
		for i := chunk - 1; i >= 0; i-- {
			if buf[i] == '\n' && !last {
				if n--; n == 0 {
					_, err := f.Seek(at+i+1, io.SeekStart)
					return err
				}
			}
			last = false
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Plain returns a text without control characters and escape sequences.
func Plain(text string) string {
	var b strings.Builder
	_, _ = (&PlainWriter{W: &b}).Write([]byte(text)) // a Builder never fails
	return b.String()
}

// A PlainWriter removes escape sequences of guests, which could make the terminal type an answer into the reader's
// shell.
type PlainWriter struct {
	W     io.Writer
	state int // the kind of sequence that the last write ended in
}

const (
	inText = iota
	inEscape
	inCSI    // ESC [ ... up to a letter (ECMA-48, section 5.4)
	inString // ESC ] and the like ... up to BEL or ESC
)

// Write allows for a sequence that spans two writes.
func (p *PlainWriter) Write(b []byte) (int, error) {
	var out bytes.Buffer
	for _, c := range b {
		switch p.state {
		case inEscape:
			switch {
			case c == '[':
				p.state = inCSI
			case strings.IndexByte("]PX^_", c) >= 0:
				p.state = inString
			case c >= 0x20 && c <= 0x2f: // an intermediate byte
			default:
				p.state = inText
			}
		case inCSI:
			if c >= 0x40 && c <= 0x7e {
				p.state = inText
			}
		case inString:
			switch c {
			case 0x07:
				p.state = inText
			case 0x1b:
				p.state = inEscape
			}
		default:
			switch {
			case c == 0x1b:
				p.state = inEscape
			case c == '\n' || c == '\t' || c >= 0x20 && c != 0x7f:
				out.WriteByte(c)
			}
		}
	}
	if _, err := p.W.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// A Writer is standard output or standard error for people. It escapes every byte that a terminal would interpret. All
// output passes through it.
type Writer struct {
	File *os.File

	mu    sync.Mutex
	exact bool
	color bool
	rest  []byte // an incomplete character or colour
}

// Exact turns the escaping off, for output of or for other programs.
func (w *Writer) Exact() { w.exact = true }

// Color lets colours pass unescaped from now on.
func (w *Writer) Color() { w.color = true }

// colors excludes attributes that hide text, which a foreign name could use (ECMA-48, section 8.3.117).
var colors = regexp.MustCompile(`\x1b\[(?:[012]|[39][0-7])(?:;(?:[012]|[39][0-7]))*m`)

const maxColor = 16

// Write keeps an incomplete character or colour for the next write.
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

// unfinished returns the number of bytes at the end that may begin a character or a colour.
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
