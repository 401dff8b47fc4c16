// Package terminal shows the progress of long operations, consoles and logs on a terminal.
package terminal

import (
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Of returns the file behind w, perhaps a [Writer], if it is a terminal, otherwise nil.
func Of(w any) *os.File {
	if out, ok := w.(*Writer); ok {
		w = out.File
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Size returns characters. If unknown, as on a serial console, it is 80 by 24, the size of a VT100.
func Size(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Cut shortens a line to width columns, with a "~" at the end.
func Cut(line string, width int) string {
	if text.StringWidthWithoutEscSequences(line) <= width {
		return line
	}
	return text.Snip(line, max(width, 1), "~")
}

// Paint colours a text by a code of ECMA-48 (section 8.3.117), unless color is false.
func Paint(color bool, code, s string) string {
	if !color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
