package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// Lines of stress-ng with --metrics or --metrics-brief, of releases that call them info and of those that call them
// metrc.
var (
	stressPrefix    = regexp.MustCompile(`^stress-ng: (?:info|metrc):\s+\[[0-9]+\] `)
	stressVersion   = regexp.MustCompile(`^stress-ng, version ([0-9][0-9A-Za-z.+-]*)`)
	stressHogs      = regexp.MustCompile(`dispatching hogs: (.*)`)
	stressUntrusted = regexp.MustCompile(`metrics untrustworthy: [1-9]`)
)

const stressHead = "stressor bogo ops real time usr time sys time bogo ops/s bogo ops/s"

// ParseStressNG reads the table of metrics: of each stressor its bogus operations in a second of real time, which is
// the figure that stress-ng compares by. Of how many instances they are is part of the test's name. They are bogus as
// they compare a stressor with itself only, on the same release. The memory rate of the stressor stream is read too.
func ParseStressNG(output []byte) (Tests, error) {
	var t Tests
	instances := map[string]string{}
	table := false
	err := EachLine(toolStressNG, output, func(line string) error {
		if m := stressVersion.FindStringSubmatch(line); m != nil {
			t.Version = m[1]
		}
		switch {
		case strings.Contains(line, "stress-ng: fail:"), strings.Contains(line, "unsuccessful run"):
			return errors.New("a stressor failed")
		case stressUntrusted.MatchString(line):
			return errors.New("stress-ng says that its metrics cannot be trusted")
		}
		rest := stressPrefix.ReplaceAllString(line, "")
		fields := strings.Fields(rest)
		if m := stressHogs.FindStringSubmatch(rest); m != nil {
			for hog := range strings.SplitSeq(m[1], ",") {
				if number, name, ok := strings.Cut(strings.TrimSpace(hog), " "); ok {
					instances[name] = number
				}
			}
		}
		switch {
		case strings.HasPrefix(strings.Join(fields, " "), stressHead):
			table = true
		case !table || len(rest) == len(line) || len(fields) < 7 || strings.HasPrefix(fields[0], "("):
			// The second row of the header, and what is no row.
		default:
			for _, f := range fields[1:7] {
				if _, _, err := parseNumber(f); err != nil {
					return nil // a metric of its own that a stressor has, in words
				}
			}
			return t.addStressor(fields, instances[fields[0]])
		}
		return nil
	})
	if err != nil {
		return Tests{}, err
	}
	if bytes.Contains(output, []byte("stream: memory rate")) {
		figures, err := ParseStressStream(output, 0)
		x := t.of(stressorName("stream", instances["stream"]))
		x.Figures, x.Err = append(figures, x.Figures...), err
	}
	return t.checked(toolStressNG, output)
}

// addStressor adds a row: name, operations, real time, times of user and system, operations a second of real time and
// of time used. The rate must agree with the operations and the time, which are printed apart from it.
func (t *Tests) addStressor(fields []string, instances string) error {
	ops, _, err := parseNumber(fields[1])
	x := t.of(stressorName(fields[0], instances))
	if err == nil {
		x.Err = CheckValue(MetricEventRate, ops)
	}
	if err != nil || x.Err != nil {
		return err
	}
	seconds, half, _ := parseNumber(fields[2])
	rate, err := ParseValue(MetricEventRate, fields[5])
	if err != nil {
		return err
	}
	// One percent, and what rounding the time and the rate, to two decimals each, may add.
	if share := ops / rate / seconds; math.Abs(share-1) > 0.01+half/seconds+0.005/rate {
		return fmt.Errorf("%g operations in %g s are not %g a second", ops, seconds, rate)
	}
	// Above it a float64 no longer holds each whole number.
	if ops < 1<<53 {
		x.Figures = append(x.Figures, newFigure(MetricEventRate, 0, int64(ops), rate))
	}
	return nil
}

// stressorName is the test of a stressor: "stress_cpu", "stress_cpu/instances8".
func stressorName(stressor, instances string) string {
	name := "stress_" + word(stressor)
	if instances != "" && instances != "1" {
		name += "/instances" + word(instances)
	}
	return name
}
