// Package stats says what the measurements of a study show: how large an effect is, how certain that is, and when the
// runs do not tell.
//
// A study makes its runs in blocks, each with every level of a factor, in random order. What
// changes slowly on a machine (temperature, other load) then moves all levels of a block alike and
// drops out of the difference between them. So the unit of everything here is the block, not the
// run and not the sample: the samples of one run are not independent of each other, and a million
// of them say no more about the next run than one.
//
//	Contrast, QuantileContrast    two levels compared: estimate, interval, p value
//	Judge                         better, worse, equivalent or undecided, for a family of comparisons
//	Power, MinBlocks              what a study of so many blocks can show, and how many blocks it takes
//	Moved                         metrics that the factor cannot move: did they?
//	Drifting                      effects that changed while the study was made
//	Histogram                     latencies, merged without averaging percentiles
//
// The package is pure: no I/O, no clock, no globals. Random numbers come from a generator that
// starts at the caller's seed, so the same input gives the same output. docs/statistics.md explains
// the methods in plain words, with what simulations say about them.
package stats
