package tool

import (
	"slices"
	"time"

	"github.com/rackless/rackless/bench"
)

// Tests is the content of an output with several tests in turn.
type Tests struct {
	Version string    // "" if unknown
	Started time.Time // zero if unknown
	All     []Test
}

// A Test is one test of an output.
type Test struct {
	Name    string // with differences from the usual: "/half/max"
	Figures []bench.Figure
	Err     error
}

func (t *Tests) of(name string) *Test {
	i := slices.IndexFunc(t.All, func(x Test) bool { return x.Name == name })
	if i < 0 {
		i = len(t.All)
		t.All = append(t.All, Test{Name: name})
	}
	return &t.All[i]
}

func (t *Tests) add(name string, figures ...bench.Figure) {
	x := t.of(name)
	x.Figures = append(x.Figures, figures...)
}

func (t *Tests) checked(tool string, output []byte, err error) (Tests, error) {
	if err == nil && len(t.All) == 0 {
		err = bench.BadOutput(tool, output, "there is no result")
	}
	if err != nil {
		return Tests{}, err
	}
	for i := range t.All {
		if x := &t.All[i]; x.Err == nil && len(x.Figures) == 0 {
			x.Err = bench.BadResult(tool, "%s has no figure", x.Name)
		}
	}
	return *t, nil
}
