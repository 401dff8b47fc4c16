package paste

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

var labels = []func() *regexp.Regexp{
	lazyregexp.New(`^(?:.{0,40}?)\[[\w.@-]*\d+,(\d+)\]<std(?:out|err)>:`), // mpirun --tag-output
	lazyregexp.New(`^\[((?:default|rank)\d+)\]:`),                         // torchrun
	lazyregexp.New(`^\[(\d{1,5})\](?: |$)`),                               // mpiexec -prepend-rank
	lazyregexp.New(`^ *(\d+): `),                                          // srun --label
	lazyregexp.New(`^([A-Za-z][\w.-]*\d[\w.-]*): `),                       // pdsh
}

// block matches the heading above the output of nodes: one line of Ansible, or three of dshbak and of clush -b.
var block = lazyregexp.New(`(?m)^([\w.-]+) \| (?:CHANGED|SUCCESS|FAILED) \| rc=\d+ >>[ \t\r]*$|` +
	`^-{15,16}\r?\n([A-Za-z][\w.,\[\]-]*)(?: \(\d+\))?\r?\n-{15,16}\r?$`)

const maxLabels = 4096

// First returns the lines of the first rank or node in the text, and all labels. It empties the other lines, to keep
// line numbers. A text of a single node has no labels.
func First(text []byte) ([]byte, []string) {
	if heads := block().FindAllIndex(text, maxLabels); len(heads) > 1 {
		all := lists.Map(block().FindAllSubmatch(text, maxLabels),
			func(m [][]byte) string { return string(m[1]) + string(m[2]) })
		second := heads[1][0]
		rest := each(text[second:], func(line []byte) []byte { return line[len(bytes.TrimRight(line, "\r\n")):] })
		return slices.Concat(text[:second], rest), all
	}
	if numbered().Match(text) {
		return text, nil
	}
	for _, form := range labels {
		if all := labelsOf(text, form); len(all) > 1 {
			return each(text, func(line []byte) []byte {
				if m := form().FindSubmatch(line); m != nil && string(m[1]) != all[0] {
					return line[len(bytes.TrimRight(line, "\r\n")):]
				}
				return line
			}), all
		}
	}
	return text, nil
}

// labelsOf returns the labels of nearly all lines, in order. It returns nil if a label occurs only once: then the
// labels are keys.
func labelsOf(text []byte, form func() *regexp.Regexp) (all []string) {
	count := map[string]int{}
	lines, labelled := 0, 0
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		lines++
		if m := form().FindSubmatch(line); m != nil && len(count) <= maxLabels {
			labelled++
			if count[string(m[1])]++; count[string(m[1])] == 1 {
				all = append(all, string(m[1]))
			}
		}
	}
	single := func(label string) bool { return count[label] < 2 }
	if labelled*10 < lines*9 || slices.ContainsFunc(all, single) {
		return nil
	}
	return all
}
