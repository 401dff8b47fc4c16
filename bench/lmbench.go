package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Where Debian and Ubuntu keep the programs of lmbench, none of them in the PATH.
const lmbenchPlaces = "/usr/lib/lmbench/bin/x86_64-linux-gnu/lat_mem_rd " +
	"/usr/lib/lmbench/bin/aarch64-linux-gnu/lat_mem_rd"

var lmbenchEngines = []Engine{{
	Name: latMemRd, Tool: toolLMBench, About: "how long a load takes that waits for the one before it, by the size " +
		"of what is read", Suite: SuiteMemory, Program: latMemRd, Others: lmbenchPlaces,
	Package: "lmbench (of Debian's non-free, Ubuntu's multiverse)", Local: true,
	metrics: []string{MetricLoadLatency}, plugin: memLatency{},
}}

const latMemRd = "lat_mem_rd"

type memLatency struct{ noSetup }

// Limits of a run, in MiB.
const (
	maxRing      = 512 // several times the last cache of a large server
	quickRing    = 64  // more than the last cache of most machines
	emulatedRing = 16  // what an emulated CPU reads in a minute
	minRing      = 1
)

// latencyStride is the distance of loads in bytes: two cache lines, since processors fetch the
// neighbour of a line that they need.
const latencyStride = 128

// prepare finds the program, which is in no PATH, and the memory that may be read: a ring larger than what is free
// would measure swapping.
func (memLatency) prepare(ctx context.Context, ask execFunc, ep, _ Endpoint, o *Options) error {
	out, err := ask(ctx, ep.Node, findCommand(latMemRd+" "+lmbenchPlaces)...)
	if err != nil {
		return err
	}
	o.Program = strings.TrimSpace(string(out.Stdout))
	if o.Memory, err = memoryBudget(ctx, ask, ep.Node, o.PlaceOf(ep)); err != nil {
		return err
	}
	if o.Memory < minRing<<20 || o.Memory < o.Bytes {
		return unfit(ep.Node, "half of the memory that is available is %d MiB; %d MiB are to be read", o.Memory>>20,
			max(minRing<<20, o.Bytes)>>20)
	}
	return nil
}

// client measures each size once, on a ring in random order: runs are repeated, with their spread,
// and not what is within one.
func (memLatency) client(_, _ Endpoint, o Options) []string {
	return []string{cmp.Or(o.Program, latMemRd), "-P", "1", "-W", "1", "-N", "1",
		"-t", strconv.FormatInt(ringSize(o), 10), strconv.Itoa(latencyStride)}
}

// ringSize returns the largest size of the ring in MiB: a power of two that fits into the memory.
func ringSize(o Options) int64 {
	size := int64(maxRing)
	switch {
	case o.Accelerator != "kvm":
		size = emulatedRing
	case o.Quick:
		size = quickRing
	}
	for size<<20 < o.Bytes {
		size *= 2
	}
	// Halved as long as it does not fit, or half of it still contains the size that was asked for.
	for size > minRing && (size<<20 > o.Memory || o.Bytes > 0 && size<<19 >= o.Bytes) {
		size /= 2
	}
	return size
}

// parse takes what is printed to the standard error, as lmbench does it.
func (memLatency) parse(out Output, o Options) ([]Figure, error) {
	figures, err := ParseLatMemRd(out.Stderr)
	if err != nil {
		return nil, err
	}
	if last, want := figures[len(figures)-1].Bytes, ringSize(o)<<20; last != want {
		return nil, BadOutput(toolLMBench, out.Stderr,
			fmt.Sprintf("the table ends with %d bytes, and not with %d", last, want))
	}
	if o.Bytes == 0 {
		return figures, nil
	}
	at := slices.IndexFunc(figures, func(f Figure) bool { return f.Bytes == o.Bytes })
	if at < 0 {
		return nil, badResult(toolLMBench, "there is no figure for %d bytes: lat_mem_rd has powers of two and one "+
			"and a half times those, from 512 bytes on", o.Bytes)
	}
	return figures[at : at+1], nil
}

// ParseLatMemRd reads what `lat_mem_rd` of lmbench 3 printed for one stride: a title, and then a
// size in MiB (2^20 bytes) and ns for each load, by growing sizes. A size is printed with five
// decimals, and is a multiple of 512 bytes.
func ParseLatMemRd(output []byte) ([]Figure, error) {
	var figures []Figure
	titled := false
	last := int64(0)
	err := EachLine(toolLMBench, output, func(line string) error {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case strings.HasPrefix(fields[0], `"stride=`):
			if titled {
				return errors.New("a second stride")
			}
			titled = true
		case !titled:
			return errors.New("it comes before the title")
		case len(fields) != 2:
			return errors.New("a row has a size and a time")
		case !strings.HasSuffix(line, "\n"):
			return errors.New("the output ends within a row")
		default:
			size, err := latMemRdSize(fields[0])
			if err != nil {
				return err
			}
			v, err := ParseValue(MetricLoadLatency, fields[1])
			if err != nil {
				return err
			}
			// Sizes of a run grow; two runs that were appended to one file would be one curve that turns back.
			if size <= last {
				return errors.New("the size does not grow")
			}
			last = size
			figures = append(figures, newFigure(MetricLoadLatency, size, 0, v))
		}
		return nil
	})
	if err == nil && len(figures) == 0 {
		err = BadOutput(toolLMBench, output, "there is no row with a size and a time")
	}
	return figures, err
}

// latMemRdSize reads a size in MiB, and returns it in bytes.
func latMemRdSize(size string) (int64, error) {
	const grain = 512
	mib, rounding, err := parseNumber(size)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", Shorten(size), err)
	}
	bytes := math.Round(mib*(1<<20)/grain) * grain
	if bytes < grain || bytes >= 1<<53 || math.Abs(bytes-mib*(1<<20)) > rounding*(1<<20)+1 {
		return 0, fmt.Errorf("size %q is no multiple of %d bytes", Shorten(size), grain)
	}
	return int64(bytes), nil
}
