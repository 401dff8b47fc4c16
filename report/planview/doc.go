// Package planview prints plans for people: where the lab nodes go and why, what other tools would do, and what a
// change would do.
//
// Everything is plain text without colours, folded to a width. The form for programs is the JSON of [plan.Plan] itself.
package planview
