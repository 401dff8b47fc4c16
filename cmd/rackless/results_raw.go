package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/study/conduct"
)

// newResultsRawCmd makes rackless results raw. It prints the evidence behind a figure, byte by byte.
func newResultsRawCmd(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "raw RUN",
		Short: "Print the original output of the tools of a run",
		Args:  cli.ExactArgs(1, "the number of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || run < 1 {
				return cli.Usagef(cmd, "run %q: want a number, as the column run of the view sample has them", args[0])
			}
			db, err := a.readStudies(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer db.Close()
			all, err := db.Invocations(cmd.Context(), run)
			if err != nil {
				return err
			}
			// Imported runs have none. An empty answer would look as if the tools had printed nothing.
			if len(all) == 0 {
				return fmt.Errorf("run %d has started no tool", run)
			}
			for i, x := range all {
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if err := conduct.WriteInvocation(a.out, x); err != nil {
					return fmt.Errorf("run %d: %w", run, err)
				}
			}
			return nil
		},
	}
	dbFlag(cmd, &path)
	return cmd
}
