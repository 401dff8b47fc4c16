package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
)

// everyday are the commands that "rackless --help" lists. "rackless --help --all" lists all.
var everyday = []string{"init", "plan", "up", "down", "ls", "exec", "verify", "bench", "study", "inspect", "prepare",
	"rollback", "explain"}

// briefHelp is the help of the program that fits on a terminal of 24 lines.
func briefHelp(root *cobra.Command) string {
	var b strings.Builder
	title, _, _ := strings.Cut(root.Long, "\n\n")
	b.WriteString(title + "\n\n")
	for _, name := range everyday {
		c, _, err := root.Find([]string{name})
		if err != nil {
			panic(err) // the tests print this help
		}
		fmt.Fprintf(&b, "  %-9s %s\n", name, c.Short)
	}
	b.WriteString("\nA lab to begin with: rackless init lab.yaml, then rackless up. All commands, exit codes and\n" +
		"variables: rackless --help --all. One command: rackless COMMAND --help.\n")
	return b.String()
}

// newHostCmd groups what is done about this machine besides inspect, prepare and rollback.
func newHostCmd(a *app) *cobra.Command {
	return grouping("host", "Check or fix a virtual machine, check GPUDirect RDMA, save a snapshot",
		newCheckCmd(a), newAdoptCmd(a), newGPUDirectCmd(a), newSnapshotCmd(a))
}

// newLinkCmd groups what concerns the links between a lab's nodes and its switch.
func newLinkCmd(a *app) *cobra.Command {
	return grouping("link", "Show the links of a lab, make them slow or lossy, capture their packets",
		newLinkShowCmd(a), newLinkSetCmd(a), newCaptureCmd(a))
}

// newPuzzleCmd groups the puzzles of docs/course.md.
func newPuzzleCmd(a *app) *cobra.Command {
	return grouping("puzzle", "Break a running lab, and find out why, to learn from it",
		newPuzzleStartCmd(a), newPuzzleCheckCmd(a), newPuzzleRevealCmd(a))
}

// formerNames are commands under the names that they had before version 0.2, by their present ones. They are hidden,
// work as before, and say the new name.
var formerNames = []struct {
	old, now string
	make     func(*app) *cobra.Command
}{
	{"adopt", "host adopt", newAdoptCmd},
	{"baseline", "bench baseline", newBaselineCmd},
	{"capture", "link capture", newCaptureCmd},
	{"check", "host check", newCheckCmd},
	{"console", "exec", newConsoleCmd},
	{"fabric", "link show", newLinkShowCmd},
	{"fabric set", "link set", newLinkSetCmd},
	{"gpudirect", "host gpudirect", newGPUDirectCmd},
	{"lab break", "puzzle start", newPuzzleStartCmd},
	{"lab judge", "puzzle check", newPuzzleCheckCmd},
	{"lab mend", "puzzle reveal", newPuzzleRevealCmd},
	{"recommend", "plan --explain", newRecommendCmd},
	{"report", "bench show", newReportCmd},
	{"results", "study", func(*app) *cobra.Command { return grouping("results", "See bench check and study") }},
	{"results check", "bench check", newResultsCheckCmd},
	{"results import", "study import", newResultsImportCmd},
	{"results query", "study query", newResultsQueryCmd},
	{"results raw", "study raw", newResultsRawCmd},
	{"snapshot", "host snapshot", newSnapshotCmd},
}

// addFormerNames adds the former names to root.
func addFormerNames(a *app, root *cobra.Command) {
	for _, f := range formerNames {
		words := strings.Fields(f.old)
		parent := root
		for _, w := range words[:len(words)-1] {
			i := slices.IndexFunc(parent.Commands(), func(c *cobra.Command) bool { return c.Name() == w })
			parent = parent.Commands()[i]
		}
		c := f.make(a)
		_, operands, _ := strings.Cut(c.Use, " ")
		c.Use = strings.TrimSpace(words[len(words)-1] + " " + operands)
		markFormer(c, f.now)
		parent.AddCommand(c)
		if present, _, err := root.Find(strings.Fields(f.now)); err == nil && present != root {
			cli.SetFormerly(present, f.old)
		}
	}
}

// markFormer hides a command under a former name, with those below it.
func markFormer(c *cobra.Command, now string) {
	c.Hidden = true
	c.Annotations = map[string]string{cli.Now: now}
	for _, sub := range c.Commands() {
		markFormer(sub, now+" "+sub.Name())
	}
}
