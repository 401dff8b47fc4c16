package importer

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// Text says what became of the results: what was imported, what failed, and notes.
func (s *Study) Text() string {
	var b strings.Builder
	f := s.Spec.Factors[0]
	fmt.Fprintf(&b, "study %s: %s, %s of %s (%s), %s, %s\n", s.Spec.Name, s.Spec.Imported,
		words.Count(len(f.Levels), "level"), f.Name, words.Printable(strings.Join(f.Levels, ", ")),
		words.Count(s.Spec.Blocks, "repeat"), words.Count(s.Figures(), "figure"))
	// A directory of a thousand failed logs would scroll away what was imported: three of each run tell the kind.
	failures := 0
	for _, r := range s.Runs {
		failures += len(r.Failures)
		for _, why := range r.Failures[:min(len(r.Failures), 3)] {
			fmt.Fprintf(&b, "  failed: %s=%s, repeat %d: %s\n", f.Name, words.Printable(r.Cell[f.Name]), r.Block,
				words.Printable(why))
		}
	}
	if failures > 0 {
		fmt.Fprintf(&b, "  %s in all: they are no figures, and the report tells of them\n",
			words.Count(failures, "failure"))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "  note: %s\n", words.Printable(n))
	}
	return b.String()
}
