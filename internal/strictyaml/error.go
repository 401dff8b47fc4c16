package strictyaml

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// An Error is one error in a file, with its position and a suggestion.
type Error struct {
	File   string `json:"-"`              // as given to New
	Line   int    `json:"line"`           // from 1; 0 without a position
	Column int    `json:"column"`         // from 1, in characters
	Key    string `json:"key,omitempty"`  // dotted path such as "nodes.vm00.cpus"; "" for the whole document
	What   string `json:"what"`           // in a few words
	Have   string `json:"have,omitempty"` // quoted if it is text; may be ""
	Want   string `json:"want,omitempty"` // may be ""
	Fix    string `json:"fix,omitempty"`  // suggested remedy; may be ""
	// Excerpt has up to two lines before it, and a marker under the column; "" without a position.
	Excerpt string `json:"-"`
}

// Error returns "file:line:column: key: error (have ..., want ...); fix", and the excerpt.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.What)
	switch {
	case e.Have != "" && e.Want != "":
		fmt.Fprintf(&b, " (have %s, want %s)", e.Have, e.Want)
	case e.Have != "":
		fmt.Fprintf(&b, " (have %s)", e.Have)
	case e.Want != "":
		fmt.Fprintf(&b, " (want %s)", e.Want)
	}
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	return b.String()
}

// Errors are the errors in one file. errors.As with an *Error finds the first.
type Errors []*Error

// Error returns the first errors, one below the other.
func (e Errors) Error() string { return lists.Errors[*Error](e).Error() }

// Unwrap is for errors.Is and errors.As.
func (e Errors) Unwrap() []error { return lists.Errors[*Error](e).Unwrap() }

// Sort sorts stably by position.
func (e Errors) Sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// MaxQuoted is in characters of a value in a message.
const MaxQuoted = 60

// Quote is strconv.Quote with a limited length. Quoting also disarms terminal escapes in a file.
func Quote(s string) string { return strconv.Quote(Shorten(s)) }

// Shorten marks the cut.
func Shorten(s string) string { return words.Clip(s, MaxQuoted) }

const (
	excerptBefore = 2   // to include the parent key
	excerptWidth  = 100 // displayed characters of a line
)

func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	first := max(1, line-excerptBefore)
	// Long lines are all shifted alike, so that the marker stays visible.
	shift := 0
	if column > excerptWidth {
		shift = column - excerptWidth/2
	}
	var b strings.Builder
	for n := first; n <= line; n++ {
		mark := " "
		if n == line {
			mark = ">"
		}
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%s %4d | %s", mark, n, window(lines[n-1], shift)), " "))
	}
	fmt.Fprintf(&b, "       | %s^", strings.Repeat(" ", max(0, column-1-shift)))
	return b.String()
}

// window replaces unprintable characters and tabs, so that the marker stays under its column and the file cannot
// control the terminal.
func window(line string, shift int) string {
	runes := []rune(strings.TrimRight(line, "\r"))
	runes = runes[min(shift, len(runes)):]
	runes = runes[:min(excerptWidth, len(runes))]
	for i, r := range runes {
		switch {
		case r == '\t':
			runes[i] = ' '
		case !unicode.IsPrint(r):
			runes[i] = unicode.ReplacementChar
		}
	}
	return string(runes)
}

// Nearest returns the candidate that was most likely meant, or "".
func Nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	// At most half of the letters may be wrong, and no more than three: disk is not a misspelling of nics.
	best, bestDistance := "", min(4, (len(word)+1)/2+1)
	for _, c := range candidates {
		d := Distance(word, c)
		// Usual short forms (mem, cpu, node) match at any distance.
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// Meant asks "did you mean" the nearest candidate, or returns "".
func Meant(word string, candidates []string) string {
	near := Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return "did you mean " + near + "?"
}

// Distance returns the Levenshtein distance in bytes.
func Distance(a, b string) int {
	if len(a) > MaxQuoted { // far from every key, and the algorithm is quadratic
		return len(a)
	}
	// One row of the table is enough: the cell diagonally above is saved before it is overwritten.
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

const mostOthers = 5

// Others suggests a file in place of a missing one: the most similar name in dirs, else the first, or "". list returns
// the files that could be meant.
func Others(path string, dirs []string, list func(dir string) []string) string {
	byName, names := map[string]string{}, []string{}
	for _, dir := range dirs {
		for _, f := range list(dir) {
			if name := strings.TrimSuffix(f, filepath.Ext(f)); byName[name] == "" {
				byName[name] = filepath.Join(dir, f)
				names = append(names, name)
			}
		}
	}
	base := filepath.Base(path)
	if near := Nearest(strings.TrimSuffix(base, filepath.Ext(base)), names); near != "" {
		return "did you mean " + byName[near] + "?"
	}
	if len(names) == 0 {
		return ""
	}
	paths := []string{}
	for _, n := range names[:min(len(names), mostOthers)] {
		paths = append(paths, byName[n])
	}
	if len(names) > mostOthers {
		paths = append(paths, "...")
	}
	return "there are " + strings.Join(paths, ", ")
}
