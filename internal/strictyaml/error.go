package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// An Error is one fault of a file, with its place and what to do about it.
type Error struct {
	File   string `json:"-"`              // as given to Parse
	Line   int    `json:"line"`           // from 1; 0 if the fault has no Place, as in an empty file
	Column int    `json:"column"`         // from 1, in characters
	Key    string `json:"key,omitempty"`  // dotted path such as "nodes.vm00.cpus"; "" for the document as a whole
	What   string `json:"what"`           // what is wrong, in a few words
	Have   string `json:"have,omitempty"` // as found in the file, quoted if it is text; may be ""
	Want   string `json:"want,omitempty"` // what is allowed there; may be ""
	Fix    string `json:"fix,omitempty"`  // what to do next; may be ""
	// Excerpt is the line and up to two before it, with a marker under the column; "" without a place.
	Excerpt string `json:"-"`
}

// Error returns "file:line:column: key: what (have ..., want ...); fix" and below it the excerpt.
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

// Errors are the faults of one file; after [Errors.Sort] in the order of their places.
// errors.As with a *Error finds the first.
type Errors []*Error

// Error prints the first faults, one below the other.
func (e Errors) Error() string { return lists.Errors[*Error](e).Error() }

// Unwrap gives errors.Is and errors.As every fault.
func (e Errors) Unwrap() []error { return lists.Errors[*Error](e).Unwrap() }

// Sort puts the faults in the order of their places; those of one place keep theirs.
func (e Errors) Sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// MaxQuoted bounds, in characters, how much of a value a message repeats.
const MaxQuoted = 60

// Quote is strconv.Quote with a bound on its length. Quoting also keeps terminal escapes in a file from being obeyed.
func Quote(s string) string { return strconv.Quote(Shorten(s)) }

// Shorten cuts a text that is too long for a message and marks the cut.
func Shorten(s string) string { return words.Clip(s, MaxQuoted) }

const (
	excerptBefore = 2   // lines shown above the fault: enough to see the parent key
	excerptWidth  = 100 // characters of a line that are shown
)

// excerpt shows line (from 1) of the source with a marker under column, and the lines just above it.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	first := max(1, line-excerptBefore)
	// A long line is shown from a place that keeps the marker in sight; all lines shift alike, to stay aligned.
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

// window returns the part of a line that is shown. What is not printable becomes one character, tabs become a space:
// so the marker stays under its column and nothing in the file can steer the terminal.
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

// Nearest returns the candidate that a misspelt word most likely means, or "" if none is near.
func Nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	// Half of the letters may be wrong, and never more than three: disk is not a slip of nics.
	best, bestDistance := "", min(4, (len(word)+1)/2+1)
	for _, c := range candidates {
		d := Distance(word, c)
		// The short forms people type (mem, cpu, node) are near whatever their distance is.
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// Meant asks whether the nearest candidate was meant; "" if none is near.
func Meant(word string, candidates []string) string {
	near := Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return "did you mean " + near + "?"
}

// Distance is the Levenshtein distance: how many bytes to insert, delete or replace.
func Distance(a, b string) int {
	if len(a) > MaxQuoted { // far from every key; do not spend quadratic time on it
		return len(a)
	}
	// One row of the table is enough: a cell needs the one above it, the one to its left, and the one
	// diagonally above, which is kept aside before it is overwritten.
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
