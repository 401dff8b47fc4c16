package topology

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGeneration(t *testing.T) {
	t.Parallel()
	for gts, want := range map[float64]int{2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6, 0: 0, 10: 0, -8: 0, 128: 0} {
		if got := Generation(gts); got != want {
			t.Errorf("Generation(%v) = %d, want %d", gts, got, want)
		}
	}
}

func TestLinkGBps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		gts   float64
		width int
		want  float64
	}{
		{"Gen1 x1", 2.5, 1, 0.25},
		{"Gen2 x4", 5, 4, 2},
		{"Gen3 x8", 8, 8, 7.877},
		{"Gen3 x16", 8, 16, 15.754},
		{"Gen4 x16", 16, 16, 31.508},
		{"Gen5 x16", 32, 16, 63.015},
		{"Gen6 x16", 64, 16, 126.031},
		{"no speed", 0, 16, 0},
		{"a speed that is none", 7, 16, 0},
		{"no lanes", 8, 0, 0},
		{"fewer than no lanes", 8, -1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := LinkGBps(tt.gts, tt.width); math.Abs(got-tt.want) > 0.001 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func figures(low, high, fast, slow float64, basis string) Expectation {
	return Expectation{GBpsMin: low, GBpsMax: high, UsecMin: fast, UsecMax: slow, Basis: basis}
}

func TestExpect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		class PathClass
		gts   float64
		width int
		want  Expectation
		ok    bool
	}{
		{"a switch, Gen5", PathPIX, 32, 16, figures(48, 58, 1, 2, "Gen5 x16"), true},
		{"a switch, Gen4", PathPIX, 16, 16, figures(26, 30, 1, 2, "Gen4 x16"), true},
		{"across sockets, Gen4", PathSYS, 16, 16, figures(12, 22, 8, 15, "Gen4 x16"), true},
		{"half of the lanes are half of it", PathPIX, 16, 8, figures(13, 15, 1, 2, "scaled from Gen4 x16"), true},
		{"Gen3 is half of Gen4, rounded down", PathPHB, 8, 16, figures(11, 13.5, 2, 3, "scaled from Gen4 x16"),
			true},
		{"the old line code costs a fifth", PathPIX, 5, 16, figures(6.6, 7.6, 1, 2, "scaled from Gen4 x16"), true},
		{"NVLink has no figures here", PathNVLink, 16, 16, Expectation{}, false},
		{"a path that is not known", PathUnknown, 16, 16, Expectation{}, false},
		{"a device to itself", PathSelf, 16, 16, Expectation{}, false},
		{"a link that is not known", PathPIX, 0, 0, Expectation{}, false},
		{"a link that is down", PathPIX, 16, 0, Expectation{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := Expect(tt.class, tt.gts, tt.width)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
				t.Errorf("%t, want %t (-want +got):\n%s", ok, tt.ok, diff)
			}
		})
	}
}

func TestExpectationsGetWorseWithDistance(t *testing.T) {
	t.Parallel()
	classes := []PathClass{PathPIX, PathPXB, PathPHB, PathNODE, PathSYS}
	for i, far := range classes[1:] {
		for _, link := range []struct {
			gts   float64
			width int
		}{{8, 8}, {8, 16}, {16, 16}, {32, 16}, {64, 16}} {
			a, _ := Expect(classes[i], link.gts, link.width)
			b, _ := Expect(far, link.gts, link.width)
			if b.GBpsMax >= a.GBpsMax || b.UsecMax <= a.UsecMax || b.GBpsMin > b.GBpsMax || b.UsecMin > b.UsecMax ||
				b.GBpsMax > LinkGBps(link.gts, link.width) {
				t.Errorf("%v after %v over %v x%d: %+v after %+v", far, classes[i], link.gts, link.width, b, a)
			}
		}
	}
}
