package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lazyregexp"
)

var stressEngines = []Engine{{
	Name: "stress_stream", Tool: toolStressNG, About: "memory bandwidth of all CPUs together, by the four loops " +
		"of STREAM", Suite: SuiteMemory, Program: "stress-ng", Package: "stress-ng",
	Local: true, metrics: []string{MetricMemoryBandwidth}, versionCommand: []string{"stress-ng", "--version"},
	plugin: stressStream{},
}}

type stressStream struct{ noSetup }

// Limits of a run.
const (
	// An instance takes three arrays of four times what it is told that the last cache holds.
	streamPerCache = 12
	mostCache      = 32 << 20
	leastCache     = 1 << 20
	// "run duration too short to determine memory rate" below 4.5 s; the arrays have to be filled
	// as well
	leastSeconds = 6
)

// prepare counts the CPUs and finds arrays that fit: with the size that stress-ng takes from a
// large host's cache, it has ended small nodes for want of memory.
func (stressStream) prepare(ctx context.Context, ask execFunc, ep, _ Endpoint, o *Options) error {
	return o.fit(ctx, ask, ep, "stress-ng's stream", func(cpus int) int64 {
		return int64(cpus) * streamPerCache * leastCache
	})
}

// fit counts the CPUs and finds the memory for a tool that loads both, and refuses a place that has less memory
// than the tool needs for so many CPUs.
func (o *Options) fit(ctx context.Context, ask execFunc, ep Endpoint, tool string, need func(cpus int) int64) error {
	var err error
	if o.Threads, err = o.PlaceOf(ep).cpus(ctx, ask, ep.Node); err != nil {
		return err
	}
	if o.Memory, err = memoryBudget(ctx, ask, ep.Node, o.PlaceOf(ep)); err != nil {
		return err
	}
	if need := need(o.Threads); o.Memory < need {
		return unfit(ep.Node, "%s needs %d MiB for %d CPUs; half of what is available is %d MiB", tool, need>>20,
			o.Threads, o.Memory>>20)
	}
	return nil
}

// memoryBudget returns the bytes of memory that a tool may take in a place of a node: half of what is
// available. The rest of the node needs the other half.
func memoryBudget(ctx context.Context, ask execFunc, node string, p Place) (int64, error) {
	file, counts := "/proc/meminfo", []string{"MemAvailable"}
	if _, err := strconv.Atoi(p.Memory); err == nil {
		// A NUMA node has no MemAvailable. Its free memory and its page cache come close.
		file = "/sys/devices/system/node/node" + p.Memory + "/meminfo"
		counts = []string{"MemFree", "Active(file)", "Inactive(file)"}
	}
	out, err := ask(ctx, node, "cat", file)
	if err != nil {
		return 0, err
	}
	available := int64(0)
	for _, m := range memoryLine.FindAllStringSubmatch(string(out.Stdout), -1) {
		kib, err := strconv.ParseInt(m[2], 10, 52)
		if at := slices.Index(counts, m[1]); at >= 0 && err == nil {
			available += kib << 10
			counts = slices.Delete(counts, at, at+1)
		}
	}
	if len(counts) > 0 {
		return 0, &UnfitError{Node: node, Reason: file + " does not tell how much memory is available"}
	}
	return available / 2, nil
}

// memoryLine is a count of /proc/meminfo, or of the meminfo of a NUMA node.
var memoryLine = lazyregexp.New(`(?m)^(?:Node [0-9]+ )?(\S+):\s+([0-9]+) kB$`)

// client halves the size that stress-ng takes the cache for until the arrays of all instances fit. The size is a part
// of the command that each sample keeps, since a figure from arrays near the size of the real cache is none of memory.
func (stressStream) client(_, _ Endpoint, o Options) []string {
	threads := max(1, o.Threads)
	cache := int64(mostCache)
	for cache > leastCache && cache*streamPerCache*int64(threads) > o.Memory {
		cache /= 2
	}
	return []string{"stress-ng", "--stream", strconv.Itoa(threads), "--stream-l3-size", strconv.FormatInt(cache>>20,
		10) + "M", "-t", strconv.Itoa(max(leastSeconds, o.seconds())), "--metrics"}
}

func (stressStream) duration(o Options) time.Duration {
	return time.Duration(max(leastSeconds, o.seconds())) * time.Second
}

// parse joins the streams: some releases print to one, some to the other.
func (stressStream) parse(out Output, o Options) ([]Figure, error) {
	return ParseStressStream(append(append([]byte(nil), out.Stdout...), out.Stderr...), o.Threads)
}

// The rates of an instance. Releases up to 0.14 print one rate for reads and writes together.
var streamRate = lazyregexp.New(
	`^stress-ng: info:\s+\[[0-9]+\] stream: memory rate: (?:(\S+) MB read/sec, (\S+) MB write/sec|` +
		`(\S+) MB/sec), \S+ Mflop/sec(?: \(instance ([0-9]+)\))?$`)

// ParseStressStream adds up what the instances of `stress-ng --stream` printed: bytes read and
// written a second, in GB/s of 10^9 bytes. What it calls MB is 2^20 bytes: its loops read 48 and
// write 32 bytes for 4 floating-point operations, and 46.07 and 30.71 MB/s are printed with 4.03
// Mflop/s. All instances must be there; 0 takes any number.
func ParseStressStream(output []byte, instances int) ([]Figure, error) {
	total := 0.0
	seen := make(map[string]bool)
	ended := false
	err := EachLine(toolStressNG, output, func(line string) error {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "stream: memory rate"):
			m := streamRate.FindStringSubmatch(line)
			if m == nil {
				return errors.New("unknown form of a memory rate")
			}
			if seen[m[4]] {
				return errors.New("the instance comes a second time")
			}
			seen[m[4]] = true
			for _, field := range m[1:4] {
				if field == "" {
					continue
				}
				v, err := ParseValue(MetricMemoryBandwidth, field)
				if err != nil {
					return err
				}
				total += v * (1 << 20) / 1e9
			}
		case strings.Contains(line, "too short to determine memory rate"), strings.Contains(line, "stress-ng: fail:"),
			strings.Contains(line, "unsuccessful"):
			return errors.New("stress-ng measured nothing")
		case strings.Contains(line, "successful run completed"):
			ended = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch err = CheckValue(MetricMemoryBandwidth, total); {
	case len(seen) == 0:
		err = errors.New("there is no memory rate")
	case !ended:
		err = errors.New("the line that says that the run was completed is missing")
	case instances != 0 && len(seen) != instances:
		err = fmt.Errorf("%d instances have a memory rate, %d ran", len(seen), instances)
	}
	if err != nil {
		return nil, BadOutput(toolStressNG, output, err.Error())
	}
	return []Figure{newFigure(MetricMemoryBandwidth, 0, 0, total)}, nil
}
