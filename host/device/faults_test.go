package device

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/machine/topology"
)

type killed struct{ at string }

// dieAt dies before the n-th single change, from 1. Afterwards, at names that change, or is empty.
func dieAt(s *change.System, n int) (died *killed) {
	died = &killed{}
	count := 0
	s.Fault = func(what string) {
		if count++; count == n {
			died.at = what
			panic(died)
		}
	}
	return died
}

func survive(t testing.TB, what func() error) (err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*killed); !ok {
				panic(r)
			}
		}
	}()
	return what()
}

var everyPoint = flag.Bool("every-point", false, "with -e2e, die at every point on a real kernel, too: takes minutes")

var partsOfFaults = flag.Int("parts", 1, "die in this many of the three parts of the steps on a real kernel")

// faultTest dies at points of making steps and of rolling them back. Then the machine has to be as it was.
type faultTest struct {
	t     *testing.T
	steps []change.Step
	bench func() *bench
	same  func(*bench)
	// both continues in both ways after each death. Otherwise the ways alternate, to save time.
	both bool
	// died, if set, holds the kinds of points already died at.
	died map[string]bool
	rng  *rand.Rand

	making, undoing int
	deaths          int
}

func (f *faultTest) run() {
	f.t.Helper()
	b := f.bench()
	making := points(b.s, false, func() { b.must(b.make(f.steps)) })
	undoing := points(b.s, true, func() { b.must(b.rollback()) })
	f.same(b)
	f.making, f.undoing = len(making), len(undoing)
	for i, p := range f.chosen(append(making, undoing...)) {
		for _, again := range f.ways(i) {
			b := f.bench()
			if p.undoing {
				b.must(b.make(f.steps))
				f.die(p, b, b.rollback)
			} else {
				f.die(p, b, func() error { return b.make(f.steps) })
			}
			f.goOn(b, again)
		}
	}
}

type point struct {
	undoing bool
	n       int // from 1
	what    string
}

func points(s *change.System, undoing bool, do func()) (all []point) {
	s.Fault = func(what string) { all = append(all, point{undoing, len(all) + 1, what}) }
	do()
	s.Fault = nil
	return all
}

func kindOfPoint(point string) string {
	words := strings.Fields(point)
	switch words[0] {
	case "write":
		return "write " + path.Base(point)
	case "journal", "run", "set":
		return words[0] + " " + words[1]
	}
	return words[0]
}

func (f *faultTest) chosen(all []point) (chosen []point) {
	if f.died == nil {
		return all
	}
	kinds := map[string]int{}
	for _, i := range f.rng.Perm(len(all)) {
		if kind := kindOfPoint(all[i].what); !f.died[kind] {
			kinds[kind] = i
		}
	}
	for kind := range kinds {
		f.died[kind] = true
	}
	for _, i := range slices.Sorted(maps.Values(kinds)) {
		chosen = append(chosen, all[i])
	}
	return chosen
}

func (f *faultTest) ways(n int) []bool {
	if f.both {
		return []bool{false, true}
	}
	return []bool{n%2 == 0}
}

func (f *faultTest) die(p point, b *bench, what func() error) {
	f.t.Helper()
	died := dieAt(b.s, p.n)
	err := survive(f.t, what)
	b.s.Fault = nil
	if died.at == "" || kindOfPoint(died.at) != kindOfPoint(p.what) { // a network device may have another name
		f.t.Fatalf("point %d was %q, and is %q: %v", p.n, p.what, died.at, err)
	}
	f.deaths++
	if f.died != nil {
		f.t.Logf("died before: %s", p.what)
	}
}

func (f *faultTest) goOn(b *bench, again bool) {
	f.t.Helper()
	if again {
		b.must(b.make(f.steps))
		b.inPlace(f.steps)
	}
	b.must(b.rollback())
	f.same(b)
}

func TestCutOffAnywhereEverythingComesBack(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	before := m.tree()
	f := faultTest{t: t, steps: simSteps(t, m, Options{}), bench: func() *bench {
		return m.bench(t)
	}, both: !testing.Short(), same: func(*bench) {
		if diff := cmp.Diff(before, m.tree()); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	}}
	f.run()
	t.Logf("died %d times at %d points of preparing and %d of rolling back", f.deaths, f.making, f.undoing)
	if f.making < 50 || f.undoing < 40 {
		t.Errorf("died at %d and %d points: there are more", f.making, f.undoing)
	}
}

// insideFaults takes the steps in parts, because everything before a point is made again and again otherwise.
func insideFaults(t *testing.T) {
	// Guards have their own tests.
	h, err := live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps := insideSteps(t, Options{Inspect: func(context.Context) (*topology.Host, error) { return h, nil }})
	part := func(kinds ...string) []change.Step {
		return slices.DeleteFunc(slices.Clone(steps), func(s change.Step) bool {
			return !slices.Contains(kinds, s.Op.Kind())
		})
	}
	type partOfSteps struct {
		name  string
		steps []change.Step
	}
	parts := []partOfSteps{
		{"modules", part(kindModule)},
		{"functions and boot files", part(kindDriver, kindDriverctl, "file")},
		{"virtual functions", part(kindLink, kindSRIOV)},
	}
	rng := storey.Rand(t)
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	parts = parts[:*partsOfFaults]
	var died map[string]bool
	if !*everyPoint {
		died = map[string]bool{}
	}
	for _, c := range parts {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "modules" {
				run(t, "modprobe", "vfio_iommu_type1")
				run(t, "modprobe", "vfio-pci")
				defer run(t, "rmmod", "vfio_pci", "vfio_pci_core", "vfio_virqfd", "irqbypass", "vfio_iommu_type1",
					"vfio")
			}
			before := snapshot(t)
			f := faultTest{t: t, steps: c.steps, bench: func() *bench {
				return newInside(t)
			}, same: func(b *bench) { b.same(before) }, died: died, rng: rng}
			f.run()
			t.Logf("died %d times at %d points of preparing and %d of rolling back", f.deaths, f.making, f.undoing)
		})
	}
}
