package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// The program is called 7z by p7zip and by later packages of 7-Zip, 7zz by 7-Zip itself, and 7zr
// where only its own format is built in.
const (
	sevenZipProgram = "7z"
	sevenZipOthers  = "7zz 7zr"
)

var sevenZipEngines = []Engine{{
	Name: "7zip", Tool: tool7Zip, About: "compressing and decompressing by one thread a CPU: integers, caches " +
		"and memory", Suite: SuiteApps, Program: sevenZipProgram, Others: sevenZipOthers,
	Package: "7zip or p7zip-full", Local: true, plugin: sevenZip{},
	metrics: []string{MetricRating, MetricRatingCompress, MetricRatingDecompress},
	// "7-Zip (z) 26.02 (x64) : Copyright ...", and as a part of p7zip "7-Zip [64] 16.02 : ...".
	versions: []versionLine{{"", lazyregexp.New(`(?m)^7-Zip (?:[(\[]\S+[)\]] )*([0-9]+\.[0-9]+)\b`)}},
}}

type sevenZip struct{ noSetup }

// Dictionaries are of 2^22 bytes and more, up to one of these sizes: its own largest, and its smallest.
const (
	sevenZipLargest  = 25
	sevenZipSmallest = 22
)

// sevenZipBytes is at least what two threads take with a dictionary of 2^log bytes: it says 65, 227
// and 444 MiB of itself for 22, 24 and 25.
func sevenZipBytes(threads, log int) int64 {
	pairs := int64(threads+1) / 2
	return pairs * (14<<log + 10<<20)
}

// prepare counts the CPUs, and finds the memory that may be taken. By itself 7-Zip takes what fits
// into all memory of the node, and not into what is left of it.
func (sevenZip) prepare(ctx context.Context, ask execFunc, ep, _ Endpoint, o *Options) error {
	out, err := ask(ctx, ep.Node, findCommand(sevenZipProgram+" "+sevenZipOthers)...)
	if err != nil {
		return err
	}
	o.Program = strings.TrimSpace(string(out.Stdout))
	return o.fit(ctx, ask, ep, "7-Zip's benchmark", func(cpus int) int64 {
		return sevenZipBytes(cpus, sevenZipSmallest)
	})
}

// client chooses the dictionary. Ratings with different ones cannot be compared, so its size is a part of the command
// that each sample keeps.
func (sevenZip) client(_, _ Endpoint, o Options) []string {
	threads := max(1, o.Threads)
	log := sevenZipLargest
	short := o.Quick || o.Accelerator != "kvm" // each size takes some half a minute of an emulated CPU
	for log > sevenZipSmallest && (short || sevenZipBytes(threads, log) > o.Memory) {
		log--
	}
	return []string{path.Base(cmp.Or(o.Program, sevenZipProgram)), "b", "-mmt" + strconv.Itoa(threads),
		"-md" + strconv.Itoa(log)}
}

func (sevenZip) parse(out Output, o Options) ([]Figure, error) {
	return Parse7Zip(out.Stdout, o.Threads)
}

// Lines of `7z b`. The averages of 16.02 have no speed.
var (
	sevenZipThreads = lazyregexp.New(`^RAM usage:.*# Benchmark threads:\s+(\S+)$`)
	sevenZipAverage = lazyregexp.New(`^Avr:((?:\s+\S+){3,4})\s+\|((?:\s+\S+){3,4})$`)
	sevenZipTotal   = lazyregexp.New(`^Tot:((?:\s+\S+){3})$`)
)

// Parse7Zip reads the ratings that `7z b` of 16.02 and later printed: the averages over all
// dictionaries of compressing and decompressing, and of the two. It refuses another number of
// threads than asked for; 0 takes any. The total must be the average that it is said to be.
func Parse7Zip(output []byte, threads int) ([]Figure, error) {
	var total, compress, decompress float64
	ran := int64(0)
	units := false
	err := EachLine(tool7Zip, output, func(line string) (err error) {
		ended := strings.HasSuffix(line, "\n")
		line = strings.TrimSpace(line)
		average, sum := sevenZipAverage.FindStringSubmatch(line), sevenZipTotal.FindStringSubmatch(line)
		count := sevenZipThreads.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "ERROR:"), strings.HasPrefix(line, "System ERROR"),
			strings.HasPrefix(line, "Break signaled"):
			return errors.New("7-Zip gave up")
		case count != nil && ran != 0:
			return errors.New("a second run")
		case count != nil:
			if ran, err = parseCount(count[1]); err != nil {
				return fmt.Errorf("threads %q: %w", Shorten(count[1]), err)
			}
		case strings.HasPrefix(line, "KiB/s "):
			if units = strings.Join(strings.Fields(line), " ") == "KiB/s % MIPS MIPS | KiB/s % MIPS MIPS"; !units {
				return errors.New("unknown layout: other units")
			}
		case average != nil && compress == 0 && units && ran > 0:
			if compress, err = sevenZipRating(average[1]); err == nil {
				decompress, err = sevenZipRating(average[2])
			}
		case sum != nil && compress > 0 && total == 0:
			if total, err = sevenZipRating(sum[1]); err == nil && !ended {
				return errors.New("the output ends within a row")
			}
		case strings.HasPrefix(line, "Avr:"), strings.HasPrefix(line, "Tot:"):
			return errors.New("unknown layout, or a second table")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	switch {
	case total == 0:
		err = errors.New("the output is not whole: the line of the total is missing")
	case math.Abs(total-(compress+decompress)/2) > 1: // whole numbers, rounded or cut
		err = fmt.Errorf("the total of %g is not the average of %g and %g", total, compress, decompress)
	case threads != 0 && ran != int64(threads):
		err = fmt.Errorf("%d threads ran, not %d", ran, threads)
	}
	if err != nil {
		return nil, BadOutput(tool7Zip, output, err.Error())
	}
	return []Figure{newFigure(MetricRating, 0, 0, total), newFigure(MetricRatingCompress, 0, 0, compress),
		newFigure(MetricRatingDecompress, 0, 0, decompress)}, nil
}

// sevenZipRating takes the last of the columns: speed (KiB/s), usage (%), rating for one CPU in use, rating (MIPS).
func sevenZipRating(columns string) (rating float64, err error) {
	for field := range strings.FieldsSeq(columns) {
		if rating, err = ParseValue(MetricRating, field); err != nil {
			return 0, err
		}
	}
	return rating, nil
}
