package libvirt

import (
	"fmt"
	"strings"
)

// maxDiff is how many lines of a difference are shown.
const maxDiff = 20

// diffLines returns what differs between two documents, line by line and without indentation: "- "
// and a line of before, "+ " and one of after. It finds the fewest lines, in time and space that
// grow with the product of what is between the first and the last difference.
func diffLines(before, after []byte) []string {
	a, b := trimmedLines(before), trimmedLines(after)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	// common[i][k] is the length of the longest common subsequence of a[i:] and b[k:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := len(b) - 1; k >= 0; k-- {
			if a[i] == b[k] {
				common[i][k] = common[i+1][k+1] + 1
			} else {
				common[i][k] = max(common[i+1][k], common[i][k+1])
			}
		}
	}
	var out []string
	for i, k := 0, 0; i < len(a) || k < len(b); {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && common[i+1][k] >= common[i][k+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[k])
			k++
		}
	}
	if more := len(out) - maxDiff; more > 0 {
		out = append(out[:maxDiff], fmt.Sprintf("and %d lines more", more))
	}
	return out
}

func trimmedLines(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}
