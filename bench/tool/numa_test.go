package tool

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func TestMemoryIsMeasuredByNUMANode(t *testing.T) {
	for _, tt := range []struct {
		engine string
		nodes  []int
		want   string
	}{
		{"lat_mem_rd", []int{0, 1}, "lat_mem_rd/numa0 lat_mem_rd/numa1 lat_mem_rd/numa0-1"},
		{"stress_stream", []int{3, 1, 2}, "stress_stream/numa3 stress_stream/numa1 stress_stream/numa2 " +
			"stress_stream/numa1-3 stress_stream/numa1-2"},
		{"stress_stream", []int{0}, "stress_stream"},
		{"stress_stream", nil, "stress_stream"},
		{"stress_stream/numa1", []int{0, 1}, "stress_stream/numa1"},
		{"sysbench_cpu", []int{0, 1}, "sysbench_cpu"},
	} {
		var got []string
		for _, e := range ByNUMANode(mustEngine(t, tt.engine), tt.nodes) {
			got = append(got, e.Name)
			if again, err := EngineByName(e.Name); err != nil || !reflect.DeepEqual(again, e) {
				t.Errorf("%s by its name is %+v, %v", e.Name, again, err)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s on %v: %s, want %s", tt.engine, tt.nodes, got, tt.want)
		}
	}
}

func TestWhatIsNoNUMANodeIsRefused(t *testing.T) {
	for _, name := range []string{"stress_stream/", "stress_stream/numa", "stress_stream/numa0-",
		"stress_stream/numa-1", "stress_stream/numa00000", "lat_mem_rd/numa0/numa1", "lat_mem_rd/node0",
		"sysbench_cpu/numa0"} {
		if e, err := EngineByName(name); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
	placed := n2
	placed.Place = bench.Place{CPUs: "1"}
	for _, tt := range []struct {
		ep   bench.Endpoint
		opts bench.Options
	}{{placed, bench.Options{}}, {n2, bench.Options{CPU: "0"}}, {n2, bench.Options{NUMA: "0"}}} {
		_, err := (&bench.Runner{Exec: serverless{scripted{}}}).RunLocal(t.Context(), mustEngine(t,
			"stress_stream/numa0"), tt.ep, tt.opts)
		if err == nil || !strings.Contains(err.Error(), "its name says where it runs") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if slices.ContainsFunc(Catalogue(), func(e bench.Engine) bool { return strings.Contains(e.Name, "/numa") }) {
		t.Error("the catalogue has engines for NUMA nodes that nobody has seen")
	}
}
