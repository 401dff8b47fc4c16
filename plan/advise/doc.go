// Package advise explains a plan and suggests improvements.
//
// [Decisions] lists the choices with their runner-ups, extra costs and evidence. [Advice] tries changes of the host
// and reports the ones that lower the cost. [Differences] compares two plans.
//
// Everything here is pure: the same input gives the same text. evidence.go and docs/planner.md list all quoted
// figures with their sources.
package advise
