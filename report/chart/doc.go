// Package chart draws the charts of all pages as SVG. It is pure; callers choose the data and the wording.
//
// A shape has a class and never a colour, so that one chart works in light, dark and print styles.
package chart
