// Package planview prints plans for people: the places of the lab nodes and the reasons, the placements of other
// tools, and the effect of a change.
//
// Everything is plain text without colours, wrapped to a width. For programs, use the JSON of [plan.Plan].
package planview
