package nccl

import "fmt"

// An Error is a file that is not a topology, or one that cannot be right.
type Error struct {
	File string // as it was given to Parse
	Line int    // from 1; 0 where the whole file is meant
	Why  string
}

func (e *Error) Error() string {
	switch {
	case e.File != "" && e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Why)
	case e.Line > 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Why)
	case e.File != "":
		return fmt.Sprintf("%s: %s", e.File, e.Why)
	}
	return e.Why
}

// clip shortens what came from outside for a message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
