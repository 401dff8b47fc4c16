// Package importer turns results that others measured into studies: a tree of vcpu_benchmarks,
// SuperBench's results-summary.jsonl, logs of perftest, nccl-tests and other tools, and
// samples.jsonl of rackless itself. What rackless asks of its own figures it asks of these too: a
// value that is zero, negative or no number is a failure with a reason, a unit is taken where it is
// documented and called unknown where it is not, and a file that cannot be understood is named,
// with the line.
//
// The package is pure: it reads what it is given and writes nothing. study/conduct keeps what it returns.
package importer
