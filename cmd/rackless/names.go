package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
)

// everyday commands are listed by "rackless --help", each in one line of 80 columns; --all lists all.
var everyday = []struct{ name, does string }{
	{"inspect", "Show this machine's topology, and what is wrong with it"},
	{"plan", "Find the best place for the nodes of a lab on a host"},
	{"prepare", "Prepare this host for the plan of a lab, with undo"},
	{"rollback", "Undo everything that prepare has changed on this host"},
	{"init", "Write a commented lab file to begin with"},
	{"up", "Bring a lab up, or update a running one to its file"},
	{"down", "Stop a lab and remove everything but its results"},
	{"ls", "List the running labs and their nodes"},
	{"exec", "Run a command on a node, or open a root shell on its console"},
	{"verify", "Check every fact about a running lab or a prepared host"},
	{"bench", "Measure bandwidth and latency between the nodes of a lab"},
	{"study", "Find out whether settings matter, by runs in random order"},
	{"explain", "Explain a finding, a check or an error code"},
}

// briefHelp fits on a terminal of 24 lines.
func briefHelp(root *cobra.Command) string {
	var b strings.Builder
	title, _, _ := strings.Cut(root.Long, "\n\n")
	b.WriteString(title + "\n\n")
	for _, c := range everyday {
		fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.does)
	}
	b.WriteString("\nrackless init lab.yaml, and then rackless up, is a way to begin.\n\n" +
		"  rackless COMMAND --help  what one command does\n" +
		"  rackless --help --all    all commands, exit codes and variables")
	return b.String()
}

// newHostCmd groups commands besides inspect, prepare and rollback.
func newHostCmd(a *app) *cobra.Command {
	return grouping("host", "Check or fix a virtual machine, check GPUDirect RDMA, find cables, save a snapshot",
		newCheckCmd(a), newAdoptCmd(a), newGPUDirectCmd(a), newLinksCmd(a), newSnapshotCmd(a))
}

func newLinkCmd(a *app) *cobra.Command {
	return grouping("link", "Show the links of a lab, make them slow or lossy, capture their packets",
		newLinkShowCmd(a), newLinkSetCmd(a), newCaptureCmd(a))
}

// newPuzzleCmd groups docs/course.md.
func newPuzzleCmd(a *app) *cobra.Command {
	return grouping("puzzle", "Break a running lab, and find out why, to learn from it",
		newPuzzleStartCmd(a), newPuzzleCheckCmd(a), newPuzzleRevealCmd(a))
}

// formerNames are hidden, work as before, and say the new name.
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
		// A command that became a flag does not share its defaults.
		if present, rest, err := root.Find(strings.Fields(f.now)); err == nil && len(rest) == 0 {
			cli.SetFormerly(present, f.old)
		}
	}
}

// markFormer also hides the commands below.
func markFormer(c *cobra.Command, now string) {
	c.Hidden = true
	c.Annotations = map[string]string{cli.Now: now}
	for _, sub := range c.Commands() {
		markFormer(sub, now+" "+sub.Name())
	}
}

// leave names replacements for flags of plan that left the program.
func leave(root *cobra.Command) {
	plan, _, err := root.Find([]string{"plan"})
	if err != nil {
		return
	}
	for name, instead := range map[string]string{
		"whatif":       "edit the lab file, and plan again with --against PLAN.json",
		"fleet":        "plan LAB.yaml --host HOST for each host, or the scheduler of the cluster",
		"policy":       "plan LAB.yaml --host HOST for each host, or the scheduler of the cluster",
		"capacity":     "plan with more nodes, until the answer is that they do not fit",
		"dump-problem": "plan -o json has every term of the score",
	} {
		cli.Gone(plan, name, instead)
	}
}
