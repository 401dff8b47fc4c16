package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Events come in the order of their times, those of one time in the order in which they were added, near and late ones
// alike.
func TestAgenda(t *testing.T) {
	type planned struct {
		at    int64
		added int
	}
	for seed := range uint64(20) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var a agenda
		var open []planned
		added := 0
		add := func(now int64) {
			// Some at once, most soon, some at the edge of the wheel and beyond.
			at := now + []int64{0, draw.Int64N(300), draw.Int64N(5000), wheelSize - 2 + draw.Int64N(4),
				draw.Int64N(5 * wheelSize)}[draw.IntN(5)]
			a.add(at, arrival, int32(added))
			open = append(open, planned{at, added})
			added++
		}
		for range 50 {
			add(0)
		}
		for len(open) > 0 {
			first := slices.MinFunc(open, func(x, y planned) int {
				if x.at != y.at {
					return int(x.at - y.at)
				}
				return x.added - y.added
			})
			if _, ok := a.next(first.at - 1); ok {
				t.Fatalf("seed %d: an event before %d", seed, first.at)
			}
			e, ok := a.next(first.at)
			if !ok || e.at != first.at || int(e.of()) != first.added || e.kind() != arrival {
				t.Fatalf("seed %d: have %d at %d, want %d at %d", seed, e.of(), e.at, first.added, first.at)
			}
			open = slices.DeleteFunc(open, func(p planned) bool { return p.added == first.added })
			for range draw.IntN(3) {
				if added < 3000 {
					add(e.at)
				}
			}
		}
		if _, ok := a.next(1 << 62); ok {
			t.Fatalf("seed %d: an event of an empty agenda", seed)
		}
	}
}
