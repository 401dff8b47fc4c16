package hostview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func shown(g *grid, width int) string {
	heads, rows := g.fitted(width, 2)
	var lines []string
	var names []string
	for _, h := range heads {
		names = append(names, h.Name)
	}
	lines = append(lines, strings.Join(names, "|"))
	for _, r := range rows {
		lines = append(lines, strings.Join(r, "|"))
	}
	return strings.Join(lines, "\n")
}

func TestAGridGivesWayInItsOrder(t *testing.T) {
	cpus := set("0-3,8-11,16-19")
	g := func() *grid {
		g := &grid{
			Heads: []head{{Name: "id"}, {Name: "model", Least: 6}, {Name: "cpus", Least: 7}, {Name: "driver", Drop: 1},
				{Name: "speed", Drop: 2}},
			Rows: [][]cell{cells("0", "a long model", "", "mlx5_core", "25 Gb/s"), cells("1", "short", "", "igb",
				"1 Gb/s")},
		}
		g.Rows[0][2].cpus = &cpus
		return g
	}
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"all of it fits", 80, "id|model|cpus|driver|speed\n0|a long model|0-3,8-11,16-19|mlx5_core|25 " +
			"Gb/s\n1|short||igb|1 Gb/s"},
		{"the widest is shortened first", 50, "id|model|cpus|driver|speed\n0|a long model|0-3,… (12)|mlx5_core|25 " +
			"Gb/s\n1|short||igb|1 Gb/s"},
		{"then all that may be", 39, "id|model|cpus|driver|speed\n0|a lon…|12 CPUs|mlx5_core|25 " +
			"Gb/s\n1|short||igb|1 Gb/s"},
		{"then columns go", 30, "id|model|cpus|driver\n0|a lon…|12 CPUs|mlx5_core\n1|short||igb"},
		{"one after the other", 20, "id|model|cpus\n0|a lon…|12 CPUs\n1|short|"},
		{"until no more can", 5, "id|model|cpus\n0|a lon…|12 CPUs\n1|short|"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, shown(g(), tt.width)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAColumnOfUnknownsIsLeftOut(t *testing.T) {
	g := &grid{
		Heads: []head{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e", Keep: true}, {Name: "f"}},
		Rows:  [][]cell{cells("?", "?", "?", "?", "?", "-"), cells("?", "?", "?", "", "?", "x")},
	}
	g.tell()
	if got := shown(g, 80); got != "a|b|c|e|f\n?|?|?|?|-\n?|?|?|?|x" {
		t.Errorf("got\n%s", got)
	}
}

func TestRowsBeyondALimitAreCounted(t *testing.T) {
	g := &grid{Rows: [][]cell{cells("a"), cells("b"), cells("c")}}
	if g.limit(3); g.More != 0 || len(g.Rows) != 3 {
		t.Errorf("%+v", g)
	}
	if g.limit(1); g.More != 2 || len(g.Rows) != 1 {
		t.Errorf("%+v", g)
	}
}

// East Asian characters take two columns each.
func TestWideLettersAreCountedAsWide(t *testing.T) {
	g := &grid{Heads: []head{{Name: "a", Least: 4}, {Name: "b"}}, Rows: [][]cell{cells("界界界界界", "x")}}
	if got := shown(g, 9); got != "a|b\n界界…|x" && got != "a|b\n界界界|x" {
		t.Errorf("got\n%s", got)
	}
}

func TestCellsAreCleaned(t *testing.T) {
	h := &topology.Host{Bonds: []topology.Bond{{Name: "a\x1b[2Jb\nc"}}}
	if got := newView(NewDocument(h, nil)).bondGrid().Rows[0][0].String(); got != `a\x1b[2Jb c` {
		t.Errorf("got %q", got)
	}
}
