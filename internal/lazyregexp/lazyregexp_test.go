package lazyregexp_test

import (
	"testing"

	"github.com/rackless/rackless/internal/lazyregexp"
)

func TestNew(t *testing.T) {
	re := lazyregexp.New(`^(GPU)([0-9]+)$`)
	if m := re().FindStringSubmatch("GPU12"); len(m) != 3 || m[2] != "12" {
		t.Errorf("submatches %q", m)
	}
	if first := re(); first != re() {
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
	re()
}
