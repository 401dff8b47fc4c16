package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/gpudirect"
	"github.com/rackless/rackless/report/hostview"
)

func newGPUDirectCmd(a *app) *cobra.Command {
	var format string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "gpudirect [check] [FILE|DIR|-]... | LAB",
		Short: "Say whether GPUDirect RDMA works between each GPU and each NIC of a machine, or try it in a lab",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "check" {
				args = args[1:]
			} else if len(hosts) == 0 {
				if tried, err := a.gpuDirectInLab(cmd.Context(), format, args); tried {
					return err
				}
			}
			return a.gpuDirect(cmd.Context(), format, hosts, args)
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "check "+hostHelp+"; can be given several times")
	offerHosts(cmd)
	return cmd
}

func (a *app) gpuDirect(ctx context.Context, format string, hosts, paths []string) error {
	jobs, _, err := a.hostJobs(ctx, inspectOptions{hosts: hosts}, paths)
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
			fmt.Fprintf(a.err, "rackless: %v\n", err) // the error names the file
			continue
		}
		reports = append(reports, r)
	}
	if err := a.print(format, reports, hostview.GPUDirect(reports, a.width())); err != nil {
		return err
	}
	faults := lists.Count(reports, func(r *gpudirect.Report) bool { return r.Status == finding.Failed })
	return ended(nil, failed, faults, len(jobs.All))
}
