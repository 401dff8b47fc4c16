package show

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// leastWidth is kept on narrower terminals, on which tables would break anyway.
const leastWidth = 60

// A Terminal prints texts, which must be printable, wrapped to its width. Errors stay in the bufio.Writer until Flush.
type Terminal struct {
	*bufio.Writer
	Width int  // in columns
	Color bool // the caller decides, as by NO_COLOR
	// Alarm is shown in red in any line.
	Alarm string
}

// NewTerminal uses the usual width if width is 0.
func NewTerminal(w io.Writer, width, usual int, color bool) *Terminal {
	return &Terminal{Writer: bufio.NewWriter(w), Width: max(cmp.Or(max(width, 0), usual), leastWidth), Color: color}
}

// Colored returns s in the colours that are not 0, if the terminal has any.
func (t *Terminal) Colored(s string, colors ...text.Color) string {
	if !t.Color || s == "" || cmp.Or(colors...) == 0 {
		return s
	}
	// Colors.Sprint reads the environment, but the caller has decided.
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

// Wrap prints a text wrapped to the width, after first, then rest. Only the text has colours.
func (t *Terminal) Wrap(first, rest, s string, colors ...text.Color) {
	// Overlong lines are easier to read than one word per line.
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
