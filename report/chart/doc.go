// Package chart draws the charts of all pages as SVG: scales and their ticks, legends, lines with their markers, bands
// and whiskers, distributions of latencies. What is drawn, and in which words, is the business of its callers.
//
// A chart is a list of paths and texts. [Template] prints it, and the style sheet of package show colours it: a shape
// has a class and never a colour, so that one chart serves light, dark and paper.
//
// The package is pure.
package chart
