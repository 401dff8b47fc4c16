package studyview

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// An Estimate returns about how long a run of a study takes, and what that rests on. It is asked only
// where the study has a budget.
type Estimate func() (run time.Duration, how string, err error)

// Design says what a study runs, and what that can show.
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
	// So few blocks can be permuted in too few ways: the smallest possible p is above the corrected level, whatever the
	// figures.
	if s.Blocks < least {
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: it takes %d or more\n", least)
		return nil
	}
	fmt.Fprintf(w, "smallest effect that is found in 4 of 5 such studies: %s\n", SmallestEffects(s, s.Blocks))
	if s.Budget > 0 {
		fmt.Fprintf(w, "fewer blocks are made where %v do not hold them\n", s.Budget)
		return printEstimate(w, s, estimate, least)
	}
	return nil
}

// printEstimate says for how many blocks a budget seems to suffice before any run has been made,
// and what so many can show.
func printEstimate(w io.Writer, s *study.Spec, estimate Estimate, least int) error {
	run, how, err := estimate()
	if err != nil {
		return err
	}
	block := run * time.Duration(study.RunsPerCell*len(s.Cells()))
	blocks := max(1, int(s.Budget/block)) // a block that was begun is finished
	all := s.Blocks > 0 && blocks >= s.Blocks
	if all {
		blocks = s.Blocks
	}
	// No more digits than the estimate is good for.
	round := words.Either(run >= 10*time.Second, time.Second, 100*time.Millisecond)
	fmt.Fprintf(w, "estimate: a run takes about %v (%s), so %v hold about %s\n", run.Round(round), how, s.Budget,
		words.Count(blocks, "block"))
	switch {
	case blocks < least:
		fmt.Fprintf(w, "so few blocks can show no effect at all, whatever its size: %d take about %v\n", least,
			(block * time.Duration(least)).Round(time.Second))
	case !all: // else it has been said
		fmt.Fprintf(w, "smallest effect that is found in 4 of 5 studies of %s: %s\n", words.Count(blocks, "block"),
			SmallestEffects(s, blocks))
	}
	return nil
}

// SmallestEffects says what a study with some blocks can show, for metrics that vary little and much.
func SmallestEffects(s *study.Spec, blocks int) string {
	blocks = min(blocks, stats.MaxBlocks) // with more it is smaller still
	var found []string
	// How much the user's metric varies is not known before it is measured: little, usually, much.
	for _, spread := range []float64{0.01, 0.05, 0.2} {
		p := stats.Power{Spread: spread, Alpha: 1 - s.Confidence, Comparisons: s.Comparisons(), Seed: s.Seed}
		if e := p.Detectable(blocks); !math.IsInf(e, 1) {
			found = append(found, fmt.Sprintf("%.1f%% where it varies by %g%% from block to block", 100*e, 100*spread))
		}
	}
	return words.Either(found == nil, "none, whatever its size", strings.Join(found, ", "))
}

// Order prints the order of the first block, and of all where there are few.
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
