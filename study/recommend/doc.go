// Package recommend recommends a configuration for a lab on a host, and names the measurements behind it. It has no
// side effects.
//
// # The rule
//
// All levels of a setting begin as candidates. Evidence is considered in four ranks: studies of this host, studies of
// the same kind of host, documents on this kind of host, and everything else. In each rank a candidate drops out
//
// 1. if another one is better for the workload and nowhere worse; 2. if it makes no relevant difference compared with a
// simpler one (fewer changes to the host), or
//
//	is better for one metric and worse for another.
//
// A lower rank cannot undo a decision of a higher one; contradictions are reported. If several candidates are left, the
// current level stays. Undecided or confounded results decide nothing, nor do measurements on emulated machines.
//
// fit.go and docs/recommend.md have the formulas that fit the planner's model.
package recommend
