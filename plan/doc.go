// Package plan holds the planner's values: the problem, the cost of a placement, and the plan.
//
// Package plan/build makes a [Problem] from a host and a lab: all inputs of a placement, in plain values that can be
// printed and given to another solver. Package plan/search finds the [Placement] of least cost and proves it.
// [Evaluate] computes the cost of a placement term by term. [Assemble] makes a [Plan] from a placement: CPUs, pages,
// addresses, and kernel arguments. Package plan/verify judges a Plan by the rules alone, without sharing code with
// the search. If there is no placement, package plan/conflict explains the reason in an [Infeasible].
//
// Everything here is pure: no I/O, no clock, no randomness. The same input gives the same bytes.
//
// The rules, the terms and the evidence for the weights are in docs/planner.md.
package plan
