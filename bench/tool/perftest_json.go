package tool

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/scanner"

	"github.com/rackless/rackless/bench"
)

func jsonColumn(key string) (c column, known bool) {
	i := slices.IndexFunc(perftestColumns, func(c column) bool { return c.json == key })
	if key == "" || i < 0 {
		return column{}, false
	}
	c = perftestColumns[i]
	c.title = key
	return c, true
}

type jsonRow struct {
	line int // first line
	cols []column
	vals []string
}

// parsePerftestJSON has its own scanner. Releases up to 6.06 (Debian's 4.5) write keys and words without quotes and a
// comma after the last member. A repeated key in "results" begins another row. With -a, 6.06 writes the last size only.
func parsePerftestJSON(output []byte) (*PerftestResult, error) {
	res := &PerftestResult{Facts: map[string]string{}}
	var rows []*jsonRow
	fresh := true
	var lex scanner.Scanner
	lex.Init(bytes.NewReader(output))
	lex.Mode = scanner.ScanIdents | scanner.ScanStrings
	lex.IsIdentRune = func(r rune, _ int) bool { return r > 0 && !strings.ContainsRune("{}[]:,\" \t\r\n", r) }
	lex.Error = func(*scanner.Scanner, string) {} // a string without an end: then a bracket is missing, too
	bad := func(text, reason string) error {
		return &bench.BadResultError{Tool: Perftest, Line: lex.Position.Line, Text: bench.Shorten(text), Reason: reason}
	}
	var path []string
	key, colon := "", false
	for lex.Scan() != scanner.EOF {
		switch tok := lex.TokenText(); tok {
		case "{", "[":
			path, key, colon, fresh = append(path, key), "", false, true
			if len(path) > 8 { // perftest nests two or three deep
				return nil, bad(tok, "unknown layout: nested too deep")
			}
		case "}", "]":
			if len(path) == 0 {
				return nil, bad(tok, "unknown layout: a bracket that closes nothing")
			}
			path, key, colon = path[:len(path)-1], "", false
			res.Complete = len(path) == 0
		case ",":
			key, colon = "", false
		case ":":
			colon = true
		default:
			word := strings.Trim(tok, `"`)
			if !colon {
				key = word
				continue
			}
			colon = false
			if len(path) < 2 || path[1] != "results" {
				res.setJSONFact(key, word)
				continue
			}
			c, known := jsonColumn(key)
			if !known {
				return nil, bad(key, "unknown layout: a figure with this name is not known")
			}
			if fresh || key == "MsgSize" {
				rows = append(rows, &jsonRow{line: lex.Position.Line})
				fresh = false
			}
			row := rows[len(rows)-1]
			row.cols, row.vals = append(row.cols, c), append(row.vals, word)
		}
	}
	// A file cut off after a row would look whole.
	if !res.Complete {
		return nil, bench.BadOutput(Perftest, output, "the JSON is cut off")
	}
	return res, res.addJSONRows(rows)
}

func (r *PerftestResult) addJSONRows(rows []*jsonRow) error {
	scale, err := bandwidthScale(rows)
	if err != nil {
		return bench.BadResult(Perftest, "%v", err)
	}
	for _, jr := range rows {
		bad := func(reason error) error {
			return &bench.BadResultError{Tool: Perftest, Line: jr.line, Text: bench.Shorten(strings.Join(jr.vals, " ")),
				Reason: reason.Error()}
		}
		seen := make(map[string]bool)
		for i, c := range jr.cols {
			if seen[c.title] {
				return bad(fmt.Errorf("%s appears twice in a row", c.title))
			}
			seen[c.title] = true
			// The columns come from the table of titles, which has the scale of another unit.
			if c.metric == bench.MetricBWPeak || c.metric == bench.MetricBWAverage {
				jr.cols[i].scale = scale
			}
		}
		if !seen["MsgSize"] || !seen["n_iterations"] || !seen["BW_average"] && !seen["t_avg"] {
			return bad(errors.New("MsgSize, n_iterations or the average is missing"))
		}
		row, err := makeRow(jr.cols, jr.vals, Row{})
		if err != nil {
			return bad(err)
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) == 0 {
		return bench.BadResult(Perftest, `the JSON has no "results"`)
	}
	return nil
}

// bandwidthScale finds the unit by the message rate, which is always in Mpps: Gb/s and MiB/s differ by a factor of 119.
// A tolerance of a factor of two suffices: on slow nodes the rate of 8 MiB messages has one digit. The largest
// bandwidth decides, because rounding affects it least.
func bandwidthScale(rows []*jsonRow) (float64, error) {
	best, ratio := 0.0, 0.0
	found := false
	for _, r := range rows {
		values := make(map[string]float64)
		for i, c := range r.cols {
			values[c.title], _, _ = parseNumber(r.vals[i]) // makeRow returns this error, with its place
			found = found || c.metric == bench.MetricBWAverage
		}
		bandwidth := values["BW_average"]
		if gb := values["MsgRate"] * values["MsgSize"] * 8 / 1e3; bandwidth > best && gb > 0 {
			best, ratio = bandwidth, gb/bandwidth
		}
	}
	switch {
	case !found:
		return 1, nil
	case ratio > 0.5 && ratio < 2:
		return 1, nil
	case ratio > 0.5*mibToGb && ratio < 2*mibToGb:
		return mibToGb, nil
	}
	return 0, errors.New("the unit of the bandwidth is unknown: it fits the message rate neither in Gb/s nor in MiB/s")
}

// setJSONFact: keys are the names in the text with underscores.
func (r *PerftestResult) setJSONFact(key, value string) {
	if key == "test" && r.Test == "" {
		r.Test = strings.Replace(strings.ReplaceAll(value, "_", " "), "RDMA ", "RDMA_", 1)
	}
	r.setFact(strings.ReplaceAll(key, "_", " "), value)
}
