package facts

import (
	"math"
	"os"
	"strings"
	"testing"
)

func TestCPUTimes(t *testing.T) {
	t.Parallel()
	got, err := ParseCPUTime("cpu  1000 200 300 99999 50 10 40 700 600 5\ncpu0 1 2 3\n")
	if want := (CPUTime{15.5, 7}); err != nil || math.Abs(got.Busy-want.Busy) > 1e-9 || got.Steal != want.Steal {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 x 5 6 7 8 9",
		"cpu -1 2 3 4 5 6 7 8"} {
		if _, err := ParseCPUTime(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestTheTimeOfAProcess(t *testing.T) {
	t.Parallel()
	// Brackets and blanks must not shift the fields.
	got, err := ParseProcessTime("17 (a) b (c) S 1 17 17 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5\n")
	if err != nil || math.Abs(got-3) > 1e-9 {
		t.Errorf("got %v, %v; want 3", got, err)
	}
	for _, bad := range []string{"", "17 (x) S 1", "17 x S " + strings.Repeat("1 ", 40)[:30],
		"17 (x) S 1 1 1 0 -1 4 1 0 0 0 a 50 0 0"} {
		if _, err := ParseProcessTime(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestTheTimeOfThisProcess(t *testing.T) {
	t.Parallel()
	read := func() (float64, float64) {
		t.Helper()
		stat, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		all, err := ParseCPUTime(string(stat))
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.ReadFile("/proc/self/stat")
		if err != nil {
			t.Fatal(err)
		}
		own, err := ParseProcessTime(string(self))
		if err != nil {
			t.Fatal(err)
		}
		return all.Busy, own
	}
	all, own := read()
	for sum := 0; ; sum++ {
		now, mine := read()
		if now < all || mine < own {
			t.Fatalf("time went back: %v to %v, %v to %v", all, now, own, mine)
		}
		if mine-own >= 0.1 && now-all >= 0.05 {
			return
		}
	}
}
