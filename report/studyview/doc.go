// Package studyview shows the result of a study: as text, Markdown, CSV and JSON, and as one self-contained HTML page.
//
// Everything is decided in study and study/stats; here it is only said. The package is pure but for the io.Writer.
package studyview
