package device

import "github.com/rackless/rackless/host/change"

// A reader reads files of a machine until one cannot be read: from then on it returns nothing, and err says why. What
// only reads looks at err once, at its end.
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

// list returns the names in a directory, none where there is no such directory.
func (r *reader) list(path string) []string { return read(r, r.s.List, path) }

// link returns the last name of what a link leads to, "" where there is none.
func (r *reader) link(path string) string { return read(r, r.s.LinkName, path) }

// value returns what a file holds, "" where there is none.
func (r *reader) value(path string) string {
	return read(r, func(path string) (string, error) { return r.s.ValueOr(path, "") }, path)
}
