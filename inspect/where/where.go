// Package where says where in another tool's dump something is wrong, in one form for all importers.
package where

import "fmt"

// An Error is a dump that is not what it should be, or that cannot be right.
type Error struct {
	File string // as the importer was given it
	Line int    // from 1; 0 where the whole dump is meant
	Why  string
}

func (e *Error) Error() string { return Prefix(e.File, e.Line) + e.Why }

// Prefix is how a message about a place begins: "host.xml:12: ", "line 12: " of a dump without a name, or "".
func Prefix(file string, line int) string {
	switch {
	case file != "" && line > 0:
		return fmt.Sprintf("%s:%d: ", file, line)
	case line > 0:
		return fmt.Sprintf("line %d: ", line)
	case file != "":
		return file + ": "
	}
	return ""
}

// Clip shortens what came from outside for a message: to 60 bytes, and three dots that say so.
func Clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
