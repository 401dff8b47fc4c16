package build

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// A RequestError is something that the lab asks for and that the host, or a model, does not allow.
type RequestError struct {
	Node string // the lab node; empty for what concerns the whole lab or the host
	Key  string // the key of the lab file: "gpus", "host.reserve.cores"; "model" for a model's file; may be empty
	What string // what is wrong, what is there and what to do
}

// Error returns "node: key: what".
func (e *RequestError) Error() string {
	text := ""
	for _, part := range []string{e.Node, e.Key} {
		text += words.If(part != "", part+": ")
	}
	return text + e.What
}

// RequestErrors are all errors of one call of [Problem], in the order of the lab; it never returns an
// empty one. errors.As with a *RequestError finds the first.
type RequestErrors []*RequestError

// maxErrorsShown bounds what RequestErrors prints: a lab of 500 like nodes asks for the same
// impossible thing 500 times.
const maxErrorsShown = 10

// Error prints the first errors, one below the other.
func (e RequestErrors) Error() string {
	lines := make([]string, 0, maxErrorsShown+1)
	for i, one := range e {
		if i == maxErrorsShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(e)-maxErrorsShown))
			break
		}
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.Is and errors.As every error.
func (e RequestErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// maxListed bounds lists of devices and names in messages.
const maxListed = 8

// listText joins names: "a", "a and b", "a, b and c", and counts those past a few.
func listText(names []string) string {
	if len(names) > maxListed {
		return rowText(names)
	}
	return words.List(names)
}

// rowText joins names by commas, and counts those past a few.
func rowText(names []string) string {
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
