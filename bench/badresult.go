package bench

import (
	"fmt"
	"strings"
)

// A BadResultError tells that a tool printed something that is not a result: a zero or impossible figure, a
// missing column, no figure at all, or a layout this package does not know. The measurement has failed and
// can be tried again; nothing of the output is to be published.
type BadResultError struct {
	Tool   string // e.g. "perftest", "iperf3"
	Line   int    // number of the offending line of the output, from 1; 0 where the output as a whole is bad
	Text   string // the offending line, shortened
	Reason string
}

// maxErrorText bounds how much of a tool's output an error repeats: a broken tool can print megabytes.
const maxErrorText = 200

func (e *BadResultError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "read result of %s", e.Tool)
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " %q", e.Text)
	}
	b.WriteString(": ")
	b.WriteString(e.Reason)
	return b.String()
}

// shorten cuts text to what an error may repeat, and drops bytes that are not UTF-8.
func shorten(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "..."
}

// lastLine returns the last line of output that is not blank, with its number, or "" and 0. Tools that give
// up say why in their last line.
func lastLine(output []byte) (text string, number int) {
	lines := strings.Split(string(output), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if t := strings.TrimSpace(lines[i]); t != "" {
			return shorten(t), i + 1
		}
	}
	return "", 0
}

// firstWords returns the first line of a failed command's complaint that has words in it. Programs
// that start others say first what is wrong, and last how many processes have gone; rulers stand
// around it.
func firstWords(out Output) string {
	for _, text := range [][]byte{out.Stderr, out.Stdout} {
		for line := range strings.Lines(string(text)) {
			if t := strings.Trim(strings.TrimSpace(line), "-=*"); t != "" {
				return shorten(line)
			}
		}
	}
	return ""
}
