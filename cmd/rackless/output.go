package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/terminal"
)

// Formats of a listing.
const (
	formatText = "text"
	formatJSON = "json"
)

// outputFlag adds -o to a verb that lists something; format is text after it. The shapes of the
// JSON are in docs/json.md.
func outputFlag(cmd *cobra.Command, format *string) {
	*format = formatText
	enumFlag(cmd, format, "output", "o", "how to print the result", formatText, formatJSON)
}

// list prints a value as JSON, or as text by the function.
func (a *app) list(format string, v any, text func() error) error {
	if format == formatJSON {
		return a.printJSON(v)
	}
	return text()
}

// printJSON prints a result as JSON for people and programs alike.
func (a *app) printJSON(v any) error { return writeJSON(a.out, v) }

// color reports whether results may be coloured: on a terminal, unless NO_COLOR is set to anything (no-color.org).
func (a *app) color() bool { return terminal.Of(a.out) != nil && a.env("NO_COLOR") == "" }

// width returns the columns of the terminal that results go to, or 0 where they do not go to one.
func (a *app) width() int {
	f := terminal.Of(a.out)
	if f == nil {
		return 0
	}
	w, _ := terminal.Size(f)
	return w
}

// writeJSON prints one value, indented. Characters such as ">" stay as they are: the result is
// read, not put into a web page.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSONLine prints one value of a stream of them.
func writeJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
