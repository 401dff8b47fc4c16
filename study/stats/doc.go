// Package stats evaluates the measurements of a study: the size of an effect, its certainty, or that the runs do not
// tell.
//
// A study makes its runs in blocks, each with every level of a factor, in random order. Slow changes of the machine
// (temperature, other load) then affect all levels of a block alike and cancel out of their difference. So the unit
// of analysis is the block: the samples of one run are not independent, and a million of them say no more about the
// next run than one.
//
//	Contrast, QuantileContrast    two levels compared: estimate, interval, p value
//	Judge                         better, worse, equivalent or undecided, for a family of comparisons
//	Power, MinBlocks              what a study of so many blocks can show, and how many blocks it takes
//	Moved                         metrics that the factor cannot move: did they?
//	Drifting                      effects that changed while the study was made
//	Histogram                     latencies, merged without averaging percentiles
//
// The package has no I/O, clock or globals. Random numbers come from a generator with the caller's seed, so the same
// input gives the same output. docs/statistics.md explains the methods and reports simulations of them.
package stats
