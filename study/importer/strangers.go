package importer

import (
	"regexp"

	"github.com/rackless/rackless/internal/lazyregexp"
)

var strangers = []struct {
	is   func() *regexp.Regexp
	what string
}{
	{lazyregexp.New(`(?m)^\[(?:tuning|testing|rank \d+)\].*\b(?:[Dd]ispatch|[Cc]ombine)\b`),
		"a log of DeepEP's tests, which is not read: nccl-tests over the same GPUs measures their paths, " +
			"perftest the NICs, and rackless gpudirect lists the NIC of each GPU"},
	{lazyregexp.New(`(?m)^Timing for (?:main|Writing)\b.*\belapsed seconds`),
		"a log of WRF, which is not read: OSU and perftest measure the paths of its messages"},
	{lazyregexp.New(`(?m)^Info: (?:Benchmark time|NAMD)\b`),
		"a log of NAMD, which is not read: OSU and perftest measure the paths of its messages"},
	{lazyregexp.New(`(?m)^#.*\bIntel(?:\(R\))? MPI Benchmark`),
		"a log of the Intel MPI Benchmarks, which is not read: osu_latency, osu_bw and the collective tests " +
			"of OSU measure the same"},
	{lazyregexp.New(`(?m)^\|.*\| +(?:overhead|latency) \(usec\) +\|`),
		"a log of ucx_perftest, which is not read: ib_write_bw and ib_write_lat measure the same devices"},
	{lazyregexp.New(`(?m)^bytes +#sent +#ack +total +time`),
		"a log of fi_pingpong, which is not read: ib_write_bw and ib_write_lat measure the same devices"},
	{lazyregexp.New(`(?m)^\[CUDA Bandwidth Test\]`),
		"a log of CUDA's bandwidthTest, which is not read: nvbandwidth has taken its place"},
	{lazyregexp.New(`(?m)^(?:STREAM version|Function +Best Rate MB/s|sysbench \d|stress-ng: (?:info|metrc):)`),
		"a log of STREAM, sysbench or stress-ng, which is read as a part of a directory of vcpu-benchmarks " +
			"only"},
	{lazyregexp.New(`"fio version" *:`),
		"a result of fio, which is not read: rackless inspect shows the PCIe link of a drive"},
}

const sniffStranger = 256 << 10

func stranger(text []byte) string {
	for _, s := range strangers {
		if s.is().Match(text[:min(len(text), sniffStranger)]) {
			return s.what
		}
	}
	return ""
}
