// Package chart draws the charts of all pages as SVG: scales and ticks, legends, lines with markers, bands and
// whiskers, and distributions of latencies. The callers choose the data and the wording.
//
// A chart is a list of paths and texts. [Template] renders it, and the style sheet of package show colours it. A
// shape has a class and never a colour, so that one chart works in light, dark and print styles.
//
// The package is pure.
package chart
