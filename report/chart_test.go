package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/study/record"
)

func titles(s scope) []string {
	var out []string
	for _, c := range s.charts("c") {
		kind := "lines"
		for _, other := range []string{"Bars", "Dots"} {
			if strings.HasPrefix(c.Desc, other) {
				kind = strings.ToLower(other)
			}
		}
		out = append(out, c.Title+": "+kind)
	}
	return out
}

func TestChartsAreLinesOnlyWhereThereIsSomethingToConnect(t *testing.T) {
	iperf := bench.Sample{Test: "iperf3", Client: "vm01", Server: "vm00", Metric: bench.MetricThroughput, Value: 0.4,
		Unit: "Gb/s"}
	for name, c := range map[string]struct {
		sizes []int64
		more  []bench.Sample
		want  []string
	}{
		"three sizes": {[]int64{2, 64, 65536}, nil, []string{"Bandwidth by message size: lines",
			"Message rate by message size: lines",
			"Latency of ib_write_lat by size: lines", "Latency of ib_read_lat by size: lines",
			"Latency of ib_send_lat by size: lines"}},
		"two sizes": {[]int64{32768, 65536}, nil, []string{"Bandwidth: bars", "Message rate: bars",
			"Latency of ib_write_lat: bars", "Latency of ib_read_lat: bars", "Latency of ib_send_lat: bars"}},
		"sizes too far apart for bars": {[]int64{2, 65536}, nil, []string{"Bandwidth: dots", "Message rate: bars",
			"Latency of ib_write_lat: dots", "Latency of ib_read_lat: dots", "Latency of ib_send_lat: dots"}},
		"an average where there is no median": {nil,
			[]bench.Sample{{Test: "ib_write_lat", Metric: bench.MetricLatencyAverage, Bytes: 2, Value: 400,
				Unit: "us"}}, []string{"Latency of ib_write_lat: bars"}},
		"no sizes":                  {nil, []bench.Sample{iperf}, []string{"Throughput: bars"}},
		"nothing that can be drawn": {nil, []bench.Sample{{Test: "t", Metric: "m", Value: 1}}, nil},
		"sizes, and bandwidth without them": {nil, []bench.Sample{bw("a", "b", 1, 1), bw("a", "b", 2, 1),
			bw("a", "b", 4, 1), bw("a", "b", 0, 1)}, []string{"Bandwidth by message size: lines", "Bandwidth: bars"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := synthetic(2, [][2]int{{1, 0}}, c.sizes)
			d.Samples = append(d.Samples, c.more...)
			if diff := cmp.Diff(c.want, titles(collect(d).scopes()[0])); diff != "" {
				t.Errorf("charts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScopesJoinManyPairs(t *testing.T) {
	few := collect(synthetic(3, fullMesh(3)[:3], []int64{2})).scopes()
	if len(few) != 3 || few[0].Title != "vm00 to vm01" || few[0].Pairs != 1 {
		t.Errorf("three pairs: got %d scopes, the first %q of %d pairs; want one for each pair", len(few), few[0].Title,
			few[0].Pairs)
	}
	many := collect(synthetic(3, fullMesh(3), []int64{2})).scopes()
	if len(many) != 1 || many[0].Title != "6 pairs together" || many[0].Pairs != 6 {
		t.Fatalf("six pairs: got %+v, want one scope", many)
	}
	if p := many[0].points[chartPoint{Test: "ib_write_bw", Bytes: 2, Metric: bench.MetricBWAverage}]; p.N != 6 ||
		!(p.Min < p.Median && p.Median < p.Max) {
		t.Errorf("spread over the pairs is %+v", p)
	}
}

func TestAPairWithManyRepeatsCountsOnceAmongPairs(t *testing.T) {
	d := record.Record{}
	for i, server := range []string{"b", "c", "d", "e"} {
		d.Samples = append(d.Samples, bw("a", server, 4, float64(i+1)))
	}
	for range 10 {
		d.Samples = append(d.Samples, bw("a", "e", 4, 4))
	}
	got := collect(d).scopes()[0].points[chartPoint{Test: "ib_write_bw", Bytes: 4, Metric: bench.MetricBWAverage}]
	if want := (spread{4, 1, 2.5, 4, 2}); got.spread != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMarksSayEverythingInWords(t *testing.T) {
	soft := bw("a", "b", 65536, 0.25)
	soft.Emulated = true
	again := soft
	again.Value = 0.21
	third := soft
	third.Value = 0.2
	for name, c := range map[string]struct {
		samples []bench.Sample
		want    string
	}{
		"one figure of hardware": {[]bench.Sample{bw("a", "b", 65536, 98.5)}, "ib_write_bw, 64 KiB: 98.5 Gb/s average"},
		"an emulated one":        {[]bench.Sample{soft}, "ib_write_bw, 64 KiB: 0.25 Gb/s average, emulated"},
		"repeats": {[]bench.Sample{soft, again, third},
			"ib_write_bw, 64 KiB: 0.21 Gb/s average, median of 3 repeats, 0.2 to 0.25, emulated"},
		"no size": {[]bench.Sample{bw("a", "b", 0, 98.5)}, "ib_write_bw: 98.5 Gb/s average"},
	} {
		t.Run(name, func(t *testing.T) {
			s := collect(record.Record{Samples: c.samples}).scopes()[0]
			if got := s.title(s.keys[0]); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

var numbers = regexp.MustCompile(`-?[0-9.]+`)

// A line stays inside its plot for any figures.
func TestLinesStayInThePlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d record.Record
		for i := range rapid.IntRange(3, 12).Draw(t, "sizes") {
			s := bw("a", "b", 1<<(2*i), rapid.Float64Range(1e-7, 1e5).Draw(t, "Gb/s"))
			rate := s
			rate.Metric, rate.Unit = bench.MetricMessageRate, "Mpps"
			d.Samples = append(d.Samples, s, rate)
		}
		for _, c := range collect(d).scopes()[0].charts("c") {
			var plot []float64
			for _, s := range c.Shapes {
				if s.Class == "axis" {
					for _, n := range numbers.FindAllString(s.D, -1) {
						plot = append(plot, parsed(t, n))
					}
				}
			}
			for _, s := range c.Shapes {
				// A line with an h belongs to the legend.
				if len(plot) == 0 || !strings.HasPrefix(s.Class, "line") || strings.Contains(s.D, "h") {
					continue
				}
				for i, n := range numbers.FindAllString(s.D, -1) {
					low, high := plot[1]-210, plot[1]
					if i%2 == 0 {
						low, high = plot[0], chart.Width
					}
					if v := parsed(t, n); v < low-0.1 || v > high+0.1 {
						t.Errorf("%s: coordinate %v is not within %v and %v", c.Title, v, low, high)
					}
				}
			}
		}
	})
}

func parsed(t interface{ Fatal(args ...any) }, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func boxesOf(t *testing.T, c chart.Chart, class string) (out []image.Rectangle) {
	for _, s := range c.Shapes {
		if s.Class != class {
			continue
		}
		var x, y, w, r, h int
		if _, err := fmt.Sscanf(s.D, "M%d %dh%da%d %d 0 0 1 %d %dv%d", &x, &y, &w, &r, &r, &r, &r, &h); err != nil {
			t.Fatalf("%s: %v", s.D, err)
		}
		out = append(out, image.Rect(x-r, y, x+w+r, y+h+2*r))
	}
	return out
}

func TestPictureHoldsEveryNodeOnceWithoutOverlap(t *testing.T) {
	for n := 1; n <= 64; n++ {
		d := synthetic(n, nil, nil)
		for _, p := range picturesOf(d) {
			nodes, all := boxesOf(t, p, "node"), boxesOf(t, p, "switch")
			wires := slices.DeleteFunc(slices.Clone(p.Shapes), func(s chart.Shape) bool { return s.Class != "wire" })
			if len(nodes) != n || len(wires) != n {
				t.Fatalf("%d nodes, picture %s: %d boxes and %d links", n, p.ID, len(nodes), len(wires))
			}
			bar := all[len(all)-1]
			if len(all) > 1 { // the last box touches the spines
				all = all[:len(all)-1]
			}
			several := len(all) > 1
			all = append(all, nodes...)
			for i, a := range all {
				if !a.In(image.Rect(0, 0, p.Width, p.Height)) {
					t.Errorf("%d nodes, picture %s: %v is outside of %d x %d", n, p.ID, a, p.Width, p.Height)
				}
				for _, b := range all[i+1:] {
					if a.Overlaps(b) {
						t.Errorf("%d nodes, picture %s: %v lies over %v", n, p.ID, a, b)
					}
				}
			}
			for _, b := range nodes {
				if several && b.Min.Y < bar.Max.Y && bar.Min.Y < b.Max.Y {
					t.Errorf("%d nodes, picture %s: box %v lies over the bar %v", n, p.ID, b, bar)
				}
			}
		}
	}
	if got := picturesOf(record.Record{}); got != nil {
		t.Errorf("no nodes: got %v, want no picture", got)
	}
}

func TestPictureNamesWhatANodeHas(t *testing.T) {
	for name, c := range map[string]struct {
		node  record.Node
		title string
		lines []string
	}{
		"a whole node": {record.Node{Name: "vm00", Address: "10.0.0.1/24", MAC: "52:54:00:00:00:01", RDMADevice: "rxe0",
			GIDIndex: 1}, "vm00, 10.0.0.1/24, 52:54:00:00:00:01, rxe0, GID 1", []string{"vm00", "10.0.0.1/24",
			"52:54:00:00:00:01", "rxe0, GID 1"}},
		"only a name": {record.Node{Name: "vm00"}, "vm00, no RDMA device",
			[]string{"vm00", "–", "–", "no RDMA device"}},
		"much too long": {record.Node{Name: strings.Repeat("n", 40), Address: strings.Repeat("a", 40)},
			strings.Repeat("n", 40) + ", " + strings.Repeat("a", 40) + ", no RDMA device",
			[]string{strings.Repeat("n", 13) + "…", strings.Repeat("a", 20) + "…", "–", "no RDMA device"}},
		"a wire with an impairment": {record.Node{Name: "a", RDMADevice: "rxe0", Wires: []record.Wire{
			{Text: "eth0: up"}, {Text: "eth1: up, impaired", Impaired: true, Note: "eth1: delay 50us, loss 0.1%"}}},
			"a, rxe0, GID 0, eth1: delay 50us, loss 0.1%",
			[]string{"a", "–", "–", "rxe0, GID 0", "▲ eth1: delay 50us,", "loss 0.1%"}},
		"GID index zero": {record.Node{Name: "a", RDMADevice: "mlx5_0"}, "a, mlx5_0, GID 0",
			[]string{"a", "–", "–", "mlx5_0, GID 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := chart.New("lab", "", chart.Width)
			drawNode(c.node, p, 0, 0, boxHeight)
			var lines []string
			for _, s := range p.Shapes[1:] {
				lines = append(lines, s.Text)
			}
			if diff := cmp.Diff(c.lines, lines); diff != "" || p.Shapes[0].Title != c.title {
				t.Errorf("title %q, want %q; lines (-want +got):\n%s", p.Shapes[0].Title, c.title, diff)
			}
		})
	}
}

// Well-formed XML can be copied into other documents.
func TestPicturesAreWellFormed(t *testing.T) {
	for name, d := range map[string]record.Record{"two-nodes": loadFixture(t, "two-nodes"),
		"failures": loadFixture(t, "failures"), "many": synthetic(30, fullMesh(4), sizes(1, 9, 2)),
		"hostile": hostileData()} {
		pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(render(t, d), -1)
		if len(pictures) < 3 {
			t.Errorf("%s: %d pictures, want more", name, len(pictures))
		}
		for _, p := range pictures {
			dec := xml.NewDecoder(strings.NewReader(p))
			for {
				_, err := dec.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Errorf("%s: %v in %.200s", name, err, p)
					break
				}
			}
		}
	}
}

// Readers compare the lengths of bars.
func TestBarsOfLatencyShareOneScale(t *testing.T) {
	var d record.Record
	for i, test := range []string{"ib_write_lat", "ib_read_lat"} {
		d.Samples = append(d.Samples, bench.Sample{Test: test, Client: "a", Server: "b",
			Metric: bench.MetricLatencyTypical, Bytes: 2, Value: float64(1+i) * 100, Unit: "us"})
	}
	charts := collect(d).scopes()[0].charts("c")
	if len(charts) != 2 {
		t.Fatalf("%d charts, want 2", len(charts))
	}
	var widths []float64
	for _, c := range charts {
		bar := c.Shapes[slices.IndexFunc(c.Shapes, func(s chart.Shape) bool { return s.Value != "" })]
		widths = append(widths, parsed(t, numbers.FindAllString(bar.D, -1)[2]))
	}
	if ratio := widths[1] / widths[0]; math.Abs(ratio-2) > 0.01 {
		t.Errorf("bars of 100 and 200 us are %v wide, want the second twice as wide", widths)
	}
}
