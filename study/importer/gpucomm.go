package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// nvshmemFormat is of NVSHMEM's performance tests, deepEPFormat of the tests of DeepEP.
var (
	nvshmemFormat = logFormat{name: NVSHMEM, head: regexp.MustCompile(`(?m)^NVSHMEM v[0-9]|^#\w+\s*\nsize ?\(B`),
		start: regexp.MustCompile(`(?m)^NVSHMEM v[0-9]`), read: several(NVSHMEM, bench.ParseNVSHMEM, nil)}
	deepEPFormat = logFormat{name: DeepEP,
		head: regexp.MustCompile(`(?m)^\[tuning\] Best |^\[rank [0-9]+\] Dispatch (?:\+ combine )?bandwidth: `),
		read: several(DeepEP, bench.ParseDeepEP, nil)}
)
