// Package study designs an experiment on a lab and analyses its runs: the order of the runs, the effects and their
// certainty. It has no side effects: study/conduct and study/rig make the runs.
//
// # Terms
//
// A factor is a setting that is varied, between its levels. A cell is one level of each factor. A run measures
// everything once in a cell. A block is a group of runs close in time with each cell equally often, so that slow
// changes of the machine affect all cells alike. A contrast compares two levels of one factor while the others stay the
// same.
package study
