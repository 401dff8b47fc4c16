package bench

import (
	"testing"
)

func TestPortsAreUsedInTurn(t *testing.T) {
	r := &Runner{}
	seen := make(map[int]bool)
	for range Ports {
		p, _ := r.nextPort()
		if p < firstPort || p > 32767 || seen[p] {
			t.Fatalf("port %d is out of range or used twice", p)
		}
		seen[p] = true
	}
	if p, run := r.nextPort(); p != firstPort || run != Ports+1 {
		t.Errorf("port %d of run %d, want the first one again", p, run)
	}
}
