package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rackless/rackless/rack/course"
)

// followed are the pages that a script follows, in turn.
var followed = []string{"docs/course.md", "docs/first-lab.md"}

var (
	// It differs between runs.
	progressLine = regexp.MustCompile(`(?m)^(ok|failed) .* \d+\.\d\d s\n`)
	accelerators = regexp.MustCompile(`on (tcg \(emulated\)|kvm)`)
)

// followCommand implements "follow PAGE": it compares the facts of the commands' output with the page, or writes it
// with -update-tutorial.
func followCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: follow PAGE")
	}
	path := filepath.Join("../../docs", args[0])
	page, err := os.ReadFile(path)
	ts.Check(err)
	pieces, err := parseTutorial(string(page))
	ts.Check(err)
	n := 0
	for _, piece := range pieces {
		b, ok := piece.(*block)
		if !ok {
			continue
		}
		for i := range b.commands {
			c := &b.commands[i]
			n++
			// Two programs may print at once.
			err := ts.Exec("sh", "-c", c.text)
			got := ts.ReadFile("stdout")
			if err != nil || strings.Contains(got, "Usage:") {
				got += ts.ReadFile("stderr")
			}
			if got = progressLine.ReplaceAllString(got, ""); got != "" && !strings.HasSuffix(got, "\n") {
				got += "\n"
			}
			mask := func(s string) []string { return facts(accelerators.ReplaceAllString(b.masked(s), "on ACCEL")) }
			if *updateTutorial {
				c.output = got
			} else if diff := cmp.Diff(mask(c.output), mask(got)); diff != "" {
				ts.Fatalf("%s:%d: %s prints something else (-page +printed):\n%s", path, c.line, c.text, diff)
			}
		}
	}
	if n < 10 {
		ts.Fatalf("%s has %d commands, want at least 10", path, n)
	}
	if *updateTutorial {
		ts.Check(os.WriteFile(path, []byte(writeTutorial(pieces)), 0o644))
	}
}

// puzzlesCommand implements "puzzles LAB". Verify has to fail in the table's check of each puzzle.
func puzzlesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: puzzles LAB")
	}
	for i, p := range course.Puzzles() {
		if p.GPU != "" || p.Far { // gpu.txtar has them
			continue
		}
		ts.Check(ts.Exec("rackless", "puzzle", "start", args[0], "--puzzle", fmt.Sprint(i+1)))
		said := ts.ReadFile("stderr")
		if strings.TrimSpace(said) != "" && !strings.HasPrefix(said, "ok break the lab ") {
			ts.Fatalf("puzzle %d: progress gives it away:\n%s", i+1, said)
		}
		if text := ts.ReadFile("stdout"); strings.Contains(text, p.Cause) || !strings.Contains(text, "Find out why") {
			ts.Fatalf("puzzle %d: break prints\n%s", i+1, text)
		}
		err := ts.Exec("rackless", "verify", args[0], "--only", p.Finding)
		if out := ts.ReadFile("stdout"); err == nil || !strings.Contains(out, "FAILED") {
			ts.Fatalf("puzzle %d (%s): verify does not see it by %s:\n%s", i+1, p.Name, p.Finding, out)
		}
		ts.Check(ts.Exec("rackless", "puzzle", "reveal", args[0]))
	}
}
