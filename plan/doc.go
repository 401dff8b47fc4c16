// Package plan holds the planner's values: the problem, the cost of a placement, and the plan. Packages below this one
// make the [Problem], find the [Placement], judge the [Plan] and explain an [Infeasible] lab.
//
// Everything here is pure: the same input gives the same bytes. The rules, the terms and the evidence for the weights
// are in docs/planner.md.
package plan
