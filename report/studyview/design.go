package studyview

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// An Estimate returns the approximate duration of a run, and its basis. It is only called with a budget.
type Estimate func() (run time.Duration, how string, err error)

// Design describes the runs of a study and the effects that they can show.
func Design(w io.Writer, s *study.Spec, estimate Estimate) error {
	cells, comparisons := s.Cells(), s.Comparisons()
	fmt.Fprintf(w, "study %s: %s, %s in a block, seed %d\n", s.Name, words.Count(len(cells), "cell"),
		words.Count(study.RunsPerCell*len(cells), "run"), s.Seed)
	for _, f := range s.Factors {
		fmt.Fprintf(w, "  %-12s %s\n", f.Name, strings.Join(f.Levels, " | "))
	}
	if s.TakesBoots() {
		fmt.Fprintln(w, "the host is booted anew two or three times in a block: some cells take it with the "+
			"lab's CPUs isolated, some without")
	}
	least := stats.MinBlocks(1-s.Confidence, comparisons)
	if s.Blocks == 0 {
		fmt.Fprintf(w, "as many blocks as fit into %v; fewer than %d can show nothing of %s\n", s.Budget, least,
			words.Count(comparisons, "comparison"))
		return printEstimate(w, s, estimate, least)
	}
	runs := s.Blocks * study.RunsPerCell * len(cells)
	fmt.Fprintf(w, "%s, %s in all, for %s\n", words.Count(s.Blocks, "block"), words.Count(runs, "run"),
		words.Count(comparisons, "comparison"))
	// Few blocks have few permutations: the smallest p is above the corrected level, whatever the figures.
	if s.Blocks < least {
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: it takes %d or more\n", least)
		return nil
	}
	fmt.Fprintf(w, "smallest effect that is found in 4 of 5 such studies: %s\n", study.SmallestEffects(s, s.Blocks))
	if s.Budget > 0 {
		fmt.Fprintf(w, "fewer blocks are made where %v do not hold them\n", s.Budget)
		return printEstimate(w, s, estimate, least)
	}
	return nil
}

// printEstimate says how many blocks fit into a budget and which effects they show.
func printEstimate(w io.Writer, s *study.Spec, estimate Estimate, least int) error {
	run, how, err := estimate()
	if err != nil {
		return err
	}
	block := run * time.Duration(study.RunsPerCell*len(s.Cells()))
	blocks := max(1, int(s.Budget/block)) // a started block is finished
	all := s.Blocks > 0 && blocks >= s.Blocks
	if all {
		blocks = s.Blocks
	}
	round := 100 * time.Millisecond
	if run >= 10*time.Second {
		round = time.Second
	}
	fmt.Fprintf(w, "estimate: a run takes about %v (%s), so %v hold about %s\n", run.Round(round), how, s.Budget,
		words.Count(blocks, "block"))
	switch {
	case blocks < least:
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: %d take about %v\n", least,
			(block * time.Duration(least)).Round(time.Second))
	case !all: // otherwise already printed
		fmt.Fprintf(w, "smallest effect that is found in 4 of 5 studies of %s: %s\n", words.Count(blocks, "block"),
			study.SmallestEffects(s, blocks))
	}
	return nil
}

// Order prints the runs in the first blocks, at most three.
func Order(w io.Writer, s *study.Spec) {
	blocks := max(1, min(s.Blocks, 3))
	for b := 1; b <= blocks; b++ {
		for _, r := range s.Block(b) {
			fmt.Fprintf(w, "block %2d  run %2d  %s\n", r.Block, r.Place, s.CellText(r.Cell))
		}
	}
	if s.Blocks != blocks {
		fmt.Fprintln(w, "and so on")
	}
}
