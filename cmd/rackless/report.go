package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
)

// newReportCmd needs only stored results, no running lab.
func newReportCmd(a *app) *cobra.Command {
	var form, out string
	var list, all bool
	cmd := &cobra.Command{
		Use:               "show [RESULT [RESULT]]",
		Short:             "Show a measurement again, or two side by side",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			one := !list && len(args) < 2
			both := form == formatText || show.ForPrograms(form)
			if list && len(args) > 1 {
				return cli.Usagef(cmd, "--list takes one lab at most")
			}
			if !one && !both && (list || form != formHTML) {
				return cli.Usagef(cmd, "-o %s is of one result", form)
			}
			kept, err := a.results()
			if err != nil {
				return err
			}
			print := func(a *app) error {
				switch {
				case list:
					return a.listResults(kept, args, form)
				case len(args) == 2:
					return a.compareResults(kept, args, form, all)
				}
				return a.showResult(kept, args, form, all, out == "")
			}
			if out == "" {
				return print(a)
			}
			return atomicfile.Write(out, 0o644, func(w io.Writer) error {
				into := *a
				into.out = w
				return print(&into)
			})
		},
	}
	form = formatText
	cli.EnumFlag(cmd, &form, "output", "o", "how to print it", formatText, "md", formatJSON, formatYAML,
		"csv", formHTML)
	cmd.Flags().StringVar(&out, "out", "", "write to `FILE` instead of printing")
	cmd.Flags().BoolVar(&list, "list", false, "list the stored measurements")
	cmd.Flags().BoolVar(&all, "all", false, "print all message sizes that were measured, not only the usual ones")
	cli.Renamed(cmd, "format", "", "output")
	cli.Replaced(cmd, "html", "", "-o html --out", func(file string) error {
		return errors.Join(cmd.Flags().Set("output", formHTML), cmd.Flags().Set("out", file))
	}, "output", "out")
	return cmd
}

// showResult ends text with the files of the result, if paths is set.
func (a *app) showResult(kept results.Store, args []string, form string, all, paths bool) error {
	dir, err := findResult(kept, args)
	if err != nil {
		return err
	}
	data, err := results.Load(dir)
	if err != nil {
		return err
	}
	switch {
	case form == formHTML:
		return report.Page(a.out, data)
	case form == "md":
		return report.Markdown(a.out, data)
	case form == "csv":
		return report.CSV(a.out, data)
	case show.ForPrograms(form):
		return show.Encode(a.out, form, data)
	}
	err = a.printMeasurement(data, all)
	if err == nil && paths {
		a.printPaths(dir)
	}
	return err
}

func (a *app) printMeasurement(data record.Record, allSizes bool) error {
	return report.Terminal(a.out, data, a.tables(allSizes))
}

func (a *app) tables(allSizes bool) report.TerminalOptions {
	return report.TerminalOptions{Color: a.color(), Width: a.width(), AllSizes: allSizes}
}

func (a *app) printPaths(dir string) {
	fmt.Fprintf(a.out, "\nresults: %s\npage:    %s\n", filepath.Join(dir, results.SamplesFile),
		filepath.Join(dir, results.PageFile))
}

func (a *app) compareResults(kept results.Store, args []string, form string, all bool) error {
	var data [2]record.Record
	var dirs [2]string
	for i, arg := range args {
		var err error
		if dirs[i], err = findResult(kept, []string{arg}); err != nil {
			return err
		}
		if data[i], err = results.Load(dirs[i]); err != nil {
			return err
		}
	}
	// A result and its lab's name may be the same measurement.
	if filepath.Clean(dirs[0]) == filepath.Clean(dirs[1]) {
		return cli.Usage(fmt.Errorf("%s and %s are the same result, %s; rackless bench show --list names the others",
			args[0], args[1], dirs[0]))
	}
	switch {
	case form == formHTML:
		return report.ComparePage(a.out, data[0], data[1])
	case show.ForPrograms(form):
		return show.Encode(a.out, form, report.Compare(data[0], data[1]))
	}
	return report.CompareTerminal(a.out, data[0], data[1], a.tables(all))
}

func findResult(kept results.Store, args []string) (string, error) {
	// The last measurement of any lab is usually the one just made.
	if len(args) == 0 {
		return kept.Last("")
	}
	// Any other argument is a lab, and selects its last result.
	if dir := kept.Find(args[0]); dir != "" {
		return dir, nil
	}
	name, err := planner.LabName(args[0])
	if err != nil {
		return "", err
	}
	return kept.Last(name)
}

func (a *app) results() (results.Store, error) {
	d, err := a.dirs()
	return results.Store{Data: d.Data}, err
}

// listResults ends with the newest.
func (a *app) listResults(kept results.Store, args []string, output string) error {
	name := ""
	if len(args) == 1 {
		var err error
		if name, err = planner.LabName(args[0]); err != nil {
			return err
		}
	}
	all, err := kept.List(name)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range all {
		fmt.Fprintf(&text, "%s  %-20s  %s\n", r.Time, r.Lab, r.Dir)
	}
	return a.print(output, append([]results.Result{}, all...), &text) // [] for programs
}
