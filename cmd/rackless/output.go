package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// Formats of a listing.
const (
	formatText = show.Text
	formatJSON = show.JSON
	formatYAML = show.YAML
)

// formJUnit is the form that servers of continuous integration read.
const formJUnit = "junit"

// outputFlag adds -o to a verb that lists something; format is text after it. The shapes of the
// JSON are in docs/json.md.
func outputFlag(cmd *cobra.Command, format *string) {
	*format = formatText
	cli.EnumFlag(cmd, format, "output", "o", "how to print the result", formatText, formatJSON, formatYAML)
}

// print prints a value in a form for programs, or as the text that fmt makes of the other one.
func (a *app) print(format string, v, text any) error {
	if show.ForPrograms(format) {
		return show.Encode(a.out, format, v)
	}
	return a.show(text)
}

// show prints a text or a table for people, folded to the width of the terminal.
func (a *app) show(text any) error {
	if g, ok := text.(*show.Grid); ok {
		text = g.Fit(a.width())
	}
	_, err := fmt.Fprint(a.out, show.Fold(fmt.Sprint(text), a.width()))
	return err
}

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
	// Verbs whose result is a file or the output of another program, in whatever form.
	case "capture", "export", "lab defaults", "lab schema", "logs", "results raw", "snapshot":
		w.Exact()
	case "check": // patch reads the diff alone, and line ends are a part of it
		if f := cmd.Flags().Lookup("diff"); f.Value.String() == "true" {
			w.Exact()
		}
	}
	for _, name := range []string{"output", "format"} {
		if f := cmd.Flags().Lookup(name); f != nil && slices.Contains(append([]string{formatJSON, formatYAML, formSVG,
			formHTML, formJUnit, "csv"}, hostview.EnvForms...), f.Value.String()) {
			w.Exact()
		}
	}
}

// help prints the help of a command for the width of the terminal.
func (a *app) help(cmd *cobra.Command) error {
	if cmd == cmd.Root() && !a.all {
		return a.show(show.Reflow(briefHelp(cmd), a.width()))
	}
	return a.show(show.Reflow(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), a.width()) + "\n\n" + cmd.UsageString())
}

// raw is where the output of another program goes, which is shown as it is.
func raw(w io.Writer) io.Writer {
	if w, ok := w.(*terminal.Writer); ok {
		return w.File
	}
	return w
}

// width returns the columns that results have: of COLUMNS, which a script sets, or of the terminal that they go to, and
// 0 where nobody says.
func (a *app) width() int {
	if n, err := strconv.Atoi(a.env("COLUMNS")); err == nil && n > 0 && n < 10_000 {
		return n
	}
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
	return func(code, s string) string { return terminal.Paint(color, code, s) }
}

// display shows steps on standard error, so that they do not mix with a result that is piped. It has to be closed
// before anything else is printed on either.
func (a *app) display() *terminal.Display {
	ui := terminal.NewDisplay(a.err, a.env)
	if d, err := a.dirs(); err == nil { // or how much is left is not known: no reason to fail
		ui.Remember(filepath.Join(d.Cache, "times.json"))
	}
	return ui
}

// progress shows the steps of a longer operation. A second call of end does nothing, so that it can be deferred too.
func (a *app) progress() (p *steps.Progress, end func()) {
	ui := a.display()
	return &steps.Progress{Report: ui.Event}, ui.Close
}

// inDirs is the RunE of a verb that works in the directories of rackless.
func (a *app) inDirs(run func(context.Context, userdirs.Dirs, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		return run(cmd.Context(), d, args)
	}
}

// fault makes an error one of what was looked at, and not of the program; nil stays nil.
func fault(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Error{Code: exitFaults, Err: err}
}

// faultf is an error of what was looked at, and not of the program.
func faultf(format string, args ...any) error { return fault(fmt.Errorf(format, args...)) }
