package importer

import (
	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// Formats of what rackless starts none of: NVSHMEM's performance tests, the tests of DeepEP, NAMD and WRF.
var (
	nvshmemFormat = logFormat{name: NVSHMEM, head: lazyregexp.New(`(?m)^NVSHMEM v[0-9]|^#\w+\s*\nsize ?\(B`),
		start: lazyregexp.New(`(?m)^NVSHMEM v[0-9]`), read: several(NVSHMEM, bench.ParseNVSHMEM, nil)}
	deepEPFormat = logFormat{name: DeepEP,
		head: lazyregexp.New(`(?m)^\[tuning\] Best |^\[rank [0-9]+\] Dispatch (?:\+ combine )?bandwidth: `),
		read: several(DeepEP, bench.ParseDeepEP, nil)}
	namdFormat = logFormat{name: NAMD, head: lazyregexp.New(`(?m)^Info: NAMD \S+ for |^Info: Benchmark time: `),
		start: lazyregexp.New(`(?m)^Info: NAMD \S+ for `), read: several(NAMD, bench.ParseNAMD, nil)}
	wrfFormat = logFormat{name: WRF, head: lazyregexp.New(`(?m)^ ?Timing for main\b.* elapsed seconds`),
		start: lazyregexp.New(`(?m)^(?: ?Ntasks in X .*\n)? ?WRF V\S+ MODEL`),
		read:  several(WRF, bench.ParseWRF, nil)}
)
