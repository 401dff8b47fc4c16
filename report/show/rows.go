package show

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// A table is laid out in memory, and nobody reads one that is longer.
const (
	maxTableRows = 10_000
	maxTableText = 16 << 20 // bytes
)

// ErrFull is the error of a row that a table does not take any more.
var ErrFull = errors.New("there is more: a table shows the first 10000 rows or 16 MiB, --format csv and json print all")

// Rows returns what prints rows of any columns: as CSV, as JSON or YAML of one object after another, and else as a
// table. CSV and objects are written as they come, so that a million rows take no memory. A table needs all of its rows
// before the first can be printed, since a column is as wide as its widest cell: it has a limit.
func Rows(out io.Writer, form string) (head func([]string) error, row func([]any) error, end func() error) {
	switch form {
	case "csv":
		w := csv.NewWriter(out)
		return w.Write, func(v []any) error { return w.Write(cellTexts(v)) }, func() error {
			w.Flush()
			return w.Error()
		}
	case JSON, YAML:
		var columns []string
		return func(c []string) error { columns = c; return nil }, func(v []any) error {
			object := make(map[string]any, len(v))
			for i, c := range columns {
				object[c] = v[i]
			}
			return EncodeNext(out, form, object)
		}, func() error { return nil }
	}
	var g *Grid
	// The head comes even where there are no rows, so the grid is made there.
	rows, size := 0, 0
	return func(c []string) error {
			g = NewGrid(printable(c)...)
			return nil
		}, func(v []any) error {
			cells := printable(cellTexts(v))
			rows, size = rows+1, size+len(strings.Join(cells, ""))
			if rows > maxTableRows || size > maxTableText {
				return ErrFull
			}
			g.Add(cells...)
			return nil
		}, func() error {
			_, err := fmt.Fprint(out, g)
			return err
		}
}

// cellTexts writes values for people and spreadsheets. NULL is an empty cell. Numbers have all of their digits, as CSV
// is read by programs; blobs are not for people.
func cellTexts(values []any) []string {
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

// printable makes texts from outside safe to show in a table.
func printable(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = words.Printable(s)
	}
	return out
}
