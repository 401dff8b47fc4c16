package bench

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// A BadResultError says that a tool printed no valid result. The measurement can be retried; its output must not be
// published.
type BadResultError struct {
	Tool   string
	Line   int // from 1; 0 if the whole output is bad
	Text   string
	Reason string
}

// maxErrorText limits the output in an error, because a broken tool can print megabytes.
const maxErrorText = 200

func (e *BadResultError) Error() string {
	at := e.Tool
	if e.Line > 0 {
		at += fmt.Sprintf(", line %d", e.Line)
	}
	if e.Text != "" {
		at += fmt.Sprintf(" %q", e.Text)
	}
	return "read result of " + at + ": " + e.Reason
}

// BadResult is for output that is bad as a whole.
func BadResult(tool, format string, args ...any) error {
	return &BadResultError{Tool: tool, Reason: fmt.Sprintf(format, args...)}
}

// EachLine calls read with each line, including its newline, up to the first error, a *BadResultError.
func EachLine(tool string, output []byte, read func(line string) error) error {
	number := 0
	for line := range strings.Lines(string(output)) {
		number++
		if err := read(line); err != nil {
			return &BadResultError{Tool: tool, Line: number, Text: Shorten(line), Reason: err.Error()}
		}
	}
	return nil
}

// BadOutput names the last line, because tools that give up print their reason there.
func BadOutput(tool string, output []byte, reason string) error {
	text, n := LastLine(output)
	return &BadResultError{Tool: tool, Line: n, Text: text, Reason: reason}
}

// Shorten truncates text and drops bytes that are not UTF-8.
func Shorten(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "..."
}

// LastLine skips blank lines and returns "" and 0 if there is no other.
func LastLine(output []byte) (text string, number int) {
	output = bytes.TrimRightFunc(output, unicode.IsSpace)
	if len(output) == 0 {
		return "", 0
	}
	begin := bytes.LastIndexByte(output, '\n') + 1
	return Shorten(string(output[begin:])), 1 + bytes.Count(output, []byte("\n"))
}

// FirstWords returns the first line with words: mpirun prints the cause first, between rulers.
func FirstWords(out Output) string {
	for _, text := range [][]byte{out.Stderr, out.Stdout} {
		for line := range strings.Lines(string(text)) {
			if t := strings.Trim(strings.TrimSpace(line), "-=*"); t != "" {
				return Shorten(line)
			}
		}
	}
	return ""
}
