// Package advise explains a plan and suggests improvements: [Decisions], [Advice] and [Differences].
//
// Everything here is pure: the same input gives the same text. evidence.go and docs/planner.md list all quoted figures
// with their sources.
package advise
