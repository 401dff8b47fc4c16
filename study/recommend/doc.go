// Package recommend recommends a configuration for a lab on a host, and names the measurements behind it.
//
// # Terms
//
// A setting is an option besides the placement itself: pinning, guest NUMA, SMT siblings, isolation, the size of
// pages, the MTU. A piece of [Evidence] compares two levels of one setting, for one metric, by a study or by a
// published document. Its [Carry] says how far it applies to the host in question.
//
// # The rule
//
// All levels of a setting begin as candidates. Evidence is considered in four ranks: studies of this host, studies of
// the same kind of host, documents on this kind of host, and everything else. In each rank a candidate drops out
//
//  1. if another one is better for the workload and nowhere worse;
//  2. if it makes no relevant difference compared with a simpler one (fewer changes to the host), or
//     is better for one metric and worse for another.
//
// A lower rank cannot undo the decision of a higher one between two levels; contradictions are reported. If several
// candidates are left, the current level in the lab and the plan stays. Undecided or confounded results decide
// nothing, nor do measurements on emulated machines.
//
// [Recommend] also fits the planner's model to the host's studies. fit.go has the formulas, and docs/recommend.md
// explains them.
//
// The package has no side effects.
package recommend
