// Package advise says why a plan is as it is, and what would make it better.
//
// [Decisions] gives each choice with its runner-up, what that would cost, and the measurements
// behind it. [Advice] changes the host in thought, solves again and reports what gains. An [Edit]
// is such a change in the user's own words; [Differences] says what it did to the plan.
//
// Everything here is pure: the same input gives the same words. Figures that are quoted are listed,
// with their sources, in evidence.go and in docs/planner.md.
package advise
