package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// The text form of a tree is ttar's (https://github.com/ideaship/ttar), which other projects use for fixtures of /proc
// and /sys.
//
//	Directory: sys/block
//	Mode: 755
//	Path: sys/block/sda
//	SymlinkTo: ../devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda
//	Path: sys/kernel/mm/ksm/run
//	Lines: 1
//	0
//	Mode: 644
//	# a comment
//
// In a file, a zero byte is NULLBYTE, and a last line without its newline ends with EOF. A backslash before one of
// these words makes it literal.
//
// Two keywords are ours. "Quoted:" gives a whole file as a Go string literal, for bytes that ttar cannot express.
// "Error:" replaces "Lines:", or follows "Directory:": the entry exists and reading it returns that error.
const (
	keyDirectory = "Directory"
	keyPath      = "Path"
	keyLines     = "Lines"
	keyLink      = "SymlinkTo"
	keyMode      = "Mode"
	keyQuoted    = "Quoted"
	keyError     = "Error"

	wordZero = "NULLBYTE"
	wordEnd  = "EOF"
)

// A TextError is an error in the text.
type TextError struct {
	Line int // from 1
	Err  error
}

func (e *TextError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *TextError) Unwrap() error { return e.Err }

// IsText reports whether a file that starts with head may be text for ParseText.
func IsText(head []byte) bool {
	for line := range bytes.Lines(head) {
		if !bytes.HasPrefix(line, []byte("#")) && len(bytes.TrimSpace(line)) > 0 {
			return bytes.HasPrefix(line, []byte(keyDirectory+": ")) || bytes.HasPrefix(line, []byte(keyPath+": "))
		}
	}
	return false
}

// ParseText reads a tree's text form. b must not be modified afterwards.
func ParseText(b []byte) (*Mem, error) {
	p := &textParser{rest: b}
	for p.more() {
		if err := p.entry(); err != nil {
			return nil, &TextError{Line: p.line, Err: err}
		}
	}
	return p.build.Mem(), nil
}

type textParser struct {
	build Builder
	rest  []byte
	line  int
	path  string // current entry
	dir   bool   // it is a directory
	made  bool   // it has been added
}

func (p *textParser) more() bool { return len(p.rest) > 0 }

func (p *textParser) next() []byte {
	p.line++
	line, rest, _ := bytes.Cut(p.rest, []byte("\n"))
	p.rest = rest
	return line
}

// entry reads a line and its content.
func (p *textParser) entry() error {
	line := p.next()
	if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
		return nil
	}
	key, value, ok := strings.Cut(string(line), ": ")
	if !ok {
		return fmt.Errorf("%q is neither a comment nor \"Directory: \", \"Path: \", \"Lines: \", \"SymlinkTo: \" or "+
			"\"Mode: \"", clip(string(line)))
	}
	switch key {
	case keyDirectory:
		p.path, p.dir, p.made = value, true, true
		return p.build.Dir(value)
	case keyPath:
		p.path, p.dir, p.made = value, false, false
		return nil
	case keyMode:
		if p.path == "" {
			return errors.New("a mode without a path before it")
		}
		return nil // Error decides readability
	}
	if p.path == "" || p.made && (key != keyError || !p.dir) {
		return fmt.Errorf("%q without a path before it", clip(key))
	}
	p.made = true
	switch key {
	case keyLines:
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("%q is not a number of lines", clip(value))
		}
		return p.content(int(n))
	case keyLink:
		if value == "" { // the kernel makes no such link, and it would look like a file
			return fmt.Errorf("%q is a link to nothing", clip(p.path))
		}
		return p.build.Link(p.path, value)
	case keyQuoted:
		s, err := strconv.Unquote(value)
		if err != nil {
			return fmt.Errorf("%q is not a string as Go writes them", clip(value))
		}
		return p.build.File(p.path, []byte(s))
	case keyError:
		var mode fs.FileMode
		if p.dir {
			mode = fs.ModeDir
		}
		return p.build.Unreadable(p.path, mode, ErrorOf(value))
	}
	return fmt.Errorf("%q is not a keyword of this format", clip(key))
}

func (p *textParser) content(n int) error {
	start, size := p.rest, 0
	first := p.line
	for i := range n {
		if !p.more() {
			p.line = first
			return fmt.Errorf("%q has %d lines, not %d: the text is cut off", clip(p.path), i, n)
		}
		size += len(p.next()) + 1
	}
	return p.build.File(p.path, decodeText(start[:min(size, len(start))]))
}

func decodeText(b []byte) []byte {
	if !bytes.Contains(b, []byte(wordZero)) && !bytes.Contains(b, []byte(wordEnd)) {
		return b[:len(b):len(b)] // as nearly all files
	}
	if end := bytes.TrimSuffix(b, []byte("\n")); bytes.HasSuffix(end, []byte(wordEnd)) && !bytes.HasSuffix(end,
		[]byte(`\`+wordEnd)) {
		b = end[:len(end)-len(wordEnd)]
	}
	return []byte(markers.Replace(string(b)))
}

// The first match counts.
var markers = strings.NewReplacer(`\`+wordZero, wordZero, `\`+wordEnd, wordEnd, wordZero, "\x00")
