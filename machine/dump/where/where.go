// Package where describes the position of an error in a dump, for all importers.
package where

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

// An Error is a dump that cannot be parsed or is inconsistent.
type Error struct {
	File string // as given to the importer
	Line int    // counts from 1; 0 means the whole dump
	Err  error
}

func (e *Error) Error() string { return Prefix(e.File, e.Line) + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// At returns an [*Error] for a line. Finish adds the file.
func At(line int, format string, args ...any) error {
	return &Error{Line: line, Err: fmt.Errorf(format, args...)}
}

// Finish completes a machine read from a file, or adds the file to its error. Every importer ends with it, so that
// derived facts do not depend on the format.
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

// Prefix returns the beginning of a message: "host.xml:12: ", "line 12: " for a dump without a name, or "".
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

// maxNotes bounds the remarks on one hostile dump.
const maxNotes = 100

// Notes are remarks on lines of a readable dump, for Host.Unread.
type Notes struct {
	Host *topology.Host
	File string
	made int
}

// Note adds a remark on a line.
func (n *Notes) Note(line int, format string, args ...any) {
	if n.made++; n.made <= maxNotes {
		n.Host.Unread = append(n.Host.Unread, topology.Unread{Path: fmt.Sprintf("%s:%d", n.File, line),
			Why: fmt.Sprintf(format, args...)})
	}
}

// Clip shortens untrusted text for a message.
func Clip(s string) string { return words.Clip(s, 60) }
