// Package importer converts results that others measured into studies: a tree of vcpu_benchmarks, logs of perftest,
// nccl-tests, OSU, iperf3 and nvbandwidth, and samples.jsonl of rackless. Imported figures must meet the same rules
// as rackless's own: a value that is zero, negative or not a number is a failure with a reason, and a file that
// cannot be parsed is reported with the line.
//
// The package only reads its sources and writes nothing. study/conduct stores the result.
package importer
