package device

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/topology"
)

// killed is what a test's process dies of.
type killed struct{ at string }

// dieAt makes a system die before its n-th single change, from 1. Afterwards at says what that
// would have been; it is empty where there was none.
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

// survive runs something that may be killed.
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

// A faultTest dies at every point of making steps and of rolling them back. After each the process
// is started again, and either rolls back, or makes the steps again first. Then the machine has to
// be as it was.
type faultTest struct {
	t     *testing.T
	steps []change.Step
	bench func() *bench
	same  func(*bench)
	// both goes on in both ways after each death; otherwise the ways take turns, for machines that are slow.
	both bool

	making, undoing int // how many points there were
}

func (f *faultTest) run() {
	f.t.Helper()
	for n, more := 1, true; more; n++ {
		for _, again := range f.ways(n) {
			b := f.bench()
			more = f.died(n, b, func() error { return b.make(f.steps) })
			f.goOn(b, again)
		}
		if more {
			f.making++
		}
	}
	for n, more := 1, true; more; n++ {
		for _, again := range f.ways(n) {
			b := f.bench()
			b.must(b.make(f.steps))
			more = f.died(n, b, b.rollback)
			f.goOn(b, again)
		}
		if more {
			f.undoing++
		}
	}
}

// ways says how to go on after the n-th point: whether the steps are made again before they are rolled back.
func (f *faultTest) ways(n int) []bool {
	if f.both {
		return []bool{false, true}
	}
	return []bool{n%2 == 0}
}

// died runs something that dies at its n-th point, and reports whether there was such a point.
func (f *faultTest) died(n int, b *bench, what func() error) bool {
	f.t.Helper()
	died := dieAt(b.s, n)
	err := survive(f.t, what)
	b.s.Fault = nil
	if died.at == "" && err != nil {
		f.t.Fatalf("point %d: %v", n, err)
	}
	return died.at != ""
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
	t.Logf("died at %d points of preparing and at %d of rolling back", f.making, f.undoing)
	if f.making < 50 || f.undoing < 40 {
		t.Errorf("died at %d and %d points: there are more", f.making, f.undoing)
	}
}

// insideFaults dies at every point with a real kernel. The steps are taken in parts, which do not
// depend on each other: what is before a point is made again and again otherwise.
func insideFaults(t *testing.T) {
	// Guards have tests of their own: here the machine is looked at once.
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
	for _, c := range []struct {
		name  string
		steps []change.Step
	}{
		{"modules", part(kindModule)},
		{"functions and boot files", part(kindDriver, kindDriverctl, "file")},
		{"virtual functions", part(kindLink, kindSRIOV)},
	} {
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
			}, same: func(b *bench) { b.same(before) }}
			f.run()
			t.Logf("died at %d points of preparing and at %d of rolling back", f.making, f.undoing)
		})
	}
}
