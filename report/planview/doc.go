// Package planview prints plans for people, as plain text wrapped to a width. For programs, use the JSON of
// [plan.Plan].
package planview
