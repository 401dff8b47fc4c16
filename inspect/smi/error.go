package smi

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/inspect/where"
)

// An Error is a text without a matrix, or a matrix that cannot be right.
type Error struct {
	File   string // as it was given to Parse; empty from ParseMatrix
	Line   int    // from 1; 0 where the whole text is meant
	Row    string // device that the row is of, if any
	Column string // device that the column is of, if any
	Why    string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(where.Prefix(e.File, e.Line))
	switch {
	case e.Row != "" && e.Column != "":
		fmt.Fprintf(&b, "row %q, column %q: ", e.Row, e.Column)
	case e.Row != "":
		fmt.Fprintf(&b, "row %q: ", e.Row)
	}
	b.WriteString(e.Why)
	return b.String()
}

// rowError returns an error at a row, and at a column unless that is empty.
func rowError(line int, row, column, format string, args ...any) *Error {
	return &Error{Line: line, Row: row, Column: column, Why: fmt.Sprintf(format, args...)}
}
