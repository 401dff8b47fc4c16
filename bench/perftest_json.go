package bench

import (
	"errors"
	"fmt"
	"strings"
)

// jsonColumns maps the keys of --out_json to columns. The bandwidth is in Gb/s or in MiB/s as the run's
// options say, and the file does not tell which: see bandwidthScale.
var jsonColumns = map[string]column{
	"MsgSize":         {title: "MsgSize", kind: columnBytes},
	"n_iterations":    {title: "n_iterations", kind: columnIterations},
	"BW_peak":         {title: "BW_peak", metric: MetricBWPeak, unit: UnitGbps, mayBeZero: true},
	"BW_average":      {title: "BW_average", metric: MetricBWAverage, unit: UnitGbps},
	"MsgRate":         {title: "MsgRate", metric: MetricMessageRate, scale: 1, unit: UnitMpps},
	"t_min":           {title: "t_min", metric: MetricLatencyMin, scale: 1, unit: UnitUsec},
	"t_max":           {title: "t_max", metric: MetricLatencyMax, scale: 1, unit: UnitUsec},
	"t_typical":       {title: "t_typical", metric: MetricLatencyTypical, scale: 1, unit: UnitUsec},
	"t_avg":           {title: "t_avg", metric: MetricLatencyAverage, scale: 1, unit: UnitUsec},
	"t_stdev":         {title: "t_stdev", metric: MetricLatencyStdev, scale: 1, unit: UnitUsec, mayBeZero: true},
	"percentile_99":   {title: "percentile_99", metric: MetricLatencyP99, scale: 1, unit: UnitUsec},
	"percentile_99.9": {title: "percentile_99.9", metric: MetricLatencyP999, scale: 1, unit: UnitUsec},
	"tps_average":     {title: "tps_average", metric: MetricTPSAverage, scale: 1e-6, unit: UnitMtps},
	"sl":              {title: "sl", kind: columnOther},
	"CPU_util":        {title: "CPU_util", kind: columnOther},
}

// A jsonRow is one object of results as key and value texts, in the order printed.
type jsonRow struct {
	line int // where it begins
	cols []column
	vals []string
}

// parsePerftestJSON reads the file that --out_json writes. Releases up to 6.06 (Debian's 4.5) write keys and
// words without quotes and a comma after the last member, which encoding/json refuses; and a key that comes
// again in "results" begins another row, where encoding/json would silently overwrite the first. So the tokens
// are read here. With -a, 6.06 keeps the last size only: the text has all of them.
func parsePerftestJSON(output []byte) (*PerftestResult, error) {
	res := &PerftestResult{GIDIndex: -1}
	var rows []*jsonRow
	fresh := true // the next figure begins a new row
	lex := jsonLexer{rest: string(output), line: 1}
	bad := func(text, reason string) error {
		return &BadResultError{Tool: toolPerftest, Line: lex.line, Text: shorten(text), Reason: reason}
	}
	var path []string // keys of the open objects and arrays
	key, colon := "", false
	for {
		tok, ok := lex.next()
		if !ok {
			break
		}
		switch tok {
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
			inResults := len(path) > 1 && path[1] == "results"
			if !inResults {
				res.setFact(key, word)
				continue
			}
			c, known := jsonColumns[key]
			if !known {
				return nil, bad(key, "unknown layout: a figure with this name is not known")
			}
			if fresh || key == "MsgSize" {
				rows = append(rows, &jsonRow{line: lex.line})
				fresh = false
			}
			row := rows[len(rows)-1]
			row.cols, row.vals = append(row.cols, c), append(row.vals, word)
		}
	}
	if !res.Complete {
		text, n := lastLine(output)
		return nil, &BadResultError{Tool: toolPerftest, Line: n, Text: text, Reason: "the JSON is cut off"}
	}
	return res, res.addJSONRows(rows)
}

// addJSONRows reads the rows once all of them are known, because their common unit has to be found first.
func (r *PerftestResult) addJSONRows(rows []*jsonRow) error {
	scale, err := bandwidthScale(rows)
	if err != nil {
		return &BadResultError{Tool: toolPerftest, Reason: err.Error()}
	}
	for _, jr := range rows {
		bad := func(reason error) error {
			return &BadResultError{Tool: toolPerftest, Line: jr.line, Text: shorten(strings.Join(jr.vals, " ")),
				Reason: reason.Error()}
		}
		seen := make(map[string]bool)
		for i, c := range jr.cols {
			if seen[c.title] {
				return bad(fmt.Errorf("%s appears twice in a row", c.title))
			}
			seen[c.title] = true
			if c.metric == MetricBWPeak || c.metric == MetricBWAverage {
				jr.cols[i].scale = scale
			}
		}
		if !seen["MsgSize"] || !seen["n_iterations"] || !seen["BW_average"] && !seen["t_avg"] {
			return bad(errors.New("MsgSize, n_iterations or the average is missing"))
		}
		row, err := makeRow(jr.cols, jr.vals)
		if err != nil {
			return bad(err)
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) == 0 {
		return &BadResultError{Tool: toolPerftest, Reason: `the JSON has no "results"`}
	}
	return nil
}

// bandwidthScale finds the unit of the bandwidths by the message rate, which is in Mpps in any case: rate times
// size is the bandwidth, and Gb/s and MiB/s lie a factor of 119 apart. So a factor of two is near enough: on slow
// nodes the rate of 8 MiB messages has one digit. The row with the largest bandwidth decides, as rounding harms
// it least. Without any bandwidth the scale does not matter.
func bandwidthScale(rows []*jsonRow) (float64, error) {
	best, ratio := 0.0, 0.0
	found := false
	for _, r := range rows {
		var size, bw, rate float64
		for i, c := range r.cols {
			v, _, err := parseNumber(r.vals[i])
			if err != nil {
				continue // makeRow gives the error, with its place
			}
			switch c.title {
			case "MsgSize":
				size = v
			case "BW_average":
				bw, found = v, true
			case "MsgRate":
				rate = v
			}
		}
		if gb := rate * size * 8 / 1e3; bw > best && gb > 0 {
			best, ratio = bw, gb/bw
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

// setFact takes one member of "test_info".
func (r *PerftestResult) setFact(key, value string) {
	switch key {
	case "test":
		setOnce(&r.Test, strings.ReplaceAll(value, "_", " "))
		// The name itself holds an underscore; the text layout prints it as RDMA_Write and so on.
		r.Test = strings.Replace(r.Test, "RDMA ", "RDMA_", 1)
	case "Device":
		setOnce(&r.Device, value)
	case "Link_type":
		setOnce(&r.LinkType, value)
	case "Connection_type":
		setOnce(&r.Connection, value)
	case "Transport_type":
		setOnce(&r.Transport, value)
	case "Number_of_qps":
		setNumberOnce(&r.QPs, value, 0)
	case "Mtu":
		setNumberOnce(&r.MTU, value, 0)
	case "GID_index":
		setNumberOnce(&r.GIDIndex, value, -1)
	}
}

// jsonLexer splits text into brackets, colons, commas, quoted strings and bare words.
type jsonLexer struct {
	rest string
	line int
}

func (l *jsonLexer) next() (tok string, ok bool) {
	for l.rest != "" && strings.ContainsRune(" \t\r\n", rune(l.rest[0])) {
		if l.rest[0] == '\n' {
			l.line++
		}
		l.rest = l.rest[1:]
	}
	if l.rest == "" {
		return "", false
	}
	n := 1
	switch c := l.rest[0]; {
	case c == '"':
		if end := strings.IndexAny(l.rest[1:], "\"\n"); end >= 0 {
			n = end + 2
		} else {
			n = len(l.rest)
		}
	case !strings.ContainsRune("{}[]:,", rune(c)):
		if n = strings.IndexAny(l.rest, "{}[]:,\" \t\r\n"); n < 0 {
			n = len(l.rest)
		}
	}
	tok, l.rest = l.rest[:n], l.rest[n:]
	return tok, true
}
