// Package lazyregexp compiles regular expressions at their first use: compiling all took more than a millisecond of
// every start of the program.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New compiles expr at the first call of its result, and panics then if expr is wrong. Any number of goroutines may
// call it at once.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
