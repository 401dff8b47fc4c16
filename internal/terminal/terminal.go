// Package terminal shows things on a terminal and connects it with others: the steps of a longer
// operation, a console, a log. What is no terminal gets plain lines.
package terminal

import (
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Of returns the file behind w if it is a terminal, else nil.
func Of(w any) *os.File {
	if out, ok := w.(*Writer); ok {
		w = out.File
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Size returns the size of a terminal in characters, or the usual one if the terminal does not know.
func Size(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Cut shortens a line to at most width columns, and shows that it did.
func Cut(line string, width int) string {
	if text.StringWidthWithoutEscSequences(line) <= width {
		return line
	}
	return text.Snip(line, max(width, 1), "~")
}
