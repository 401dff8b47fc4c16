package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report"
)

func newReportCmd(a *app) *cobra.Command {
	var output, html string
	var list, all bool
	cmd := &cobra.Command{
		Use:   "report [NAME|LAB.yaml|DIRECTORY]",
		Short: "Show a measurement again: the last one, or that of a result directory",
		Long: `Prints the tables of the last measurement (of any lab, or of the one named), and where its page is. With a result directory, of that
one. The page is made anew from the stored figures with --html.`,
		Example: `  rackless report
  rackless report pair --html pair.html
  rackless report --list`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			if list {
				return a.listResults(d, args, output)
			}
			dir, err := findResult(d, args)
			if err != nil {
				return err
			}
			data, err := loadResult(dir)
			if err != nil {
				return err
			}
			switch {
			case html != "":
				f, err := os.Create(html)
				if err != nil {
					return err
				}
				return errors.Join(report.Page(f, data), f.Close())
			case output == "json":
				e := json.NewEncoder(a.out)
				e.SetIndent("", "  ")
				return e.Encode(data)
			}
			if err := report.Terminal(a.out, data, report.TerminalOptions{Color: a.color(), Width: a.width(), AllSizes: all}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "\nresults: %s\npage:    %s\n", filepath.Join(dir, samplesFile), filepath.Join(dir, pageFile))
			return nil
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "write the page to this file")
	cmd.Flags().BoolVar(&list, "list", false, "list the stored measurements")
	cmd.Flags().BoolVar(&all, "all", false, "print all message sizes that were measured, not only the usual ones")
	outputFlag(cmd, &output)
	return cmd
}

// findResult returns the directory that the arguments of report mean.
func findResult(d rack.Dirs, args []string) (string, error) {
	name := ""
	if len(args) == 1 {
		if _, err := os.Stat(filepath.Join(args[0], reportFile)); err == nil {
			return args[0], nil
		}
		var err error
		if name, err = labName(args[0]); err != nil {
			return "", err
		}
	}
	all, err := listResults(d, name)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		what := "no measurement is stored"
		if name != "" {
			what += " of lab " + name
		}
		return "", fmt.Errorf("%s in %s; make one with: rackless bench NAME", what, resultsDir(d))
	}
	return all[len(all)-1].Dir, nil
}

func (a *app) listResults(d rack.Dirs, args []string, output string) error {
	name := ""
	if len(args) == 1 {
		var err error
		if name, err = labName(args[0]); err != nil {
			return err
		}
	}
	all, err := listResults(d, name)
	if err != nil {
		return err
	}
	if output == "json" {
		if all == nil {
			all = []result{}
		}
		return json.NewEncoder(a.out).Encode(all)
	}
	for _, r := range all {
		fmt.Fprintf(a.out, "%s  %-20s  %s\n", r.Time, r.Lab, r.Dir)
	}
	return nil
}
