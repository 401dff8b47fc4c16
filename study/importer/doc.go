// Package importer turns results that others measured into studies: a tree of vcpu_benchmarks, logs of perftest,
// nccl-tests, OSU, iperf3 and nvbandwidth, and samples.jsonl of rackless itself. It asks of these figures what rackless
// asks of its own: a value that is zero, negative or no number is a failure with a reason, and a file that cannot be
// understood is named, with the line.
//
// The package is pure: it reads what it is given and writes nothing. study/conduct keeps what it returns.
package importer
