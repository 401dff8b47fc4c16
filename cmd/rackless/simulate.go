//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report/tables"
)

func newSimulateCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "simulate FILE.yaml",
		Short:             "Simulate congestion between RDMA NICs in virtual time",
		Args:              cli.ExactArgs(1, "one FILE.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.simulate(cmd.Context(), format, args[0])
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// simulate prints the result until then after Ctrl-C.
func (a *app) simulate(ctx context.Context, format, file string) error {
	text, err := userfile.Read(file, userfile.Text)
	if err != nil {
		return cli.Usage(err)
	}
	c, err := simulate.Parse(file, text)
	if err != nil {
		return cli.Usage(err)
	}
	r := simulate.Run(c, func() bool { return ctx.Err() != nil })
	if err := a.print(format, r, tables.Simulation(r)); err != nil {
		return err
	}
	if r.Unfinished > 0 {
		return &cli.Error{Code: exitFailed, Err: fmt.Errorf("%d of %s did not end within %v of the simulation",
			r.Unfinished, words.Count(len(r.Flows), "flow"), r.Time)}
	}
	return nil
}
