package importer_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/importer"
)

func sound(t *testing.T, all []*importer.Study, err error) {
	t.Helper()
	if err != nil {
		if all != nil || len(err.Error()) > 5000 {
			t.Fatalf("error %v, and %d studies", err, len(all))
		}
		return
	}
	if len(all) == 0 {
		t.Fatal("no study and no error")
	}
	for _, s := range all {
		if err := study.CheckName(s.Spec.Name); err != nil {
			t.Fatal(err)
		}
		type place struct{ block, place int }
		seen := map[place]bool{}
		for _, r := range s.Runs {
			if r.Block < 1 || r.Block > s.Spec.Blocks || r.Place < 1 || seen[place{r.Block, r.Place}] ||
				len(r.Cell) != 1 {
				t.Fatalf("run %+v", r)
			}
			seen[place{r.Block, r.Place}] = true
			for _, x := range r.Samples {
				// Lost packets and retransmits may be 0.
				if math.IsNaN(x.Value) || math.IsInf(x.Value, 0) || x.Value < 0 || x.Value == 0 &&
					x.Metric != bench.MetricLoss && x.Metric != bench.MetricRetransmits {
					t.Fatalf("figure %+v is published", x)
				}
				if x.Test == "" || x.Metric == "" || x.Unit == "" || x.Bytes < 0 || len(x.Origin.SHA256) != 64 {
					t.Fatalf("figure %+v is not complete", x)
				}
			}
			if _, err := json.Marshal(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func seed(f *testing.F, names ...string) {
	f.Helper()
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzVCPUBenchmarks gives every file the same contents: none may be taken for another test's.
func FuzzVCPUBenchmarks(f *testing.F) {
	seed(f, "testdata/vcpu-benchmarks/superbench-streamResultNeo.log",
		"testdata/vcpu-benchmarks/superbench-streamResultZen.log",
		"../../bench/tool/testdata/sysbench/recorded-1.0.20-cpu-2threads.txt", ncclLog)
	tree := map[string]string{}
	suite(tree, "a", 1000, 1000, 12.3, 2)
	for _, text := range tree {
		f.Add([]byte(text))
	}
	f.Add([]byte("GPU 0 [x]\n  Host-to-Device: 54.70 GB/s\n  Device-to-Host: 57.04 GB/s\n  Device-to-Device: " +
		"2660.62 GB/s\n"))
	f.Add([]byte(`{"timestamp": "2026-01-02T03:04:05.123+00:00", "vcpus": 8, "gpu_devices": ["NVIDIA H200"]}`))
	names := []string{"cpu_single", "cpu_all", "stream", "stream_numa_local", "mem_latency", "gpu_compute",
		"gpu_bandwidth", "nccl_allreduce", "numa_topology"}
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := fstest.MapFS{"h/pin/metadata.json": &fstest.MapFile{Data: data}}
		for _, n := range names {
			fsys["h/pin/"+n+".txt"] = &fstest.MapFile{Data: data}
		}
		all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "a", Base: "a"}}, importer.Options{})
		sound(t, all, err)
		if err != nil {
			return
		}
		took := map[string]bool{}
		for _, r := range all[0].Runs {
			for _, x := range r.Samples {
				took[strings.SplitN(x.Test, "_", 2)[0]+x.Tool] = true
			}
		}
		if len(took) > 1 {
			t.Fatalf("the same text is a result of %v", took)
		}
	})
}

// FuzzLogs reads one format at a time, which is faster.
func FuzzLogs(f *testing.F) {
	formats := importer.Formats()
	// One format only: the fuzzer finds the others.
	add := func(data []byte) { f.Add(data[:min(len(data), 6<<10)], uint8(0)) }
	for _, n := range []string{perftestLog, perftestJSON, perftestBad, ncclLog, ncclOld,
		"testdata/vcpu-benchmarks/superbench-streamResultNeo.log",
		"../../bench/tool/testdata/iperf3/recorded-3.12-udp.json",
		"../../bench/tool/testdata/iperf3/recorded-3.12-udp.txt",
		"../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt",
		"../../bench/tool/testdata/nvbandwidth/synthetic-0.8.json",
		"../../bench/tool/testdata/nccl-tests/synthetic-2.17-all_reduce.json"} {
		data, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		add(data)
	}
	add([]byte(`{"run":"1","test":"a","client":"a","metric":"loss","value":0,"unit":"%","tool":"ping","command":"c",` +
		`"accelerator":"tcg","started":"2026-01-02T03:04:05Z","seconds":1,"attempt":1}`))
	add([]byte(`{"start":{"timestamp":{"timesecs":300000000000},"test_start":{"protocol":"TCP","num_streams":1}},` +
		`"end":{"sum_received":{"bits_per_second":1e9}}}`))
	f.Fuzz(func(t *testing.T, data []byte, format uint8) {
		fsys := fstest.MapFS{"pin/1": &fstest.MapFile{Data: data}, "default/1": &fstest.MapFile{Data: data}}
		all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "a", Base: "a"}},
			importer.Options{Format: formats[int(format)%len(formats)]})
		sound(t, all, err)
	})
}
