package plantest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSmallIsTheSameForTheSameSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		if d := cmp.Diff(Small(seed), Small(seed)); d != "" {
			t.Errorf("seed %d (-first +second):\n%s", seed, d)
		}
	}
}
