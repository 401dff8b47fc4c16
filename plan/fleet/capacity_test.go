package fleet

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAHostTakesAsManyCopiesAsItsCapacitySays places copies until no host has room.
func TestAHostTakesAsManyCopiesAsItsCapacitySays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		asks, held string // held is on the first host
		first      int
		second     Room
	}{
		{"2 2 1 0", "2 2 1 0", 1, Room{Fits: 2, Limits: []string{"gpus"}}},
		{"2 2 0 3", "", 2, Room{Fits: 2, Limits: []string{"vfs"}}},
		{"2 12 0 1", "2 12 0 1", 1, Room{Fits: 2, Limits: []string{"memory"}}},
		{"6 2 0 1", "8 2 1 1", 0, Room{Fits: 2, Limits: []string{"cores"}}},
		{"2 2 3 0", "", 0, Room{Limits: []string{}}}, // what no host has
	} {
		t.Run(tt.asks, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, BestFit, 2)
			if tt.held != "" {
				place(t, f, request(t, "held", tt.held))
			}
			rooms, err := f.Capacity(t.Context(), request(t, "more", tt.asks))
			if err != nil {
				t.Fatal(err)
			}
			if rooms[0].Fits != tt.first {
				t.Errorf("the first host takes %+v, want %d", rooms[0], tt.first)
			}
			if rooms[1].Why == "" {
				t.Error("no reason")
			}
			tt.second.Host, tt.second.Why = "h1", rooms[1].Why
			if d := cmp.Diff(tt.second, rooms[1]); d != "" {
				t.Errorf("the second host (-want +got)\n%s", d)
			}
			placed := map[string]int{}
			for i := range rooms[0].Fits + rooms[1].Fits {
				placed[place(t, f, request(t, fmt.Sprint("copy", i), tt.asks)).Host]++
			}
			if placed["h0"] != rooms[0].Fits || placed["h1"] != rooms[1].Fits {
				t.Errorf("placed %v, capacity %+v", placed, rooms)
			}
			if _, err := f.Place(t.Context(), request(t, "last", tt.asks)); !errors.Is(err, ErrFull) {
				t.Errorf("one more than the capacity: %v", err)
			}
		})
	}
}
