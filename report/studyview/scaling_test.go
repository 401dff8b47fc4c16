package studyview

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/report/chart"
)

func init() {
	metricsOf["mpi_alltoall"] = [][2]string{{"collective_time", "us"}}
	metricsOf["lammps"] = [][2]string{{"step_rate", "steps/s"}}
}

const scalingStudy = `name: scaling
lab: cluster.yaml
factors:
  mpi.nodes: [2, 16, 4, 8]
  mpi.bare: ["false", "true"]
measure:
  - {test: mpi_alltoall, bytes: 8}
  - {test: mpi_alltoall, bytes: 65536}
  - {test: lammps}
blocks: 3
`

func scalingModel(cell map[string]string, test, _ string) (value, noise float64) {
	nodes, _ := strconv.ParseFloat(cell["mpi.nodes"], 64)
	if test == "lammps" {
		return 10 * nodes, 0.01
	}
	return 100 * math.Pow(nodes, 1.5), 0.05
}

func TestFiguresAreDrawnOverTheNumberOfNodes(t *testing.T) {
	d := document(t, simulate(t, scalingStudy, scalingModel))
	src, err := newSource(d, strings.Clone, strings.Clone)
	if err != nil {
		t.Fatal(err)
	}
	count := func(c chart.Chart, class string) (n int) {
		for _, s := range c.Shapes {
			if strings.HasPrefix(s.Class, class) {
				n++
			}
		}
		return n
	}
	charts := src.scaling()
	if len(charts) != 2 {
		t.Fatalf("%d charts", len(charts))
	}
	for i, want := range []struct {
		title string
		lines int
	}{{"mpi_alltoall: collective time", 4}, {"lammps: step rate", 2}} {
		c := charts[i]
		// In the legend and in the plot. Six runs are enough for an interval.
		if c.Title != want.title || count(c, "line") != 2*want.lines || count(c, "pt") != 4*want.lines ||
			count(c, "whisker") != 4*want.lines {
			t.Errorf("%s: %d lines, %d marks, %d whiskers", c.Title, count(c, "line"), count(c, "pt"),
				count(c, "whisker"))
		}
		if !strings.Contains(c.Desc, "by the number of nodes") {
			t.Error(c.Desc)
		}
	}
	var titles []string
	for _, s := range charts[1].Shapes {
		if strings.HasPrefix(s.Class, "pt") {
			titles = append(titles, s.Title)
		}
	}
	// Points are ordered by number of nodes, not as in the file.
	if all := strings.Join(titles, "\n"); !strings.Contains(titles[1], "4 nodes: ") ||
		!strings.Contains(titles[3], "16 nodes: ") || !strings.Contains(all, "95% interval of the median of 6 runs") {
		t.Error(all)
	}
	if page := pageOf(t, d); !strings.Contains(page, "By the number of nodes") {
		t.Error("the page has no such section")
	}
	if page := pageOf(t, pinDocument(t)); strings.Contains(page, "By the number of nodes") {
		t.Error("a study without nodes as a factor has such a section")
	}
}
