package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/appraise"
	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/importer"
)

// newResultsCheckCmd makes rackless results check, which answers for logs of any machine: no lab and no study is
// needed.
func newResultsCheckCmd(a *app) *cobra.Command {
	var snapshot, device, format string
	options := importer.Options{Version: version, Name: "check"}
	cmd := &cobra.Command{
		Use:   "check [LEVEL=]PATH...",
		Short: "Hold the figures of logs against a machine: are they normal, and if not, what limits them",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef(cmd, "want a log or a directory of logs")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resultsCheck(cmd.Context(), options, snapshot, device, format, args)
		},
	}
	cmd.Flags().StringVar(&snapshot, "snapshot", planner.Local, "the machine that was measured: a file or directory "+
		"`PATH` that inspect reads, \"-\" or local")
	cmd.Flags().StringVar(&device, "device", "",
		"the RDMA or network device `NAME` of logs that name none (default: the "+
			"fastest)")
	cli.EnumFlag(cmd, &options.Format, "format", "", "what the logs are", importer.Formats()...)
	outputFlag(cmd, &format)
	return cmd
}

// resultsCheck holds the figures of logs against a machine. What it finds is printed whatever the status is: the status
// is for scripts, and the reasons are for people.
func (a *app) resultsCheck(ctx context.Context, o importer.Options, snapshot, device, format string,
	args []string) error {
	// Opened before the machine is read, which takes seconds: a wrong name costs nothing.
	sources, closeAll, err := conduct.OpenSources(args)
	if err != nil {
		return cli.Usage(err)
	}
	defer closeAll()
	h, name, err := planner.ReadHost(ctx, snapshot, a.in)
	if err != nil {
		return err
	}
	studies, err := importer.Import(sources, o)
	if err != nil {
		return err
	}
	out := appraise.NewResult(name, h, diagnose.Host(h), studies, device)
	bad, unknown := out.Count()
	switch err := a.print(format, out, report.Appraisal(out)); {
	case err != nil:
		return err
	// A figure that nothing is known of is no fault of the machine. Where that holds for all of them, the question was
	// not answered, which must not look like a machine in order.
	case unknown == len(out.Figures):
		return fmt.Errorf("none of %s can be held against %s", words.Count(unknown, "figure"), out.Host)
	case bad > 0:
		return faultf("not what %s should give: %d of %s", out.Host, bad, words.Count(len(out.Figures), "figure"))
	}
	return nil
}
