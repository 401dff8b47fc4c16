// Package lazyregexp compiles at the first use: compiling all took more than a millisecond of every start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New compiles expr at the first call of its result, and panics then if expr is wrong. Goroutines may share it.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
