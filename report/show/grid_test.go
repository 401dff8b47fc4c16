package show

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGrid(t *testing.T) {
	g := NewGrid("name", "count>", "note")
	g.Add("a", "5", "first")
	g.Add("longer", "12345", "")
	g.Add("", "1", "x")
	want := "" +
		"NAME    COUNT  NOTE\n" +
		"a           5  first\n" +
		"longer  12345  -\n" +
		"-           1  x\n"
	if diff := cmp.Diff(want, g.String()); diff != "" {
		t.Error(diff)
	}
}

func TestColumnsWithNothingInThemAreLeftOut(t *testing.T) {
	g := NewGrid("a", "b>", "c")
	if !g.Empty() {
		t.Error("a grid without rows is not empty")
	}
	g.Add("x", "", "")
	g.Add("y", "", "1")
	if diff := cmp.Diff("A  C\nx  -\ny  1\n", g.WithoutEmpty().String()); diff != "" {
		t.Error(diff)
	}
}

func TestGridFitsATerminal(t *testing.T) {
	g := NewGrid("lab", "node", "address")
	g.Add("pair", "vm00", "10.0.0.1,10.0.1.1,10.0.2.1")
	for width, want := range map[int]string{
		0:  "LAB   NODE  ADDRESS\npair  vm00  10.0.0.1,10.0.1.1,10.0.2.1\n",
		38: "LAB   NODE  ADDRESS\npair  vm00  10.0.0.1,10.0.1.1,10.0.2.1\n",
		30: "LAB   NODE  ADDRESS\npair  vm00  10.0.0.1,10.0.1.1,\n            10.0.2.1\n",
		5:  "LAB   NODE  ADDRESS\npair  vm00  10.0.0.1\n            ,10.0.1.\n            1,10.0.2\n            .1\n",
	} {
		if got := g.Fit(width).String(); got != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, got, want)
		}
	}
}
