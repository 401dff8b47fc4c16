package fabric

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// The NIC of a down port is told, also when it connects later.
func TestAPortThatIsDown(t *testing.T) {
	type told struct {
		port string
		down bool
	}
	var mu sync.Mutex
	var all []told
	fail := errors.New("no such NIC")
	heard := func() []told { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
	s, n := attachAll(t, 3, func(c *Config) {
		c.Down = func(port string, down bool) error {
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, told{port, down}); port == "p2" {
				return fail
			}
			return nil
		}
	})
	teach(t, n)
	s.set("p1", Link{Down: true})
	s.set("p1", Link{Down: true, Seed: 1}) // no change
	to1, from1, last := frame(station(1), station(0), 60, 1), frame(station(0), station(1), 60, 2),
		frame(station(0), station(2), 60, 3)
	n[0].send(to1)
	n[2].expect(to1) // flooded
	n[1].send(from1, from1)
	s.until("the frames were read", "p1", func(p PortCounters) bool { return p.RxNowhere == 2 })
	n[2].send(last)
	n[0].expect(last) // and nothing before it
	if p := s.portCounters("p1"); p.TxFrames != 2 || p.Addresses != 0 || !p.Link.Down || p.Link.Impaired() {
		t.Errorf("a port that is down: %+v", p)
	}
	n[1] = s.attach("p1")
	for len(heard()) < 2 {
		s.portCounters("p1")
	}
	s.set("p1", Link{})
	n[1].send(from1)
	n[0].expect(from1)
	n[0].send(to1)
	n[1].expect(to1)
	if got, want := heard(), []told{{"p1", true}, {"p1", true}, {"p1", false}}; !slices.Equal(got, want) {
		t.Errorf("it told %v, want %v", got, want)
	}
	if err := s.client.SetLink(t.Context(), "p2", Link{Down: true}); err == nil {
		t.Error("an error of who has the NIC is lost")
	}
}
