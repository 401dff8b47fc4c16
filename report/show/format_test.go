package show

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1: "1 B", 1000: "1000 B", 1023: "1023 B", 1024: "1 KiB",
		1536: "1536 B", 65536: "64 KiB", 65537: "65537 B",
		1 << 20: "1 MiB", 3 << 19: "1536 KiB", 8 << 20: "8 MiB", 512 << 20: "512 MiB", 1 << 30: "1 GiB",
		1 << 40: "1024 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		v                 float64
		want, short, tick string
	}{
		{0, "0", "0", "0"},
		{0.23, "0.23", "0.23", "0.23"},
		{385, "385", "385", "385"},
		{385.123, "385.1", "385", "385.1"},
		{0.00045849, "0.0004585", "0.000458", "0.0004585"},
		{123456.7, "123457", "123457", "123\u202f457"},
		{10000000, "10000000", "10000000", "10\u202f000\u202f000"},
		{9.9999, "10", "10", "10"},
		{100, "100", "100", "100"},
		{-1.5, "-1.5", "-1.5", "-1.5"},
		{1e-6, "0.000001", "0.000001", "0.000001"},
	} {
		if got := Figure(c.v); got != c.want {
			t.Errorf("Figure(%v) = %q, want %q", c.v, got, c.want)
		}
		if got := Short(c.v); got != c.short {
			t.Errorf("Short(%v) = %q, want %q", c.v, got, c.short)
		}
		if got := Tick(c.v); got != c.tick {
			t.Errorf("Tick(%v) = %q, want %q", c.v, got, c.tick)
		}
	}
}

func TestNumberNeverHasMoreDigitsThanItMay(t *testing.T) {
	for _, c := range []struct {
		v                float64
		digits, decimals int
		want             string
	}{
		{0.255, 3, 2, "0.26"},
		{497.93, 3, 2, "498"},
		{3495.82, 3, 2, "3496"}, // not 3500: it would be wrong by 4
		{3.463, 3, 3, "3.46"},
		{0.0048, 1, 9, "0.005"},
		{12.3456, 5, 9, "12.346"},
		{0.5, 3, 0, "0"},
		{0.25013, 3, 6, "0.250"}, // the tool printed the third digit, and it is 0
		{0.25, 3, 6, "0.25"},     // it did not
		{9.9996, 4, 9, "10.00"},
		{-9.9996, 4, 9, "-10.00"},
	} {
		if got := Number(c.v, c.digits, c.decimals); got != c.want {
			t.Errorf("Number(%v, %d, %d) = %q, want %q", c.v, c.digits, c.decimals, got, c.want)
		}
	}
}

func TestDigitsAreCountedAsPrinted(t *testing.T) {
	for _, c := range []struct {
		v                float64
		digits, decimals int
	}{
		{0.000055, 2, 6}, {0.000004, 1, 6}, {0.3, 1, 1}, {497.93, 5, 2}, {100, 1, 0}, {101, 3, 0},
		{0.5446332738315154, 16, 16}, {-2.5, 2, 1}, {0, 1, 0},
	} {
		if digits, decimals := Digits(c.v), Decimals(c.v); digits != c.digits || decimals != c.decimals {
			t.Errorf("%v has %d digits and %d decimals, want %d and %d", c.v, digits, decimals, c.digits, c.decimals)
		}
	}
}

func TestFigureIsWithinATwoThousandth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := math.Exp(rapid.Float64Range(-20, 30).Draw(t, "ln v"))
		got, err := strconv.ParseFloat(Figure(v), 64)
		if err != nil || math.Abs(got-v) > v/1999 {
			t.Errorf("Figure(%v) reads as %v, %v", v, got, err)
		}
		exact, err := strconv.ParseFloat(Exact(v), 64)
		if err != nil || exact != v {
			t.Errorf("Exact(%v) reads as %v, %v", v, exact, err)
		}
	})
}

func TestTimeIsInUTC(t *testing.T) {
	zone := time.FixedZone("x", 2*60*60)
	if got, want := Time(time.Date(2026, 1, 2, 3, 4, 5, 0, zone)), "2026-01-02 01:04:05 UTC"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := Time(time.Time{}), "not recorded"; got != want {
		t.Errorf("zero time: got %q, want %q", got, want)
	}
}

func TestCutCountsLettersNotBytes(t *testing.T) {
	for in, want := range map[string]string{"": "", "µµµµ": "µµµµ", "µµµµµ": "µµµ…"} {
		if got := Cut(in, 4); got != want {
			t.Errorf("Cut(%q, 4) = %q, want %q", in, got, want)
		}
	}
}

// checkAxis holds for every axis: ends around the values, ticks in order and few, values land between the ends.
func checkAxis(t *rapid.T, a Axis, lo, hi float64) {
	const rounding = 1 + 1e-6
	if a.Lo > lo*rounding || a.Hi*rounding < hi {
		t.Errorf("axis from %v to %v does not hold %v to %v", a.Lo, a.Hi, lo, hi)
	}
	if n := len(a.Ticks); n < 2 || n > 8 {
		t.Errorf("%d ticks for %v to %v: %v, want 2 to 8", n, lo, hi, a.Ticks)
	}
	if !slices.IsSorted(a.Ticks) || a.Ticks[0] < a.Lo/rounding || a.Ticks[len(a.Ticks)-1] > a.Hi*rounding {
		t.Errorf("ticks %v of the axis from %v to %v", a.Ticks, a.Lo, a.Hi)
	}
	a.From, a.To = 100, 200
	for _, v := range []float64{lo, hi} {
		if at := a.At(v); !(at >= 99.9 && at <= 200.1) {
			t.Errorf("%v is at %v, want it from 100 to 200", v, at)
		}
	}
}

func TestAxesHoldTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Exp(rapid.Float64Range(-18, 25).Draw(t, "ln lowest"))
		hi := lo * math.Exp(rapid.Float64Range(0, 20).Draw(t, "ln ratio"))
		checkAxis(t, LogAxis(lo, hi), lo, hi)
		checkAxis(t, LinearAxis(hi), 0, hi)
		small := rapid.Int64Range(1, 1<<40).Draw(t, "smallest")
		large := rapid.Int64Range(small, 1<<50).Draw(t, "largest")
		checkAxis(t, SizeAxis(small, large), float64(small), float64(large))
	})
}

func TestTicksAreRoundNumbers(t *testing.T) {
	text := func(a Axis, f func(float64) string) string {
		var out []string
		for _, v := range a.Ticks {
			out = append(out, f(v))
		}
		return strings.Join(out, ", ")
	}
	bytes := func(v float64) string { return Size(int64(v)) }
	for _, c := range []struct{ got, want string }{
		{text(LinearAxis(0.27), Figure), "0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3"},
		{text(LinearAxis(0.3), Figure), "0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3"},
		{text(LinearAxis(98), Figure), "0, 20, 40, 60, 80, 100"},
		{text(LinearAxis(0), Figure), "0, 0.2, 0.4, 0.6, 0.8, 1"},
		{text(LogAxis(385, 3100), Figure), "200, 500, 1000, 2000, 5000"},
		{text(LogAxis(100, 100), Figure), "100, 200"},
		{text(LogAxis(0.000003, 0.011), Figure), "0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1"},
		{text(SizeAxis(2, 8<<20), bytes), "2 B, 32 B, 512 B, 8 KiB, 128 KiB, 2 MiB"},
		{text(SizeAxis(64, 64), bytes), "64 B, 128 B"},
		{text(SizeAxis(1500, 9000), bytes), "1 KiB, 2 KiB, 4 KiB, 8 KiB, 16 KiB"},
	} {
		if c.got != c.want {
			t.Errorf("got ticks %s, want %s", c.got, c.want)
		}
	}
	if a := SizeAxis(1<<62, math.MaxInt64); a.Hi != math.Ldexp(1, 63) {
		t.Errorf("axis to the largest size ends at %v", a.Hi)
	}
}
