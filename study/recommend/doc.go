// Package recommend recommends a configuration for a lab on a host, and names the measurements behind it.
//
// # Words
//
// A setting is what can be chosen beside the placement itself: pinning, guest NUMA, SMT siblings,
// isolation, the size of pages, the MTU. A piece of [Evidence] compares two levels of one setting,
// for one metric, by a study or by a published document. How far it [Carry]s says what it is worth
// on the host in question.
//
// # The rule
//
// All levels of a setting begin as candidates. Evidence is asked in four ranks: studies of this
// host, studies of the same kind of host, documents on this kind of host, and everything else. In
// each rank a candidate drops out
//
//  1. if another one is better for the workload and nowhere worse;
//  2. if it makes no difference that matters beside a simpler one (fewer changes to the host), or
//     is better for one metric and worse for another.
//
// What a higher rank has decided between two levels a lower one cannot undo; where it says
// otherwise, that is named. If several candidates are left, it stays as lab and planner have it.
// What is undecided or confounded decides nothing, and neither does what was measured on emulated
// machines, whatever it shows.
//
// [Recommend] also fits the planner's model to the host's studies: fit.go has the formulas,
// docs/recommend.md explains them.
//
// The package is pure.
package recommend
