// Package where describes the position of an error in another tool's dump, in one form for all importers.
package where

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

// An Error is a dump that is not what it should be, or that cannot be right.
type Error struct {
	File string // as the importer was given it
	Line int    // from 1; 0 where the whole dump is meant
	Err  error
}

func (e *Error) Error() string { return Prefix(e.File, e.Line) + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// At returns the Error of a line. Finish adds the file.
func At(line int, format string, args ...any) error {
	return &Error{Line: line, Err: fmt.Errorf(format, args...)}
}

// Finish completes the machine that an importer read from a file, or names the file in its error. It is
// the end of every importer, so that what follows from the facts, and the list of the parts that were
// filled in, are the same whatever the format.
func Finish(h *topology.Host, err error, file string) (*topology.Host, error) {
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.File = file
		}
		return nil, err
	}
	h.Complete()
	h.Provenance.Filled = h.Parts()
	return h, nil
}

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

// maxNotes bounds the remarks on one dump: a hostile one could have one on each line.
const maxNotes = 100

// Notes are remarks on lines of a dump, which was read all the same. They are listed in Host.Unread.
type Notes struct {
	Host *topology.Host
	File string // what they call the dump
	made int
}

// Note adds a remark on a line.
func (n *Notes) Note(line int, format string, args ...any) {
	if n.made++; n.made <= maxNotes {
		n.Host.Unread = append(n.Host.Unread, topology.Unread{Path: fmt.Sprintf("%s:%d", n.File, line),
			Why: fmt.Sprintf(format, args...)})
	}
}

// Clip shortens what came from outside for a message.
func Clip(s string) string { return words.Clip(s, 60) }
