package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// Formats of what rackless starts none of: NVSHMEM's performance tests, the tests of DeepEP, NAMD and WRF.
var (
	nvshmemFormat = logFormat{name: NVSHMEM, head: regexp.MustCompile(`(?m)^NVSHMEM v[0-9]|^#\w+\s*\nsize ?\(B`),
		start: regexp.MustCompile(`(?m)^NVSHMEM v[0-9]`), read: several(NVSHMEM, bench.ParseNVSHMEM, nil)}
	deepEPFormat = logFormat{name: DeepEP,
		head: regexp.MustCompile(`(?m)^\[tuning\] Best |^\[rank [0-9]+\] Dispatch (?:\+ combine )?bandwidth: `),
		read: several(DeepEP, bench.ParseDeepEP, nil)}
	namdFormat = logFormat{name: NAMD, head: regexp.MustCompile(`(?m)^Info: NAMD \S+ for |^Info: Benchmark time: `),
		start: regexp.MustCompile(`(?m)^Info: NAMD \S+ for `), read: several(NAMD, bench.ParseNAMD, nil)}
	wrfFormat = logFormat{name: WRF, head: regexp.MustCompile(`(?m)^ ?Timing for main\b.* elapsed seconds`),
		read: several(WRF, bench.ParseWRF, nil)}
)
