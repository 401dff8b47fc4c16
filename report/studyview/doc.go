// Package studyview shows the result of a study: as text, Markdown, CSV, JSON, and a self-contained HTML page. All
// analysis is done in study and study/stats.
package studyview
