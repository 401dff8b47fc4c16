package device

import "github.com/rackless/rackless/host/change"

// A reader reads files until the first error. From then on it returns nothing, and err holds the error, so that
// callers check it once, at the end.
type reader struct {
	s   *change.System
	err error
}

func read[T any](r *reader, get func(path string) (T, error), path string) (value T) {
	if r.err == nil {
		value, r.err = get(path)
	}
	return value
}

// list returns the names in a directory, or none if there is no directory.
func (r *reader) list(path string) []string { return read(r, r.s.List, path) }

// link returns the last path element of a link's target, or "" if there is no link.
func (r *reader) link(path string) string { return read(r, r.s.LinkName, path) }

// value returns the content of a file, or "" if there is no file.
func (r *reader) value(path string) string {
	return read(r, func(path string) (string, error) { return r.s.ValueOr(path, "") }, path)
}
