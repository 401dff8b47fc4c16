package lists

import (
	"fmt"
	"strings"
)

// Errors are reported together, such as all errors in one file.
type Errors[E error] []E

// maxShown is small: users fix the first errors and run again.
const maxShown = 10

// Error returns the first errors, one on each line.
func (e Errors[E]) Error() string {
	lines := Map(e[:min(len(e), maxShown)], E.Error)
	if more := len(e) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap is for errors.Is and errors.As.
func (e Errors[E]) Unwrap() []error { return Map(e, func(one E) error { return one }) }
