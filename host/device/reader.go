package device

import "github.com/rackless/rackless/host/change"

// A reader reads files until the first error, which err holds, so that callers check it once, at the end.
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

func (r *reader) list(path string) []string { return read(r, r.s.List, path) }

func (r *reader) link(path string) string { return read(r, r.s.LinkName, path) }

func (r *reader) value(path string) string {
	return read(r, func(path string) (string, error) { return r.s.ValueOr(path, "") }, path)
}
