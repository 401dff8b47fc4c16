package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// leastWidth is the smallest width to which texts are wrapped. On a narrower terminal, the tables would break anyway.
const leastWidth = 60

// A Terminal prints texts wrapped to its width. Texts must already be printable. Write errors stay in the
// bufio.Writer until Flush.
type Terminal struct {
	*bufio.Writer
	Width int  // in columns
	Color bool // the caller decides, for instance by NO_COLOR
	// Alarm is a word that is shown in red in any line, so that it stands out.
	Alarm string
}

// NewTerminal returns a terminal of the given width, or of the usual one if width is 0.
func NewTerminal(w io.Writer, width, usual int, color bool) *Terminal {
	return &Terminal{Writer: bufio.NewWriter(w), Width: max(cmp.Or(max(width, 0), usual), leastWidth), Color: color}
}

// Colored returns s in the colours that are not 0, if the terminal has colours.
func (t *Terminal) Colored(s string, colors ...text.Color) string {
	if !t.Color || s == "" || cmp.Or(colors...) == 0 {
		return s
	}
	// Do not use Colors.Sprint, which reads the environment: the caller has decided.
	return text.Colors(colors).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// Line prints a line without wrapping.
func (t *Terminal) Line(s string) {
	s = strings.TrimRight(s, " ")
	if t.Alarm != "" {
		s = strings.ReplaceAll(s, t.Alarm, t.Colored(t.Alarm, text.FgRed))
	}
	fmt.Fprintln(t, s)
}

// Wrap prints a text wrapped to the width. The first line starts with first, the others with rest. The colours apply
// only to the text.
func (t *Terminal) Wrap(first, rest, s string, colors ...text.Color) {
	// At least 20: if a prefix takes most of the width, overlong lines are easier to read than one word per line.
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
