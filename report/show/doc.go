// Package show holds what all pages and charts of reports have in common, so that they look like
// one family: the style sheet, axes and markers, how figures are written, and how text from outside
// is made safe to show.
//
// The package is pure.
package show

import _ "embed" // for the style sheets and the script

// Base is the style of text and tables, for pages whose pictures have a style of their own.
//
//go:embed base.css
var Base string

//go:embed page.css
var charts string

// Style is the style sheet of the pages: Base, and charts. It is the one text in them that is not escaped.
var Style = Base + charts

// SortScript sorts the tables of class sort by the column whose head is pressed. Pages have it
// beside nothing else that runs, and work without it.
//
//go:embed sort.js
var SortScript string

// SortStyle is the style of those tables, and of the button that downloads their figures; it goes behind Style.
//
//go:embed sort.css
var SortStyle string
