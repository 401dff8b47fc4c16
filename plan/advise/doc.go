// Package advise says why a plan is as it is, and what would make it better.
//
// [Decisions] gives each choice with its runner-up, what that would cost, and the measurements
// behind it. [Advice] tries changes of the host and reports those that lower the cost.
// [Differences] says what is different in one plan from another.
//
// Everything here is pure: the same input gives the same words. Figures that are quoted are listed,
// with their sources, in evidence.go and in docs/planner.md.
package advise
