package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
)

// newBaselineCmd makes rackless bench baseline. A baseline is stored apart from the measurements, because users may
// remove these and a CI job has only the file.
func newBaselineCmd(a *app) *cobra.Command {
	return grouping("baseline", "Compare a measurement with an earlier one, with a tolerance, for example in CI",
		newBaselineSaveCmd(a), newBaselineCheckCmd(a))
}

func (a *app) storedResult(args []string) (results.Store, record.Record, error) {
	kept, err := a.results()
	if err != nil {
		return kept, record.Record{}, err
	}
	dir, err := findResult(kept, args)
	if err != nil {
		return kept, record.Record{}, err
	}
	data, err := results.Load(dir)
	return kept, data, err
}

// newBaselineSaveCmd's --out lets a CI keep the baseline in its repository.
func newBaselineSaveCmd(a *app) *cobra.Command {
	var out string
	var tolerances []string
	cmd := &cobra.Command{
		Use:               "save [NAME|LAB.yaml|DIRECTORY]",
		Short:             "Save the last measurement of a lab as its baseline",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			// A wrong tolerance is a usage error, no matter which measurements are stored.
			all, byMetric, err := expect.ParseTolerances(tolerances)
			if err != nil {
				return cli.Usagef(cmd, "--tolerance %v", err)
			}
			kept, data, err := a.storedResult(args)
			if err != nil {
				return err
			}
			b, err := expect.NewBaseline(data.Samples, all, byMetric)
			if err != nil {
				return fmt.Errorf("lab %s, measured %s: %w", data.Lab, data.Generated.Format(time.DateTime), err)
			}
			// Comparisons need the age of the figures, not of the file.
			b.Lab, b.Made, b.Rackless = data.Lab, data.Generated.UTC().Format(time.RFC3339), data.Rackless
			path, err := kept.SaveBaseline(out, b)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "baseline of lab %s: %s, within %s: %s\n", data.Lab,
				words.Count(len(b.Figures), "figure"), strings.Join(tolerances, ", "), path)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write to `FILE` instead of the directory of data")
	cmd.Flags().StringSliceVar(&tolerances, "tolerance", []string{fmt.Sprintf("%g%%", 100*expect.DefaultTolerance)},
		"how much worse a figure may be; METRIC=SHARE for one metric")
	return cmd
}

type baselineOutput struct {
	Lab      string             `json:"lab"`
	Baseline string             `json:"baseline"` // file
	Made     string             `json:"made"`     // time of the baseline's measurement
	Measured time.Time          `json:"measured"` // of the measurement compared with it
	OK       bool               `json:"ok"`
	Figures  []expect.Deviation `json:"figures"`
}

// newBaselineCheckCmd exits with status 3 if a figure is out of bounds, so that a CI can tell this from an error.
func newBaselineCheckCmd(a *app) *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:               "check [NAME|LAB.yaml|DIRECTORY]",
		Short:             "Compare the last measurement of a lab with its baseline",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, data, err := a.storedResult(args)
			if err != nil {
				return err
			}
			path := cmp.Or(file, kept.BaselineFile(data.Lab))
			text, err := userfile.Read(path, userfile.Data)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("lab %s has no baseline: %w; make one with: rackless bench baseline save "+
					"%s", data.Lab, err,
					data.Lab)
			}
			if err != nil {
				return err
			}
			b, err := expect.ReadBaseline(bytes.NewReader(text))
			if err != nil {
				// People edit this file.
				return cli.Usage(fmt.Errorf("%s: %w", path, err))
			}
			out := baselineOutput{Lab: data.Lab, Baseline: path, Made: b.Made, Measured: data.Generated, OK: true}
			if out.Figures, err = b.Check(data.Samples); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			bad := 0
			for _, x := range out.Figures {
				if !x.OK {
					bad, out.OK = bad+1, false
				}
			}
			// All figures, to show how close the others came to their bounds.
			if err := a.print(format, out, report.Deviations(out.Figures)); err != nil || out.OK {
				return err
			}
			return faultf("lab %s: %d of %s are not as in the baseline", data.Lab, bad,
				words.Count(len(out.Figures), "figure"))
		},
	}
	cmd.Flags().StringVar(&file, "baseline", "", "compare with `FILE` instead of the one in the directory of data")
	outputFlag(cmd, &format)
	return cmd
}
