package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// leastWidth is the narrowest terminal that texts are folded for: in a narrower one the tables, which are not folded,
// would break anyway.
const leastWidth = 60

// A Terminal prints texts that are folded to its width. Errors of writing stay in the bufio.Writer until Flush. What it
// prints must be printable already.
type Terminal struct {
	*bufio.Writer
	Width int  // in columns
	Color bool // the caller decides, for instance by NO_COLOR
	// Alarm is a word that is red wherever it stands in a text without a colour, so that it is seen from afar.
	Alarm string
}

// NewTerminal returns a terminal of the given width, or of the usual one where that is 0.
func NewTerminal(w io.Writer, width, usual int, color bool) *Terminal {
	return &Terminal{Writer: bufio.NewWriter(w), Width: max(cmp.Or(max(width, 0), usual), leastWidth), Color: color}
}

// Colored is s in the colours that are not 0, where colours are wanted.
func (t *Terminal) Colored(s string, colors ...text.Color) string {
	if !t.Color || s == "" || cmp.Or(colors...) == 0 {
		return s
	}
	// Not Colors.Sprint: it asks the environment, and the caller has decided.
	return text.Colors(colors).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// Line prints a line that is not folded.
func (t *Terminal) Line(s string) {
	s = strings.TrimRight(s, " ")
	if t.Alarm != "" {
		s = strings.ReplaceAll(s, t.Alarm, t.Colored(t.Alarm, text.FgRed))
	}
	fmt.Fprintln(t, s)
}

// Wrap prints a text folded to the width. The first line starts with first, the others with rest; the colours are those
// of the text alone.
func (t *Terminal) Wrap(first, rest, s string, colors ...text.Color) {
	// 20: where a prefix takes most of the width, a text that is too wide reads better than one word a line.
	room := max(t.Width-max(text.StringWidth(first), text.StringWidth(rest)), 20)
	for line := range strings.SplitSeq(text.WrapSoft(s, room), "\n") {
		t.Line(first + t.Colored(strings.TrimRight(line, " "), colors...))
		first = rest
	}
}

// Title prints a heading below an empty line.
func (t *Terminal) Title(s string) {
	fmt.Fprintln(t)
	t.Wrap("", "", s, text.Bold)
}
