// Package study designs an experiment on a lab and analyses its runs: the settings that differ, the order of the
// runs, the effects that the measurements show, and their certainty. It has no side effects: study/conduct and
// study/rig make the runs, and study/stats does the arithmetic.
//
// # Terms
//
// A factor is a setting that is varied, and its levels are the values it takes. A cell is one level of each factor. A
// run sets the lab up for a cell and measures everything once. A block is a group of runs close in time that contains
// each cell equally often, so that slow changes of the machine affect all cells of a block alike. A contrast compares
// two levels of one factor while all other factors stay the same.
package study
