package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
)

var workloads = []lab.Workload{
	lab.WorkloadRDMALatency, lab.WorkloadRDMABandwidth, lab.WorkloadGPUCompute, lab.WorkloadGPUCollective,
	lab.WorkloadCPUBandwidth, lab.WorkloadMixed,
}

func weightNames(t *testing.T) (names []string, values map[string][]int64) {
	t.Helper()
	values = map[string][]int64{}
	for _, w := range workloads {
		data, err := json.Marshal(DefaultWeights(w))
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var name string
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch v := token.(type) {
			case string:
				name = v
				if w == workloads[0] {
					names = append(names, name)
				}
			case json.Number:
				n, err := v.Int64()
				if err != nil {
					t.Fatal(err)
				}
				values[name] = append(values[name], n)
			}
		}
	}
	return names, values
}

func TestTheWeightsInTheDocsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../docs/planner.md", "-run Weights -update -->\n", "<!-- /weights -->"
	names, values := weightNames(t)
	var b strings.Builder
	b.WriteString("| weight |")
	for _, w := range workloads {
		fmt.Fprintf(&b, " %s |", w)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(workloads)) + "\n")
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` |", name)
		for _, v := range values[name] {
			fmt.Fprintf(&b, " %d |", v)
		}
		b.WriteByte('\n')
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the weights", path)
	}
	want := head + begin + b.String() + end + tail
	golden.Check(t, path, want)
}

func TestNoWeightIsNegative(t *testing.T) {
	t.Parallel()
	names, values := weightNames(t)
	for _, name := range names {
		for i, v := range values[name] {
			if v < 0 {
				t.Errorf("%s for %s is %d", name, workloads[i], v)
			}
		}
	}
}

func TestWeightsThatAreMeansAreDividedByWhatTheyAreOver(t *testing.T) {
	t.Parallel()
	w := DefaultWeights(lab.WorkloadRDMALatency)
	r := Request{Cores: 14, Pages: 32, GPUs: []Want{{Count: 1}}, NICs: []Want{{Count: 1}}}
	got := w.Of(&r)
	want := NodeWeights{
		DeviceNearest:   480,
		DeviceDistance:  8,   // 216 / (14 cores x 2 devices) = 7.7
		DeviceShare:     15,  // 432 / (14 x 2) = 15.4
		MemoryDistance:  5,   // 150 / 32 = 4.7
		MemoryBalance:   16,  // 500 / 32 = 15.6
		EfficiencyCores: 357, // 5000 / 14
		NUMASpan:        300,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.PerCore() != 8 || got.Nearest() != 480 {
		t.Errorf("a unit of distance costs %d for a core and %d for the nearest, want 8 and 480", got.PerCore(),
			got.Nearest())
	}
	r.GuestNUMA = "off"
	want.Hidden, want.NUMASpan = true, w.NUMASpanHidden
	want.DeviceNearest = 34 // 480 / 14
	want.DeviceShare = 84   // (432 + 2 x 480 x 2 devices) / (14 x 2)
	got = w.Of(&r)
	if diff := cmp.Diff(want, got); diff != "" || got.PerCore() != 42 || got.Nearest() != 0 {
		t.Errorf("a guest that sees no NUMA nodes: %d for a core, %d for the nearest (-want +got)\n%s", got.PerCore(),
			got.Nearest(), diff)
	}
	if got := w.Of(&Request{Cores: 1, Pages: 1 << 20}).MemoryDistance; got != 1 {
		t.Errorf("a page of very many weighs %d, want 1: it must not weigh nothing", got)
	}
	if got := w.Of(&Request{Cores: 1}).DeviceDistance; got != 0 {
		t.Errorf("the distance to no device weighs %d", got)
	}
}

func TestSharesAreWholePagesAndAddUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		pages int64
		cores map[int]int64
		want  map[int]int64
	}{
		{"an even split", 32, map[int]int64{0: 7, 2: 7}, map[int]int64{0: 16, 2: 16}},
		{"what is left over goes to the largest remainder", 10, map[int]int64{0: 2, 1: 4}, map[int]int64{0: 3, 1: 7}},
		{"of equal remainders to the lowest node", 3, map[int]int64{4: 1, 9: 1}, map[int]int64{4: 2, 9: 1}},
		{"one node has all", 5, map[int]int64{3: 8}, map[int]int64{3: 5}},
		{"no pages", 0, map[int]int64{0: 1, 1: 1}, map[int]int64{0: 0, 1: 0}},
		{"more nodes than pages", 1, map[int]int64{0: 1, 1: 1, 2: 2}, map[int]int64{0: 0, 1: 0, 2: 1}},
		{"a terabyte in small pages does not overflow", 1 << 50, map[int]int64{0: 1 << 12, 1: 1 << 12},
			map[int]int64{0: 1 << 49, 1: 1 << 49}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Shares(tt.pages, tt.cores)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
