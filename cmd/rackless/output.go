package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

const (
	formatText = show.Text
	formatJSON = show.JSON
	formatYAML = show.YAML
)

// formJUnit is for continuous-integration servers.
const formJUnit = "junit"

// outputFlag adds -o, by default text. docs/json.md describes the JSON.
func outputFlag(cmd *cobra.Command, format *string) {
	*format = formatText
	cli.EnumFlag(cmd, format, "output", "o", "how to print the result", formatText, formatJSON, formatYAML)
}

// print prints v for programs, or text.
func (a *app) print(format string, v, text any) error {
	if show.ForPrograms(format) {
		return show.Encode(a.out, format, v)
	}
	return a.show(text)
}

// show wraps to the width of the terminal.
func (a *app) show(text any) error {
	if g, ok := text.(*show.Grid); ok {
		text = g.Fit(a.width())
	}
	_, err := fmt.Fprint(a.out, show.Fold(fmt.Sprint(text), a.width()))
	return err
}

// color is true on a terminal, unless NO_COLOR is set to anything (no-color.org).
func (a *app) color() bool {
	if terminal.Of(a.out) == nil || a.env("NO_COLOR") != "" {
		return false
	}
	if w, ok := a.out.(*terminal.Writer); ok {
		w.Color()
	}
	return true
}

// exactFor makes output for programs byte-exact unless it goes to a terminal. All other output has control characters
// escaped.
func (a *app) exactFor(cmd *cobra.Command) {
	w, ok := a.out.(*terminal.Writer)
	if !ok || terminal.Of(w) != nil {
		return
	}
	switch cmp.Or(cmd.Annotations[cli.Now], strings.TrimPrefix(cmd.CommandPath(), "rackless ")) {
	// Files, or the output of another program, in any format.
	case "export", "host snapshot", "lab defaults", "lab schema", "link capture", "logs", "study raw":
		w.Exact()
	case "host check": // patch reads only the diff, and line ends are part of it
		if f := cmd.Flags().Lookup("diff"); f.Value.String() == "true" {
			w.Exact()
		}
	}
	if f := cmd.Flags().Lookup("output"); f != nil && slices.Contains(append([]string{formatJSON, formatYAML, formSVG,
		formHTML, formJUnit, "csv"}, hostview.EnvForms...), f.Value.String()) {
		w.Exact()
	}
}

func (a *app) help(cmd *cobra.Command) error {
	if cmd == cmd.Root() && !a.all {
		return a.show(show.Reflow(briefHelp(cmd), a.width()) + "\n")
	}
	return a.show(show.Reflow(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), a.width()) + "\n\n" + cmd.UsageString())
}

// raw shows another program's output unchanged. A closed pipe then is an error of Write instead of the end of rackless,
// which would leave the program running.
func raw(w io.Writer) io.Writer {
	signal.Ignore(syscall.SIGPIPE)
	if w, ok := w.(*terminal.Writer); ok {
		return w.File
	}
	return w
}

// width is from COLUMNS, or of the terminal, or 0 if unknown.
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

func (a *app) painter() func(code, s string) string {
	color := a.color()
	return func(code, s string) string { return terminal.Paint(color, code, s) }
}

// display shows steps on standard error, apart from results in a pipe. Close it before anything else is printed.
func (a *app) display() *terminal.Display {
	ui := terminal.NewDisplay(a.err, a.env)
	if d, err := a.dirs(); err == nil { // no reason to fail
		ui.Remember(filepath.Join(d.Cache, "times.json"))
	}
	return ui
}

// progress's end may be called twice, so that it can be deferred.
func (a *app) progress() (p *steps.Progress, end func()) {
	ui := a.display()
	return &steps.Progress{Report: ui.Event}, ui.Close
}

func (a *app) inDirs(run func(context.Context, userdirs.Dirs, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		return run(cmd.Context(), d, args)
	}
}

// fault marks err as a fault of the inspected object rather than of the program.
func fault(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Error{Code: exitFaults, Err: err}
}

func faultf(format string, args ...any) error { return fault(fmt.Errorf(format, args...)) }
