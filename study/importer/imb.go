package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// imbFormat is of the Intel MPI Benchmarks.
var imbFormat = logFormat{name: IMB,
	head:  regexp.MustCompile(`(?m)^#\s+Intel ?\(R\) MPI Benchmark|^# Benchmarking \S+ *$`),
	start: regexp.MustCompile(`(?m)^(?:#-{10,}[ \t]*\n)?#\s+Intel ?\(R\) MPI Benchmark`),
	read:  several(IMB, bench.ParseIMB, nil)}
