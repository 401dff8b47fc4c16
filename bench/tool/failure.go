package tool

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rackless/rackless/bench"
)

func firstSign(tool string, output []byte, sign func() *regexp.Regexp) error {
	return bench.EachLine(tool, output, func(line string) error {
		if sign().MatchString(line) {
			return errors.New("the program gave up")
		}
		return nil
	})
}

func alsoPrinted(exit *bench.ExitError, parseErr error) error {
	if bad, ok := errors.AsType[*bench.BadResultError](parseErr); ok {
		return fmt.Errorf("%w: %w", exit, bad)
	}
	return exit
}

func withMark(bare func() *regexp.Regexp, line string) string {
	if strings.HasPrefix(line, "# ") || !bare().MatchString(line) {
		return line
	}
	return "# " + strings.TrimLeft(line, "# \t")
}
