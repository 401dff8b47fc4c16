package study

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A Cell is the index of one level of each factor, in the order of Spec.Factors.
type Cell []int

// Cells returns the cells; the last factor changes fastest.
func (s *Spec) Cells() []Cell {
	cells := []Cell{{}}
	for _, f := range s.Factors {
		var more []Cell
		for _, c := range cells {
			for l := range f.Levels {
				more = append(more, append(slices.Clone(c), l))
			}
		}
		cells = more
	}
	if s.Design != DesignHalf {
		return cells
	}
	// The half fraction with the product of all factors as defining relation (Box, Hunter, Hunter, Statistics for
	// Experimenters, 2nd edition, chapter 6): an even number of second levels. With three factors, main effects are
	// mixed with two-factor interactions.
	return slices.DeleteFunc(cells, func(c Cell) bool {
		sum := lists.Sum(c, func(l int) int { return l })
		return sum%2 == 1
	})
}

func (s *Spec) takesIsolcpus(c Cell) bool { return s.Settings(c)[FactorIsolation] == IsolationIsolcpus }

// TakesBoots reports whether cells need differently booted hosts.
func (s *Spec) TakesBoots() bool {
	return slices.ContainsFunc(s.Factors, func(f Factor) bool {
		return f.Name == FactorIsolation && slices.Contains(f.Levels, IsolationIsolcpus) &&
			slices.ContainsFunc(f.Levels, func(l string) bool { return l != IsolationIsolcpus })
	})
}

// Settings returns the levels of a cell by factor.
func (s *Spec) Settings(c Cell) map[string]string {
	m := make(map[string]string, len(c))
	for i, l := range c {
		m[s.Factors[i].Name] = s.Factors[i].Levels[l]
	}
	return m
}

// CellText is the SettingsText of a cell.
func (s *Spec) CellText(c Cell) string { return s.SettingsText(s.Settings(c)) }

// A Run is one place in the order of a study.
type Run struct {
	Block int // starting at 1
	Place int // in the block, from 1
	Cell  Cell
}

// RunsPerCell counts the runs of a cell in a block, one in each half.
const RunsPerCell = 2

// Block returns the runs of a block. The first half is a random order of all cells, and the second half the same
// reversed (A B B A), so that steady drift affects all cells equally.
//
// Cells that need isolated CPUs are adjacent, in random order of the two groups: a split plot with two or three boots
// per block. The order depends only on seed and number, so that a study can be continued.
func (s *Spec) Block(number int) []Run {
	cells := s.Cells()
	rng := rand.New(rand.NewPCG(s.Seed, uint64(number)))
	rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	first := s.takesIsolcpus(cells[0])
	half := func(c Cell) int {
		if s.takesIsolcpus(c) == first {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(cells, func(a, b Cell) int { return cmp.Compare(half(a), half(b)) })
	back := slices.Clone(cells)
	slices.Reverse(back)
	var runs []Run
	for i, c := range append(cells, back...) {
		runs = append(runs, Run{Block: number, Place: i + 1, Cell: c})
	}
	return runs
}

// A Pairing compares level B of a factor with A, the first level.
type Pairing struct {
	Factor string
	A, B   int // indexes of the levels
	// Where is a cell with the levels of the other factors; that of Factor is ignored. nil compares over all levels of
	// the others, as half a design requires.
	Where Cell
	// Joint, if set, compares levels of several factors at once; Factor, A, B and their levels in Where are ignored.
	Joint *Joint
}

// Pairings returns the joint comparisons, then for each factor every level against the first, at each combination of
// the others. In half a design, no two cells differ in one factor alone, so each is compared over all cells.
func (s *Spec) Pairings() []Pairing {
	var all []Pairing
	for i := range s.Compare {
		joint := &s.Compare[i]
		for _, c := range s.Cells() {
			if slices.Equal(c, s.with(c, joint.From)) {
				all = append(all, Pairing{Where: c, Joint: joint})
			}
		}
	}
	for i, f := range s.Factors {
		if s.Design == DesignHalf {
			all = append(all, Pairing{Factor: f.Name, B: 1})
			continue
		}
		for _, c := range s.Cells() {
			if c[i] > 0 {
				all = append(all, Pairing{Factor: f.Name, B: c[i], Where: c})
			}
		}
	}
	return all
}

func (s *Spec) with(c Cell, levels map[string]string) Cell {
	out := slices.Clone(c)
	for i, f := range s.Factors {
		if level, ok := levels[f.Name]; ok {
			out[i] = slices.Index(f.Levels, level)
		}
	}
	return out
}

const and = " and "

func (s *Spec) sides(p Pairing) (factor, a, b string) {
	if p.Joint == nil {
		i := slices.IndexFunc(s.Factors, func(f Factor) bool { return f.Name == p.Factor })
		return p.Factor, s.Factors[i].Levels[p.A], s.Factors[i].Levels[p.B]
	}
	var names, from, to []string
	for _, f := range s.Factors {
		if level, ok := p.Joint.From[f.Name]; ok {
			names, from, to = append(names, f.Name), append(from, level), append(to, p.Joint.To[f.Name])
		}
	}
	return strings.Join(names, and), strings.Join(from, and), strings.Join(to, and)
}

func (s *Spec) cells(p Pairing) [2][]string {
	if p.Joint != nil {
		return [2][]string{{s.CellText(s.with(p.Where, p.Joint.From))}, {s.CellText(s.with(p.Where, p.Joint.To))}}
	}
	return [2][]string{s.cellsAt(p, p.A), s.cellsAt(p, p.B)}
}

func (s *Spec) cellsAt(p Pairing, level int) []string {
	i := slices.IndexFunc(s.Factors, func(f Factor) bool { return f.Name == p.Factor })
	var all []string
	for _, c := range s.Cells() {
		at := slices.Clone(p.Where)
		if at == nil {
			at = slices.Clone(c)
		}
		at[i] = level
		if slices.Equal(c, at) {
			all = append(all, s.CellText(c))
		}
	}
	return all
}

func (p Pairing) moves(factor string) bool {
	if p.Joint == nil {
		return factor == p.Factor
	}
	_, ok := p.Joint.From[factor]
	return ok
}

// where formats the levels that both sides share, or returns "".
func (s *Spec) where(p Pairing) string {
	if p.Where == nil {
		return ""
	}
	return s.levelsText(s.Settings(p.Where), p.moves)
}
