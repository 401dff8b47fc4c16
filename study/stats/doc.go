// Package stats evaluates the measurements of a study: the size of an effect and its certainty.
//
// The unit of analysis is the block, with every level of a factor in random order, so that slow changes of the machine
// (temperature, other load) cancel out of differences. Samples of one run are not independent: a million say no more
// about the next run than one.
//
// It has no I/O, clock or globals, and random numbers come from the caller's seed. docs/statistics.md explains the
// methods and reports simulations of them.
package stats
