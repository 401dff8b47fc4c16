package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
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
			head, row, end := a.rowPrinter(format)
			err = db.Query(ctx, args[0], head, row)
			switch {
			case errors.Is(err, errFull):
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

// rowPrinter returns what prints rows of any columns: as a table, as CSV, or as one object after another. CSV and
// objects are written as they come, so that a query of a million rows takes no memory. A table needs all of its rows
// before the first can be printed, since a column is as wide as its widest cell: it has a limit.
func (a *app) rowPrinter(format string) (head func([]string) error, row func([]any) error, end func() error) {
	var columns []string
	// NULL is an empty cell. Numbers have all of their digits, as CSV is read by programs; blobs are not for people.
	texts := func(values []any) []string {
		out := make([]string, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case nil:
			case float64:
				out[i] = strconv.FormatFloat(v, 'g', -1, 64)
			case []byte:
				out[i] = fmt.Sprintf("%d bytes", len(v))
			default:
				out[i] = fmt.Sprint(v)
			}
		}
		return out
	}
	switch format {
	case "csv":
		w := csv.NewWriter(a.out)
		return w.Write, func(v []any) error { return w.Write(texts(v)) }, func() error { w.Flush(); return w.Error() }
	case formatJSON, formatYAML:
		return func(c []string) error { columns = c; return nil }, func(v []any) error {
			object := make(map[string]any, len(v))
			for i, c := range columns {
				object[c] = v[i]
			}
			return show.EncodeNext(a.out, format, object)
		}, func() error { return nil }
	}
	var g *show.Grid
	// The head comes even where there are no rows, so the grid is made there.
	rows, size := 0, 0
	return func(c []string) error {
			g = show.NewGrid(printable(c)...)
			return nil
		}, func(v []any) error {
			cells := printable(texts(v))
			rows, size = rows+1, size+len(strings.Join(cells, ""))
			if rows > maxTableRows || size > maxTableText {
				return errFull
			}
			g.Add(cells...)
			return nil
		}, func() error {
			_, err := fmt.Fprint(a.out, g)
			return err
		}
}

// A table is laid out in memory, and nobody reads one that is longer.
const (
	maxTableRows = 10_000
	maxTableText = 16 << 20 // bytes
)

var errFull = errors.New("there is more: a table shows the first 10000 rows or 16 MiB, --format csv and json print all")

// printable makes texts from outside safe to show in a table.
func printable(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = words.Printable(s)
	}
	return out
}
