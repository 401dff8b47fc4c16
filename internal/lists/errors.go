package lists

import (
	"fmt"
	"strings"
)

// Errors are errors that are told together, such as all faults of one file.
type Errors[E error] []E

// maxShown bounds what Errors prints: past that, people fix what they have seen and run again.
const maxShown = 10

// Error prints the first errors, one below the other.
func (e Errors[E]) Error() string {
	lines := Map(e[:min(len(e), maxShown)], E.Error)
	if more := len(e) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.Is and errors.As every error.
func (e Errors[E]) Unwrap() []error { return Map(e, func(one E) error { return one }) }
