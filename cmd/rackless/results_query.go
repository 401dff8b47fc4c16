package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/show"
)

// newResultsCmd makes rackless results, which only groups its subcommands.
func newResultsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Query the study database in SQL, import other results, hold them against a machine",
	}
	cmd.AddCommand(newResultsQueryCmd(a), newResultsRawCmd(a), newResultsImportCmd(a), newResultsCheckCmd(a))
	return cmd
}

// newResultsQueryCmd makes rackless results query. SQL is the interface for questions that no verb answers.
func newResultsQueryCmd(a *app) *cobra.Command {
	var path string
	format := formTable
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "query SQL",
		Short: "Query the study database in SQL, read-only",
		Args:  cli.ExactArgs(1, "a question in SQL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.readStudies(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer db.Close()
			ctx, cancel := cmd.Context(), func() {}
			if limit > 0 {
				ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the query was stopped after %v: "+
					"--timeout allows it more time, or 0 any", limit))
			}
			defer cancel()
			head, row, end := show.Rows(a.out, format)
			err = db.Query(ctx, args[0], head, row)
			switch {
			case errors.Is(err, show.ErrFull):
				fmt.Fprintln(a.err, err)
			case err != nil && ctx.Err() != nil:
				return err
			case err != nil:
				return cli.Usage(err) // what SQLite refuses is the statement: the caller's error
			}
			return end()
		},
	}
	dbFlag(cmd, &path)
	cli.EnumFlag(cmd, &format, "output", "o", "how to print the result", "table", "csv", formatJSON, formatYAML)
	cli.EnumFlag(cmd, &format, "format", "", "the same as --output", "table", "csv", formatJSON, formatYAML)
	cmd.Flag("format").Hidden = true // its name before all verbs had -o
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "stop the query after this `TIME`; 0: never")
	return cmd
}
