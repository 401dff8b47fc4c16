package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/rack"
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

// print prints a value as JSON, or as the text that fmt makes of the other one.
func (a *app) print(format string, v, text any) error {
	if format == formatJSON {
		return a.printJSON(v)
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}

// printJSON prints a result as JSON for people and programs alike.
func (a *app) printJSON(v any) error { return writeJSON(a.out, v) }

// color reports whether results may be coloured: on a terminal, unless NO_COLOR is set to anything (no-color.org).
func (a *app) color() bool {
	if terminal.Of(a.out) == nil || a.env("NO_COLOR") != "" {
		return false
	}
	if w, ok := a.out.(*terminal.Writer); ok {
		w.Color()
	}
	return true
}

// exactFor passes on byte by byte what programs read, where it does not go to a terminal. All other output is text for
// people, which is made safe to show.
func (a *app) exactFor(cmd *cobra.Command) {
	w, ok := a.out.(*terminal.Writer)
	if !ok || terminal.Of(w) != nil {
		return
	}
	switch strings.TrimPrefix(cmd.CommandPath(), "rackless ") {
	case "capture", "lab defaults", "lab schema", "logs", "results raw", "snapshot":
		w.Exact()
	}
	for _, name := range []string{"output", "format"} {
		if f := cmd.Flags().Lookup(name); f != nil && slices.Contains([]string{formatJSON, formYAML, formSVG, formDOT,
			formHTML, formJUnit, "csv"}, f.Value.String()) {
			w.Exact()
		}
	}
}

// raw is where the output of another program goes, which is shown as it is.
func raw(w io.Writer) io.Writer {
	if w, ok := w.(*terminal.Writer); ok {
		return w.File
	}
	return w
}

// width returns the columns of the terminal that results go to, or 0 where they do not go to one.
func (a *app) width() int {
	f := terminal.Of(a.out)
	if f == nil {
		return 0
	}
	w, _ := terminal.Size(f)
	return w
}

// painter returns the function that colours text, where results may be coloured.
func (a *app) painter() func(code, s string) string {
	color := a.color()
	return func(code, s string) string {
		if !color {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
}

// progress shows the steps of a longer operation on standard error. end must be called before
// anything else is printed there; a second call does nothing, so that it can be deferred too.
func (a *app) progress() (p *rack.Progress, end func()) {
	// Standard error, so that steps do not mix with a result that is piped.
	ui := terminal.NewDisplay(a.err, a.env)
	return &rack.Progress{Report: ui.Event}, ui.Close
}

// inDirs is the RunE of a verb that works in the directories of rackless.
func (a *app) inDirs(run func(context.Context, rack.Dirs, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		return run(cmd.Context(), d, args)
	}
}

// faultf is an error of what was looked at, and not of the program.
func faultf(format string, args ...any) error {
	return &exitError{exitFaults, fmt.Errorf(format, args...)}
}

// exitWith ends the program with the status of a command that has said everything itself.
func exitWith(status int) error {
	if status == 0 {
		return nil
	}
	return &exitError{status, nil}
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
