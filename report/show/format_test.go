package show

import (
	"math"
	"strconv"
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
		{3495.82, 3, 2, "3496"}, // 3500 would be wrong by 4
		{3.463, 3, 3, "3.46"},
		{0.0048, 1, 9, "0.005"},
		{12.3456, 5, 9, "12.346"},
		{0.5, 3, 0, "0"},
		{0.25013, 3, 6, "0.250"}, // the printed third digit is 0
		{0.25, 3, 6, "0.25"},     // the tool printed no third digit
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
