package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Confirm asks a yes-or-no question on out, and reads the answer from in.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		// The end of input is no, and so is a line that is longer than any answer.
		line, _ := bufio.NewReader(io.LimitReader(in, 1<<10)).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case text := <-answer:
		return text == "y" || text == "yes", nil
	}
}
