package group_test

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/internal/group"
)

func TestKeysAndValuesKeepTheOrderInWhichTheyCame(t *testing.T) {
	var g group.By[string, int]
	for i, key := range []string{"b", "a", "", "b", "c", "a"} {
		g.Add(key, i)
	}
	if want := []string{"b", "a", "", "c"}; !slices.Equal(g.Keys, want) {
		t.Errorf("keys %q, want %q", g.Keys, want)
	}
	for key, want := range map[string][]int{"b": {0, 3}, "a": {1, 5}, "": {2}, "c": {4}, "never": nil} {
		if got := g.Of(key); !slices.Equal(got, want) {
			t.Errorf("%q has %v, want %v", key, got, want)
		}
	}
}
