package smi

import (
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/paste"
)

// A token is a word of the text. The matrix is read as a stream of words, because lines cannot be
// trusted: terminals break them, and web pages join them.
type token struct {
	text string
	line int // from 1
	col  int // from 0, with tabs at every eighth column, as the tool lays the matrix out
	// glued is set on the first word of a line that starts at its first column, after a line whose
	// last word ended it: a terminal may have broken one word in two there.
	glued bool
}

// ansi matches terminal escapes: nvidia-smi underlines its header even where no terminal is. Logs
// show the escape character in several notations, and web pages drop it; without it only colours
// ("[4m") are recognised.
var ansi = lazyregexp.New(paste.Escape + `|\[[0-9;]{1,8}m`)

// plain makes the characters of one line simple: no escapes; spaces for exotic white space, for the
// rules of tables and for marks of quotes.
func plain(line string) string {
	line = strings.TrimSuffix(line, "\r")
	for i := 0; i < len(line) && (line[i] == '>' || line[i] == ' '); i++ {
		if line[i] == '>' {
			line = line[:i] + " " + line[i+1:]
		}
	}
	if strings.ContainsAny(line, "\x1b[") {
		line = ansi.ReplaceAllString(line, "")
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u00a0', '\u2007', '\u202f', '\u3000', '\v', '\f', '\r', '\ufeff', '|', '│', '┃', '`':
			return ' '
		case '\u200b', '\u200c', '\u200d', '\x00':
			return -1
		}
		return r
	}, line)
}

// rule matches the words that tables and quotes are drawn with.
var rule = lazyregexp.New(`^[-:=+*#~]+$`)

// lex splits a text into lines and words. The lines are those of the words, made plain.
func lex(text string) (lines []string, tokens []token) {
	endsLine := false // the last word ended its line
	for raw := range strings.SplitSeq(text, "\n") {
		line := plain(raw)
		lines = append(lines, line)
		at := len(tokens)
		start, startCol, col := -1, 0, 0
		word := func(end int) {
			if start < 0 {
				return
			}
			if w := line[start:end]; !rule.MatchString(w) {
				first := len(tokens) == at
				tokens = append(tokens, token{text: w, line: len(lines), col: startCol, glued: first && startCol == 0 &&
					endsLine})
			}
			start = -1
		}
		for i := range len(line) {
			switch c := line[i]; c {
			case ' ':
				word(i)
				col++
			case '\t':
				word(i)
				col += 8 - col%8
			default:
				if start < 0 {
					start, startCol = i, col
				}
				if c&0xc0 != 0x80 { // count characters, not their bytes
					col++
				}
			}
		}
		word(len(line))
		last := ""
		if at > 0 {
			last = tokens[at-1].text
		}
		tokens = append(tokens[:at], dropPrefix(tokens[at:], last)...)
		endsLine = len(tokens) > at && line[len(line)-1] != ' ' && line[len(line)-1] != '\t'
	}
	return lines, tokens
}

// prefixed matches the name of a row with something before it: "12:GPU0" of grep -n, "[1,0]<stdout>:GPU0" of mpirun.
var prefixed = lazyregexp.New(`^.*[:\]>)](GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+)$`)

// dropPrefix drops what stands before the first device of a line, such as the name of a host or a
// time. Words of a matrix are kept: where lines were joined, the end of one row stands before the
// name of the next. So is the rest of a word of the header that starts at the end of the line
// before: last is the last word there.
func dropPrefix(line []token, last string) []token {
	junk := false
	for i, t := range line {
		if t.glued && isHeaderWord(last+t.text) {
			continue
		}
		if m := prefixed.FindStringSubmatch(t.text); m != nil {
			line[i].text = m[1]
			return line[i:]
		}
		if isGPU(t.text) || strictNIC.MatchString(t.text) {
			if junk {
				return line[i:]
			}
			return line
		}
		_, isLabel := splitLabels(t.text)
		junk = junk || !isLabel && !isAffinity(t.text) && !isTitleWord(t.text)
	}
	return line
}

var (
	// strictNIC matches names that are NICs wherever they stand.
	strictNIC = lazyregexp.New(`^(?:NIC[0-9]{1,4}|mlx[0-9]_(?:bond_)?[0-9]+)$`)
	// strictName matches names of the rows of a matrix without its head.
	strictName = lazyregexp.New(`^(?:GPU|NIC)[0-9]{1,4}$`)
)
