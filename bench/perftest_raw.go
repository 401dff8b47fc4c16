package bench

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// raw reports whether the test lists every latency: those of one size, counted and not timed.
func (p perftest) raw(o Options) bool { return o.Raw && !p.bandwidth && !p.timed }

// rawHeader begins the list that perftest prints with -U, between the header of the table and the
// table with its header once more.
const rawHeader = "#, usec"

// splitRaw takes the list of single latencies, in us, out of what perftest printed with -U; without
// one there are none. There is one less of them than iterations where perftest takes the time
// between posts (all but atomics and reads by an event). Lines of the table keep their numbers.
func splitRaw(output []byte) (table []byte, latencies []float64, err error) {
	if !bytes.Contains(output, []byte(rawHeader)) {
		return output, nil, nil
	}
	lines := strings.SplitAfter(string(output), "\n")
	at := -1
	for i, line := range lines {
		if strings.TrimSpace(line) == rawHeader {
			if at >= 0 {
				return nil, nil, &BadResultError{Tool: toolPerftest, Line: i + 1, Text: rawHeader,
					Reason: "a second list of latencies"}
			}
			at = i
		}
	}
	if at < 1 {
		return output, nil, nil
	}
	i := at + 1
	for ; i < len(lines); i++ {
		number, value, ok := strings.Cut(strings.TrimSpace(lines[i]), ", ")
		if !ok {
			break
		}
		bad := func(reason string) error {
			return &BadResultError{Tool: toolPerftest, Line: i + 1, Text: strings.TrimSpace(lines[i]), Reason: reason}
		}
		if n, err := strconv.Atoi(number); err != nil || n != len(latencies)+1 {
			return nil, nil, bad(fmt.Sprintf("want latency number %d", len(latencies)+1))
		}
		us, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, nil, bad("no number")
		}
		// perftest that could not calibrate the CPU's clock prints inf; the table says so as well, and why.
		if math.IsInf(us, 0) || math.IsNaN(us) || us <= 0 {
			return nil, nil, bad("no latency: above 0 and finite")
		}
		latencies = append(latencies, us)
	}
	if len(latencies) == 0 || i >= len(lines) || !strings.HasPrefix(lines[i], "-----") {
		return nil, nil, &BadResultError{Tool: toolPerftest, Line: min(i, len(lines)), Text: "",
			Reason: "the list of latencies is cut off"}
	}
	// What is left is a table as without -U: the first header and the line behind the list go, too.
	var out bytes.Buffer
	for k, line := range lines {
		if k < at-1 || k > i {
			out.WriteString(line)
		} else {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), latencies, nil
}
