package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/stats"
)

func with(c Chart, class string) []Shape {
	return slices.DeleteFunc(slices.Clone(c.Shapes), func(s Shape) bool { return !strings.HasPrefix(s.Class, class) })
}

// Long names are wrapped and never cut.
func TestALegendKeepsEveryName(t *testing.T) {
	c := New("id", "title", Width)
	long := "placement=a-name-that-is-much-longer-than-a-line contention=and-another-one-that-is-as-long"
	c.Legend(Series{Name: "one"}, Series{Name: "two", Color: 7, Dash: 5}, Series{Name: long},
		Series{Name: "limit", Class: "wire-limit"})
	var names []string
	rows := map[string]bool{}
	for _, s := range c.Shapes {
		if s.D == "" {
			names = append(names, s.Text)
			rows[s.Y] = true
		}
	}
	if got := strings.Join(names, ""); strings.ReplaceAll(got, " ", "") != "onetwo"+strings.ReplaceAll(long, " ", "")+
		"limit" {
		t.Errorf("names are %q", names)
	}
	if len(rows) < 4 || names[0] != "one" || c.Shapes[2].Y != c.Shapes[5].Y {
		t.Errorf("lines of text %v; want the two short names on one, then the folded one and the limit", rows)
	}
	if n := len(with(c.Chart, "line l1 d1")); n != 1 || len(with(c.Chart, "s1")) != 1 {
		t.Errorf("the eighth series has no colour of the style sheet: %+v", c.Shapes)
	}
	if n := len(with(c.Chart, "s")); n != 3 {
		t.Errorf("%d markers, want none for the limit", n)
	}
}

func TestACurveIsFaintWhereItRestsOnTooLittle(t *testing.T) {
	p := New("id", "title", Width).Plot(Axis{Hi: 10, Label: show.Tick}, LinearAxis(10), "x", "y")
	p.Curve(Series{Color: 2}, []Point{{X: 0, Y: 1, Title: "first", Value: "1", Bytes: 8}, {X: 5, Y: 2, Low: 1, High: 3},
		{X: 10, Y: 9, Faint: true, Title: "last"}}, true)
	sure, faint := with(p.Chart, "line l2 d0"), with(p.Chart, "line faint l2")
	if len(sure) != 1 || len(faint) != 1 {
		t.Fatalf("lines are %+v", with(p.Chart, "line"))
	}
	joint := fmt.Sprintf("%s %s", Px(p.X.At(5)), Px(p.Y.At(2)))
	if !strings.HasSuffix(sure[0].D, "L"+joint) || !strings.HasPrefix(faint[0].D, "M"+joint+"L") {
		t.Errorf("the faint line %s does not begin where %s ends", faint[0].D, sure[0].D)
	}
	marks := with(p.Chart, "pt s2")
	if len(marks) != 2 || marks[0].Value != "1" || marks[0].Bytes != 8 || len(with(p.Chart, "whisker")) != 1 {
		t.Errorf("got %+v; want a mark for each title, and a whisker for the one spread", marks)
	}
}

func TestABandEnclosesTheSpread(t *testing.T) {
	p := New("id", "title", Width).Plot(Axis{Hi: 10, Label: show.Tick}, LinearAxis(10), "x", "y")
	p.Band(Series{}, []Point{{X: 0, Low: 1, High: 2}, {X: 10, Low: 3, High: 4}})
	want := Path("M%s %sL%s %sL%s %sL%s %sz", p.X.At(0), p.Y.At(2), p.X.At(10), p.Y.At(4), p.X.At(10), p.Y.At(3),
		p.X.At(0), p.Y.At(1))
	if got := with(p.Chart, "band s0"); len(got) != 1 || got[0].D != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// Axes are of the whole test, and a tail with too few samples is marked.
func TestLatenciesShareTheirAxes(t *testing.T) {
	points := func(us float64, supported bool) Distribution {
		return Distribution{Title: func(p stats.Point) string { return fmt.Sprint(p.Us) },
			Points: []stats.Point{{Quantile: 0.5, Us: us, Supported: true}, {Quantile: 0.99, Us: 2 * us,
				Supported: supported}}}
	}
	low, high := points(1, true), points(400, false)
	all := []Distribution{low, high}
	a := New("a", "a", Width).Latencies("", "us", all[:1], all)
	b := New("b", "b", Width).Latencies("", "us", all[1:], all)
	if ga, gb := with(a, "grid"), with(b, "grid"); len(ga) == 0 || !slices.Equal(ga, gb) {
		t.Errorf("grids differ: %+v and %+v", ga, gb)
	}
	note := func(c Chart) bool {
		return slices.ContainsFunc(c.Shapes, func(s Shape) bool { return strings.HasPrefix(s.Text, "Faint: ") })
	}
	if note(a) || !note(b) {
		t.Errorf("notes on faint ends: %v and %v, want the second alone", note(a), note(b))
	}
	if m := with(a, "pt "); len(m) != 2 || m[0].Value != "1" {
		t.Errorf("marks are %+v", m)
	}
}
