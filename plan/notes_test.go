package plan

import (
	"slices"
	"strings"
	"testing"
)

func TestNotesOnPlaces(t *testing.T) {
	t.Parallel()
	own := NodePlacement{Cores: []int{2, 3}, Memory: []NodePage{{0, 4}}, GPUs: []int{0}, NICs: []int{2}}
	for _, tt := range []struct {
		name  string
		setup func(*Problem, *NodePlacement)
		want  string // "": none
	}{
		{"nothing to ask about", func(*Problem, *NodePlacement) {}, ""},
		{"the core of CPU 0", func(_ *Problem, n *NodePlacement) { n.Cores = []int{0, 1} },
			"vm00 has the core of CPU 0: "},
		{"cores of two kinds", func(p *Problem, _ *NodePlacement) { p.Cores[3].Efficiency = true },
			"cores of two kinds in one lab node, whose virtual CPUs then differ in speed: vm00 has 1 large and 1 " +
				"small"},
		{"small cores alone", func(p *Problem, _ *NodePlacement) {
			p.Cores[2].Efficiency, p.Cores[3].Efficiency = true, true
		}, ""},
		{"two virtual functions of one port", func(_ *Problem, n *NodePlacement) {
			n.NICs, n.VFs = nil, []VFCount{{2, 2}}
		}, "which share its link and fail together: vm00 has 2 of 0000:02:00.0"},
		{"one virtual function", func(_ *Problem, n *NodePlacement) { n.NICs, n.VFs = nil, []VFCount{{2, 1}} }, ""},
	} {
		p, n := smallProblem(), own
		tt.setup(p, &n)
		notes := assemble(p, smallHost(), n).Notes
		if tt.want == "" && len(notes) > 0 || tt.want != "" && !slices.ContainsFunc(notes, func(s string) bool {
			return strings.Contains(s, tt.want)
		}) {
			t.Errorf("%s: got %q, want %q", tt.name, notes, tt.want)
		}
	}
}
