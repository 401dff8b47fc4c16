package rig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/plan/variant"
	"github.com/rackless/rackless/study"
)

// The file of a study takes just the levels that a plan can be arranged in.
func TestLevelsOfPlacementAreThoseOfVariants(t *testing.T) {
	t.Parallel()
	levels := variant.Levels()
	quoted := make([]string, len(levels))
	for i, l := range levels {
		quoted[i] = fmt.Sprintf("%q", l)
	}
	text := "name: a\nlab: lab.yaml\nfactors: {placement: [" + strings.Join(quoted, ", ") + "]}\nmeasure: [{test: ping}]\n"
	spec, err := study.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.Factors[0].Levels; !slices.Equal(got, levels) {
		t.Errorf("levels are %v, not %v", got, levels)
	}
	text = strings.Replace(text, `"default"`, `"somewhere"`, 1)
	if _, err := study.Parse("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), strings.Join(levels, ", ")) {
		t.Errorf("a level that is none: %v", err)
	}
}
