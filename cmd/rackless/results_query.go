package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/listview"
)

// newResultsCmd makes rackless results, which only groups its subcommands.
func newResultsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Query the study database in SQL, import other results, hold them against a machine",
		Long: `All studies of a user are in one SQLite file, with every figure and the state of the machine during
its run. docs/study.md describes its tables.`,
		Example: `  rackless results query "SELECT cell, metric, avg(value) FROM sample GROUP BY cell, metric"
  rackless results import ~/vcpu_benchmarks/results`,
	}
	cmd.AddCommand(newResultsQueryCmd(a), newResultsRawCmd(a), newResultsImportCmd(a), newResultsCheckCmd(a))
	return cmd
}

// newResultsQueryCmd makes rackless results query. SQL is the interface for questions that no verb answers.
func newResultsQueryCmd(a *app) *cobra.Command {
	var path, format string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "query SQL",
		Short: "Query the study database in SQL, read-only",
		Long: `Runs one SQL statement on the study database. The file is opened read-only, and only statements that
read are run, so no statement can change the file or make another one. The view sample has a row for
each figure, with study, block, place, attempt, cell (JSON), status, test, metric, bytes, value and
unit; docs/study.md describes the tables below it. You can query while a study runs.

A table shows the first 10000 rows; csv and json print all. A query that has not finished within
--timeout is stopped.`,
		Example: `  rackless results query "SELECT metric, count(*), min(value), max(value) FROM sample GROUP BY metric"
  rackless results query --format csv "SELECT * FROM sample"`,
		Args: cli.ExactArgs(1, "a question in SQL"),
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
			head, row, end := listview.Rows(a.out, format)
			err = db.Query(ctx, args[0], head, row)
			switch {
			case errors.Is(err, listview.ErrFull):
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
	cli.EnumFlag(cmd, &format, "format", "", "how to print", "table", "csv", formatJSON, formatYAML)
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "stop the query after this `TIME`; 0: never")
	return cmd
}
