// Package show holds the common parts of all reports, so that they look alike: the style sheet, tables and terminals,
// the formatting of figures, and the cleaning of texts from outside.
//
// The package is pure.
package show
