// Package show holds what all pages and charts of reports have in common, so that they look like one family: the style sheet, axes and
// markers, how figures are written, and how text from outside is made safe to show.
//
// The package is pure.
package show

import _ "embed" // for the style sheet

// Style is the style sheet of the pages. It is the one text in them that is not escaped.
//
//go:embed page.css
var Style string
