// Package study plans an experiment on a lab and reports its result: which settings differ, in which order the runs are
// made, what the measurements show and how sure that is. Making the runs is the business of study/conduct and
// study/rig, the arithmetic that of study/stats.
//
// # Words
//
// A factor is what is varied, its levels are the values it takes. A cell is one level of each
// factor. A run brings the lab into a cell and measures everything once. A block is a group of runs
// close in time, with each cell in it equally often: what changes slowly on the machine meets all
// cells of a block alike. A contrast compares two levels of one factor where all others are the
// same.
//
// The package is pure.
package study
