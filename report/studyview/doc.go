// Package studyview shows the result of a study: as text, Markdown, CSV and JSON, and as one self-contained HTML
// page.
//
// All analysis is done in study and study/stats; this package only formats it. It is pure except for the io.Writer.
package studyview
