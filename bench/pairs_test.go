package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPairsFollowTheirPlan(t *testing.T) {
	tests := []struct {
		name  string
		nodes []string
		plan  string
		want  []Pair
	}{
		{"all of three are three pairs", []string{"a", "b", "c"}, PairsAll, []Pair{{"b", "a"}, {"c", "a"}, {"c", "b"}}},
		{"all of two are one pair", []string{"a", "b"}, PairsAll, []Pair{{"b", "a"}}},
		{"first pairs all others with the first", []string{"a", "b", "c"}, PairsFirst, []Pair{{"b", "a"}, {"c", "a"}}},
		{"a ring closes", []string{"a", "b", "c"}, PairsRing, []Pair{{"a", "b"}, {"b", "c"}, {"c", "a"}}},
		{"all pairs of few nodes", []string{"a", "b", "c"}, PairsAuto, []Pair{{"b", "a"}, {"c", "a"}, {"c", "b"}}},
		{"a ring of many", []string{"a", "b", "c", "d", "e", "f"}, PairsAuto, []Pair{{"a", "b"}, {"b", "c"}, {"c", "d"},
			{"d", "e"}, {"e", "f"}, {"f", "a"}}},
		{"pairs by name", []string{"a", "b", "c"}, "c:a,a:b", []Pair{{"c", "a"}, {"a", "b"}}},
		{"a ring of two is one pair", []string{"a", "b"}, PairsRing, []Pair{{"a", "b"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Pairs(tt.nodes, tt.plan)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllPairsOfManyNodesAreEachPairOnce(t *testing.T) {
	var nodes []string
	for c := 'A'; c < 'A'+64; c++ {
		nodes = append(nodes, string(c))
	}
	got, err := Pairs(nodes, PairsAll)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[Pair]bool)
	for _, p := range got {
		if p.Client == p.Server || seen[p] || seen[Pair{p.Server, p.Client}] {
			t.Fatalf("pair %v twice or with itself", p)
		}
		seen[p] = true
	}
	if len(got) != 64*63/2 {
		t.Errorf("%d pairs, want 2016", len(got))
	}
}

func TestPairsRefusesWhatIsNoLab(t *testing.T) {
	tests := []struct {
		name  string
		nodes []string
		plan  string
		want  string
	}{
		{"one node", []string{"a"}, PairsAll, "make pairs: 1 node; at least 2 are needed"},
		{"a node twice", []string{"a", "b", "a"}, PairsAll, `make pairs: node name "a" is empty or given twice`},
		{"a node without a name", []string{"a", ""}, PairsAll, `make pairs: node name "" is empty or given twice`},
		{"another plan", []string{"a", "b"}, "star", `make pairs: "star" are no pairs of nodes: want auto, all, ` +
			`first, ring, or CLIENT:SERVER with commas between`},
		{"a pair of a stranger", []string{"a", "b"}, "a:b,b:c", `make pairs: "b:c" is no pair of a, b`},
		{"a node with itself", []string{"a", "b"}, "a:a", `make pairs: "a:a" is no pair of a, b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := Pairs(tt.nodes, tt.plan); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, error %v, want %s", got, err, tt.want)
			}
		})
	}
}
