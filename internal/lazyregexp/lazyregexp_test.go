package lazyregexp_test

import (
	"sync"
	"testing"

	"github.com/rackless/rackless/internal/lazyregexp"
)

func TestExpressionsMatchAsTheCompiledOnesDo(t *testing.T) {
	re := lazyregexp.New(`^(GPU)([0-9]+)$`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !re.MatchString("GPU7") || re.Match([]byte("NIC7")) {
				t.Error("matches what it should not, or not what it should")
			}
			if m := re.FindStringSubmatch("GPU12"); len(m) != 3 || m[2] != "12" {
				t.Errorf("submatches %q", m)
			}
		})
	}
	wg.Wait()
	first := re.Get()
	if again := re.Get(); again != first {
		t.Error("compiled twice")
	}
}

func TestAWrongExpressionPanicsWhenUsed(t *testing.T) {
	re := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	re.MatchString("x")
}
