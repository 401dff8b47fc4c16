// Package lazyregexp makes regular expressions that are compiled when they are first used. Compiling those of all
// importers took more than a millisecond of every start of the program, which seldom needs any.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. It compiles expr at its first call, and panics then if
// expr is wrong: a test compiles all constant ones. Any number of goroutines may call it at once.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
