package bench

import (
	"errors"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// Tools of communication between GPUs whose logs are read: rackless starts none of them.
const (
	toolNVSHMEM = "nvshmem"
	toolDeepEP  = "deepep"
)

// Lines of NVSHMEM's performance tests, which print a table for each test. Their GB are 10^9 bytes.
var (
	nvshmemVersion = lazyregexp.New(`^NVSHMEM v([0-9][\w.]*)\s*$`)
	nvshmemTitle   = lazyregexp.New(`^#(\w+)\s*$`)
	nvshmemHead    = lazyregexp.New(`^size ?\((?:B|Bytes)\)\s`)
	nvshmemParts   = lazyregexp.New(`\s{2,}`)
)

// ParseNVSHMEM reads the tables of NVSHMEM's performance tests. Scopes, types and operations are parts of a test's
// name. A bandwidth that rounds to 0.000 is left out.
func ParseNVSHMEM(output []byte) (Tests, error) {
	var res Tests
	var name, kind string
	var cols []column
	err := EachLine(toolNVSHMEM, output, func(line string) (err error) {
		title, version := nvshmemTitle.FindStringSubmatch(line), nvshmemVersion.FindStringSubmatch(line)
		fields := strings.Fields(line)
		switch {
		case version != nil:
			res.Version = version[1]
		case title != nil:
			name, cols = "nvshmem_"+strings.TrimPrefix(title[1], "shmem_"), nil
		case name != "" && nvshmemHead.MatchString(line):
			time := words.Either(strings.Contains(name, "latency"), MetricLatencyAverage, MetricCollectiveTime)
			word := func(_ *Row, field string) error {
				kind += words.If(field != "None" && field != "-", "/"+strings.ToLower(field))
				return nil
			}
			cols, err = columnsOf(nvshmemParts.Split(strings.TrimSpace(line), -1), append([]column{
				{title: "size(B)", kind: columnBytes}, {title: "size (Bytes)", kind: columnBytes},
				{title: "type", read: word}, {title: "scope", read: word}, {title: "redop", read: word},
				{title: "BW (GB/sec)", metric: MetricBWAverage, scale: 8, mayBeZero: true},
				{title: "latency(us)", metric: time}, {title: "latency (us)", metric: time},
				{title: "busbw(GB/s)", metric: MetricBusBandwidth, mayBeZero: true},
			}, others("count", "min_lat(us)", "max_lat(us)", "algbw(GB/s)")...))
			return err
		case cols != nil && len(fields) > 0 && strings.Trim(fields[0], "0123456789") == "":
			if !strings.HasSuffix(line, "\n") {
				return errors.New("the output ends within a row")
			}
			kind = ""
			row, err := makeRow(cols, fields, Row{})
			if err == nil {
				res.add(name+kind, row.Figures...)
			}
			return err
		}
		return nil
	})
	return res.checked(toolNVSHMEM, output, err)
}

// Lines of DeepEP's tests: the best of many settings, in GB/s of 10^9 bytes over RDMA and over NVLink, and of the
// kernels for low latency what each rank saw.
var (
	deepEPBest  = lazyregexp.New(`^\[tuning\] Best (dispatch|combine)(?: \((FP8|BF16)\))?: .*`)
	deepEPWays  = lazyregexp.New(`([0-9.]+) GB/s \((RDMA|NVL)\)`)
	deepEPRank  = lazyregexp.New(`^\[rank ([0-9]+)\] Dispatch bandwidth: .*\| Combine bandwidth: `)
	deepEPSpeed = lazyregexp.New(`(Dispatch|Combine) bandwidth: ([0-9.]+) GB/s, avg_t=([0-9.]+) us`)
)

// ParseDeepEP reads what DeepEP's tests between GPUs say of their bandwidths. What a rank saw is a test of its own: how
// many ranks there are, the output does not say.
func ParseDeepEP(output []byte) (Tests, error) {
	var res Tests
	set := func(test, metric, printed string, scale float64) error {
		v, err := ParseValue(metric, printed)
		if err == nil {
			res.add(test, newFigure(metric, 0, 0, v*scale))
		}
		return err
	}
	err := EachLine(toolDeepEP, output, func(line string) (err error) {
		if m := deepEPBest.FindStringSubmatch(line); m != nil {
			test := "deepep_" + m[1] + words.If(m[2] != "", "/"+strings.ToLower(m[2]))
			for _, way := range deepEPWays.FindAllStringSubmatch(line, -1) {
				err = errors.Join(err, set(test+"/"+strings.ToLower(way[2]), MetricBWAverage, way[1], 8))
			}
			return err
		}
		rank := deepEPRank.FindStringSubmatch(line)
		if rank == nil {
			return nil
		}
		for _, m := range deepEPSpeed.FindAllStringSubmatch(line, -1) {
			test := "deepep_low_latency_" + strings.ToLower(m[1]) + "/rank" + rank[1]
			err = errors.Join(err, set(test, MetricBWAverage, m[2], 8), set(test, MetricCollectiveTime, m[3], 1))
		}
		return err
	})
	return res.checked(toolDeepEP, output, err)
}
