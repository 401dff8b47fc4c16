package tool

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/rackless/rackless/bench"
)

// firstSign returns the error for the first line that matches sign, in which a program says why it gave up, or nil.
func firstSign(tool string, output []byte, sign func() *regexp.Regexp) error {
	return bench.EachLine(tool, output, func(line string) error {
		if sign().MatchString(line) {
			return errors.New("the program gave up")
		}
		return nil
	})
}

// alsoPrinted adds to the error of a command the reason that it gave in the output that was parsed.
func alsoPrinted(exit *bench.ExitError, parseErr error) error {
	if bad, ok := errors.AsType[*bench.BadResultError](parseErr); ok {
		return fmt.Errorf("%w: %w", exit, bad)
	}
	return exit
}
