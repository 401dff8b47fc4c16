package libvirt

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// maxDiff is how many lines of a difference are shown.
const maxDiff = 20

// diffLines returns what differs between two documents, line by line and without indentation: "- "
// and a line of before, "+ " and one of after.
func diffLines(before, after []byte) []string {
	var out []string
	unified := diff.Diff("before", trimLines(before), "after", trimLines(after))
	for i, line := range strings.Split(string(unified), "\n") {
		if i > 2 && line != "" && strings.Contains("-+", line[:1]) { // below the names of the documents
			out = append(out, line[:1]+" "+line[1:])
		}
	}
	if more := len(out) - maxDiff; more > 0 {
		out = append(out[:maxDiff], fmt.Sprintf("and %d lines more", more))
	}
	return out
}

// trimLines removes indentation, and ends the last line.
func trimLines(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		b.Write(append(bytes.TrimSpace(line), '\n'))
	}
	return b.Bytes()
}
