package chart

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func checkAxis(t *rapid.T, a Axis, lo, hi float64) {
	const rounding = 1 + 1e-6
	a = a.Over(100, 400)
	if a.Lo > lo*rounding || a.Hi*rounding < hi {
		t.Errorf("axis from %v to %v does not hold %v to %v", a.Lo, a.Hi, lo, hi)
	}
	if n := len(a.Ticks); n < 1 || n > maxTicks {
		t.Errorf("%d ticks for %v to %v: %v, want 1 to 8", n, lo, hi, a.Ticks)
	}
	if !slices.IsSorted(a.Ticks) || a.Ticks[0] < a.Lo/rounding || a.Ticks[len(a.Ticks)-1] > a.Hi*rounding {
		t.Errorf("ticks %v of the axis from %v to %v", a.Ticks, a.Lo, a.Hi)
	}
	for i := 1; i < len(a.Ticks); i++ {
		if a.Label(a.Ticks[i]) == a.Label(a.Ticks[i-1]) {
			t.Errorf("%v and %v are both %q", a.Ticks[i-1], a.Ticks[i], a.Label(a.Ticks[i]))
		}
	}
	for _, v := range []float64{lo, hi} {
		if at := a.At(v); !(at >= 99.9 && at <= 400.1) {
			t.Errorf("%v is at %v, want it from 100 to 400", v, at)
		}
	}
}

func TestAxesHoldTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Exp(rapid.Float64Range(-18, 25).Draw(t, "ln lowest"))
		hi := lo * math.Exp(rapid.Float64Range(0, 20).Draw(t, "ln ratio"))
		checkAxis(t, LogAxis(lo, hi), lo, hi)
		checkAxis(t, ValueAxis(lo, hi), lo, hi)
		checkAxis(t, LinearAxis(hi), 0, hi)
		small := rapid.Int64Range(1, 1<<40).Draw(t, "smallest")
		large := rapid.Int64Range(small, 1<<50).Draw(t, "largest")
		checkAxis(t, SizeAxis(small, large), float64(small), float64(large))
	})
}

func TestTicksAreRoundNumbers(t *testing.T) {
	text := func(a Axis) string {
		var out []string
		for _, v := range a.Over(plotHeight, 0).Ticks {
			out = append(out, a.Label(v))
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct{ got, want string }{
		{text(LinearAxis(0.27)), "0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3"},
		{text(LinearAxis(0.3)), "0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3"},
		{text(LinearAxis(98)), "0, 20, 40, 60, 80, 100"},
		{text(LinearAxis(0)), "0, 0.2, 0.4, 0.6, 0.8, 1"},
		{text(LogAxis(385, 3100)), "500, 1000, 2000"},
		{text(LogAxis(100, 100)), "95, 100, 105, 110"},
		{text(LogAxis(0.000003, 0.011)), "0.00001, 0.0001, 0.001, 0.01"},
		{text(SizeAxis(2, 8<<20)), "2 B, 16 B, 128 B, 1 KiB, 8 KiB, 64 KiB, 512 KiB, 4 MiB"},
		{text(SizeAxis(64, 64)), "64 B, 128 B"},
		{text(SizeAxis(1500, 9000)), "1 KiB, 2 KiB, 4 KiB, 8 KiB, 16 KiB"},
	} {
		if c.got != c.want {
			t.Errorf("got ticks %s, want %s", c.got, c.want)
		}
	}
	if a := SizeAxis(1<<62, math.MaxInt64); a.Hi != math.Ldexp(1, 63) {
		t.Errorf("axis to the largest size ends at %v", a.Hi)
	}
}

func TestPaths(t *testing.T) {
	var l Line
	l.To(0, 1.25)
	l.To(10.04, -2)
	for got, want := range map[string]string{
		l.String():                   "M0 1.2L10 -2",
		Path("M%s %sH%s", 1, 2.5, 3): "M1 2.5H3",
		Circle(5, 5, 2):              "M3 5a2 2 0 1 0 4 0a2 2 0 1 0 -4 0z",
		Marker(1, 5, 5):              "M2 2h6v6h-6z",
		Marker(6, 5, 5):              "M5 1l4 7h-8z",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
