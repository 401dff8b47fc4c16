// Package show holds what all outputs of reports have in common, so that they look like one family: the style sheet,
// tables and terminals, how figures are written, and how text from outside is made safe to show.
//
// The package is pure.
package show
