package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/gpudirect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// newGPUDirectCmd makes rackless gpudirect.
func newGPUDirectCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "gpudirect [check] [FILE|DIR|-]...",
		Short: "Say whether GPUDirect RDMA works between each GPU and each NIC of a machine",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "check" {
				args = args[1:]
			}
			return a.gpuDirect(cmd.Context(), format, args)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// gpuDirect judges the machines at paths, or this one.
func (a *app) gpuDirect(ctx context.Context, format string, paths []string) error {
	jobs, err := a.hostJobs(ctx, inspectOptions{}, paths)
	if err != nil {
		return err
	}
	defer jobs.Done()
	reports := []*gpudirect.Report{}
	failed := 0
	for _, job := range jobs.All {
		h, err := job.Read(ctx)
		var r *gpudirect.Report
		if err == nil {
			r, err = gpudirect.Check(h, job.Name)
		}
		if err != nil {
			if !jobs.Many {
				return err
			}
			failed++
			fmt.Fprintf(a.err, "rackless: %v\n", err) // it names the file
			continue
		}
		reports = append(reports, r)
	}
	var text strings.Builder
	for i, r := range reports {
		fmt.Fprintf(&text, "%sGPUDirect RDMA in %s: %s\n\n%s", words.If(i > 0, "\n"), r.Host, verdicts[r.Status],
			gpuDirectGrid(r).Fit(a.width()))
	}
	if err := a.print(format, reports, text.String()); err != nil {
		return err
	}
	faults := lists.Count(reports, func(r *gpudirect.Report) bool { return r.Status == finding.Failed })
	return ended(nil, failed, faults, len(jobs.All))
}

// verdicts are statuses in words.
var verdicts = map[finding.Status]string{finding.OK: "ok", finding.Failed: "not ok", finding.Unknown: "not known"}

// gpuDirectGrid has a line for each fact of the machine and each pair. Of a pair it shows the checks that decide.
func gpuDirectGrid(r *gpudirect.Report) *show.Grid {
	g := show.NewGrid("what", "path", "verdict", "evidence", "fix")
	for _, f := range r.Facts {
		g.Add(f.ID, "", verdicts[f.Status], f.Evidence, f.Fix)
	}
	for _, p := range r.Pairs {
		var evidence, fixes []string
		for _, f := range p.Checks {
			if f.Status == p.Status {
				evidence = append(evidence, f.Evidence)
				fixes = lists.Add(fixes, f.Fix)
			}
		}
		fixes = slices.DeleteFunc(fixes, func(s string) bool { return s == "" })
		g.Add(p.GPU+" to "+p.NIC, p.Path.String(), verdicts[p.Status], strings.Join(evidence, "; "),
			strings.Join(fixes, "; "))
	}
	return g
}
