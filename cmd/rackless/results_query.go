package main

import (
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/report/show"
)

func newResultsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Query the study database in SQL, show the output of tools, import other results",
		Long: `All studies of a user are in one SQLite file, with every figure and the state of the machine around
it. docs/study.md describes its tables.`,
		Example: `  rackless results query "SELECT cell, metric, avg(value) FROM sample GROUP BY cell, metric"
  rackless results import ~/vcpu_benchmarks/results`,
	}
	cmd.AddCommand(newResultsQueryCmd(a), newResultsRawCmd(a), newResultsImportCmd(a))
	return cmd
}

func newResultsQueryCmd(a *app) *cobra.Command {
	var path, format string
	cmd := &cobra.Command{
		Use:   "query SQL",
		Short: "Query the study database in SQL, read-only",
		Long: `Runs one SQL statement of SQLite over the file of studies, which is opened for reading alone. The
view sample has a row for each figure, with study, block, place, attempt, cell (JSON), status, test,
metric, bytes, value and unit; docs/study.md has the tables below it. It can be asked while a study
runs.`,
		Example: `  rackless results query "SELECT metric, count(*), min(value), max(value) FROM sample GROUP BY metric"
  rackless results query --format csv "SELECT * FROM sample"`,
		Args: exactArgs(1, "a question in SQL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.readStudies(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer db.Close()
			head, row, end := a.rowPrinter(format)
			// What SQLite refuses is the statement: the caller's error.
			if err := db.Query(cmd.Context(), args[0], head, row); err != nil {
				return usage(err)
			}
			return end()
		},
	}
	dbFlag(cmd, &path)
	enumFlag(cmd, &format, "format", "", "how to print", "table", "csv", "json")
	return cmd
}

// rowPrinter returns what prints rows of any columns: as a table, as CSV, or as one JSON object a line.
func (a *app) rowPrinter(format string) (head func([]string) error, row func([]any) error, end func() error) {
	var columns []string
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
	case formatJSON:
		return func(c []string) error { columns = c; return nil }, func(v []any) error {
			object := make(map[string]any, len(v))
			for i, c := range columns {
				object[c] = v[i]
			}
			return writeJSONLine(a.out, object)
		}, func() error { return nil }
	}
	var g *show.Grid
	return func(c []string) error {
			g = show.NewGrid(c...)
			return nil
		}, func(v []any) error { g.Add(texts(v)...); return nil }, func() error {
			_, err := fmt.Fprint(a.out, g)
			return err
		}
}
