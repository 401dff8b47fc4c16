package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

func sysbenchEngine(name, about string, all bool) Engine {
	return Engine{Name: name, Tool: toolSysbench, About: about, Suite: SuiteCPU, Program: "sysbench",
		Package: "sysbench", Local: true, metrics: []string{MetricEventRate},
		versionCommand: []string{"sysbench", "--version"}, plugin: sysbench{all: all}}
}

var sysbenchEngines = []Engine{
	sysbenchEngine("sysbench_cpu_single", "prime numbers up to 10000 by one thread: the speed of a CPU", false),
	sysbenchEngine("sysbench_cpu", "prime numbers up to 10000 by one thread a CPU", true),
}

type sysbench struct {
	noSetup
	all bool // one thread a CPU, else one
}

// prepare sets the number of threads. With all CPUs it is that of the place where the test runs, which the result must
// confirm.
func (s sysbench) prepare(ctx context.Context, ask execFunc, ep, _ Endpoint, o *Options) (err error) {
	o.Threads = 1
	if s.all {
		o.Threads, err = o.PlaceOf(ep).cpus(ctx, ask, ep.Node)
	}
	return err
}

func (s sysbench) client(_, _ Endpoint, o Options) []string {
	threads := words.Either(s.all, max(1, o.Threads), 1)
	return []string{"sysbench", "cpu", "--cpu-max-prime=10000", "--threads=" + strconv.Itoa(threads),
		"--time=" + strconv.Itoa(o.seconds()), "run"}
}

func (sysbench) parse(out Output, o Options) ([]Figure, error) {
	return ParseSysbenchCPU(out.Stdout, o.Threads)
}

// ParseSysbenchCPU reads what the CPU test of sysbench 0.4 to 1.1 printed, and refuses another number of threads than
// asked for; 0 takes any. The rate must agree with the number of events and the time, which are printed apart from it;
// 0.4 prints no rate, which follows from those.
func ParseSysbenchCPU(output []byte, threads int) ([]Figure, error) {
	values := make(map[string]float64)
	err := EachLine(toolSysbench, output, func(line string) (err error) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, known := sysbenchTitles[key]
		if !known {
			return nil
		}
		// Two runs in one output, of which none could be told to be the one that was asked for.
		if _, twice := values[name]; twice {
			return errors.New("it comes a second time")
		}
		text = strings.TrimSpace(text)
		switch name {
		case "end":
			values[name] = 1
			return nil
		case "time":
			seconds := false
			if text, seconds = strings.CutSuffix(text, "s"); !seconds {
				return errors.New("the time is not in seconds")
			}
		}
		values[name], err = ParseValue(MetricEventRate, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	derived := values["rate"] == 0 && sysbenchOld.Match(output)
	if derived {
		values["rate"] = values["events"] / max(values["time"], 1e-9)
	}
	if err := sysbenchFault(values, threads); err != nil {
		return nil, BadOutput(toolSysbench, output, err.Error())
	}
	f := newFigure(MetricEventRate, 0, int64(values["events"]), values["rate"])
	f.Derived = derived
	return []Figure{f}, nil
}

// sysbenchTitles are the titles of the values that are read. 1.1 has another one for the time, and prints the rate
// a second time. With the last line, "end", the output is whole.
var sysbenchTitles = map[string]string{
	"Number of threads": "threads", "events per second": "rate", "events/s (eps)": "eps", "total time": "time",
	"time elapsed": "time", "total number of events": "events", "execution time (avg/stddev)": "end",
}

// sysbenchOld is the first line of releases whose CPU test prints no rate.
var sysbenchOld = lazyregexp.New(`(?m)^sysbench 0\.[0-4]\.`)

// sysbenchFault holds the printed values against each other. They are printed apart from each other, so one that does
// not agree with the rest was torn, or is of another run.
func sysbenchFault(values map[string]float64, threads int) error {
	for _, name := range []string{"threads", "rate", "time", "events", "end"} {
		if values[name] == 0 {
			return fmt.Errorf("the output is not whole: %s is missing", name)
		}
	}
	if values["events"] >= 1<<53 {
		return errors.New("the number of events is impossible")
	}
	if threads != 0 && values["threads"] != float64(threads) {
		return fmt.Errorf("%g threads ran, not %d", values["threads"], threads)
	}
	if eps, ok := values["eps"]; ok && (eps < 0.99*values["rate"] || eps > 1.01*values["rate"]) {
		return fmt.Errorf("the rate is printed as %g and as %g", values["rate"], eps)
	}
	// They are counted apart from each other, and differ by some percent on short runs.
	if computed := values["events"] / values["time"]; computed < 0.9*values["rate"] || computed > 1.1*values["rate"] {
		return fmt.Errorf("%g events a second do not agree with %g events in %g s", values["rate"], values["events"],
			values["time"])
	}
	return nil
}
