// Package plan says where the nodes of a lab go on a host, and why.
//
// The way through it: [New] makes a [Problem] of a host and a lab: everything that a placement may
// depend on, in plain values that can be printed and given to another solver. Package plan/search
// finds the [Placement] of least cost and proves it. [Evaluate] says what a placement costs, term
// by term. [Assemble] makes a [Plan] of it: CPUs, pages, addresses, kernel arguments. [Check]
// judges a Plan by the rules alone; it shares no code with the search.
//
// Everything here is pure: no I/O, no clock, no randomness. The same input gives the same bytes.
//
// The rules, the terms and the evidence for the weights are written down in docs/planner.md.
package plan
