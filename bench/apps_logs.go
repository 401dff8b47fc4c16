package bench

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// Applications of 001 that no registry has, and whose logs are read. `rackless mpirun` runs them where the user has
// them.
const (
	toolNAMD = "namd"
	toolWRF  = "wrf"
)

// Lines of NAMD's log: some benchmarks of a run, in days/ns to release 2 and in ns/day since.
var (
	namdVersion = lazyregexp.New(`^Info: NAMD (\S+) for `)
	namdRate    = lazyregexp.New(`^Info: Benchmark time: ([0-9]+) CPUs (\S+) s/step (\S+) (days/ns|ns/day)\s`)
	namdEnd     = lazyregexp.New(`^WallClock: `)
)

// ParseNAMD reads the log of a run of NAMD: the averages over its benchmarks.
func ParseNAMD(output []byte) (Tests, error) {
	a := appLog{tool: toolNAMD, version: namdVersion, end: namdEnd}
	return a.read(output, func(line string) error {
		m := namdRate.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		step, _, err := parseNumber(m[2])
		simulated, _, simulatedErr := parseNumber(m[3])
		if err = errors.Join(err, simulatedErr); err == nil && (step <= 0 || simulated <= 0) {
			err = errors.New("a step takes no time")
		}
		if m[4] == "ns/day" {
			simulated = 1 / simulated
		}
		a.name, a.step, a.days, a.steps = toolNAMD+"/np"+m[1], a.step+step, a.days+simulated, a.steps+1
		return err
	})
}

// Lines of rsl.out.0000 and rsl.error.0000, which WRF writes for its first rank. The outermost domain takes the time of
// those within it.
var (
	wrfVersion = lazyregexp.New(`^ ?WRF V(\S+) MODEL`)
	wrfRanks   = lazyregexp.New(`^ ?Ntasks in X +([0-9]+) ?, +ntasks in Y +([0-9]+)`)
	wrfStep    = lazyregexp.New(`^ ?Timing for main(?: \(dt=[^)]*\))?: time \S+ on domain +1: +(\S+) elapsed`)
	wrfEnd     = lazyregexp.New(`SUCCESS COMPLETE WRF`)
)

// ParseWRF reads the log of a run of WRF: the average over all steps but the first, which reads the input.
func ParseWRF(output []byte) (Tests, error) {
	a := appLog{tool: toolWRF, name: toolWRF, version: wrfVersion, end: wrfEnd}
	first := true
	return a.read(output, func(line string) error {
		if m := wrfRanks.FindStringSubmatch(line); m != nil {
			var x, y int
			err := wholeNumbers(m[1:], &x, &y)
			a.name = fmt.Sprintf("%s/np%d", toolWRF, x*y)
			return err
		}
		m := wrfStep.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		step, _, err := parseNumber(m[1])
		if err == nil && step <= 0 {
			err = errors.New("a step takes no time")
		}
		if !first {
			a.step, a.steps = a.step+step, a.steps+1
		}
		first = false
		return err
	})
}

// An appLog is what a log says of a run, as sums.
type appLog struct {
	tool, name   string
	version, end *lazyregexp.Regexp // the last line of a run that was whole
	steps        int                // that were timed
	step         float64            // seconds
	days         float64            // for a nanosecond; 0 where the application does not count so
}

// read calls each with the lines of a log, and makes the figures.
func (a *appLog) read(output []byte, each func(line string) error) (Tests, error) {
	var res Tests
	ended := false
	err := EachLine(a.tool, output, func(line string) error {
		if m := a.version.FindStringSubmatch(line); m != nil {
			res.Version = m[1]
		}
		ended = ended || a.end.MatchString(line)
		return each(line)
	})
	switch {
	case err != nil:
	case !ended:
		err = BadOutput(a.tool, output, "the run did not come to its end")
	case a.steps == 0:
		err = BadOutput(a.tool, output, "no step was timed")
	}
	res.add(a.name, newFigure(MetricStepRate, 0, 0, float64(a.steps)/a.step))
	if a.days > 0 {
		res.add(a.name, newFigure(MetricSimulated, 0, 0, float64(a.steps)/a.days))
	}
	return res.checked(a.tool, output, err)
}
