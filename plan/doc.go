// Package plan holds the planner's values: the problem, the cost of a placement, and the plan.
//
// Package plan/build makes a [Problem] of a host and a lab: everything that a placement may depend
// on, in plain values that can be printed and given to another solver. Package plan/search finds the
// [Placement] of least cost and proves it. [Evaluate] says what a placement costs, term by term.
// [Assemble] makes a [Plan] of it: CPUs, pages, addresses, kernel arguments. Package plan/verify
// judges a Plan by the rules alone; it shares no code with the search. Where no placement exists,
// package plan/conflict says why, in an [Infeasible].
//
// Everything here is pure: no I/O, no clock, no randomness. The same input gives the same bytes.
//
// The rules, the terms and the evidence for the weights are written down in docs/planner.md.
package plan
