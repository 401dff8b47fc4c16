package importer_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/study/importer"
)

func testdata(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const (
	perftestLog  = "../../bench/tool/testdata/perftest/synthetic-write_bw-cx4lx-25g.txt"
	perftestJSON = "../../bench/tool/testdata/perftest/synthetic-json-valid.json"
	perftestAll  = "../../bench/tool/testdata/perftest/superbench-ib_loopback_all_sizes.log"
	perftestBad  = "../../bench/tool/testdata/perftest/synthetic-bad-completion.txt"
	ncclLog      = "../../bench/tool/testdata/nccl-tests/dgxc-h100-all_reduce.txt"
	ncclOld      = "../../bench/tool/testdata/nccl-tests/superbench-ndv4-all_reduce.log"
)

func files(name string, of map[string]string) importer.Source {
	fsys := fstest.MapFS{}
	for p, text := range of {
		fsys[p] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return importer.Source{FS: fs.FS(fsys), Path: ".", Name: name, Base: filepath.Base(name)}
}

// suite writes made-up files in the layout of run_vcpu_benchmark.sh. triad is in MB/s.
func suite(into map[string]string, dir string, triad, events, matmul float64, nodes int) {
	put := func(name, format string, args ...any) { into[dir+"/"+name] = fmt.Sprintf(format, args...) }
	put("numa_topology.txt", "available: %d nodes (0-%d)\nnode 0 cpus: 0 1\n", nodes, nodes-1)
	for _, name := range []string{"cpu_single.txt", "cpu_all.txt"} {
		put(name, "Number of threads: 1\n    events per second: %10.2f\n    total time:                          "+
			"10.0000s\n    total number of events:              %d\n    execution time (avg/stddev):   10.0/0.00\n",
			events, int(events*10))
	}
	put("stream.txt", "%s", streamText(triad))
	put("mem_latency.txt", "# size_bytes\tlatency_ns\n4096\t1.3\t# 4KB\n536870912\t%.1f\t# 512MB\n", 1e7/triad+80)
	put("gpu_compute.txt", "100 matmuls: %.3fs (%.1fms each)\n", matmul/10, matmul)
	var copies strings.Builder
	for i := range 5 {
		fmt.Fprintf(&copies, "# run %d\n%s", i+1, cudaText(25.1+0.1*float64(i)))
	}
	put("gpu_bandwidth.txt", "%s", copies.String())
}

func streamText(triad float64) string {
	return fmt.Sprintf("Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy: %15.1f     0.006386    "+
		" 0.006361     0.006415\nScale: %15.1f     0.005457     0.005408     0.005546\n"+
		"Add: %15.1f     0.006854     0.006820     0.006892\nTriad: %15.1f     0.006969     0.006926     0.007042\n"+
		"-------------------------------------------------------------\nSolution Validates: avg error less than "+
		"1.000000e-13 on all three arrays\n", 0.9*triad, 0.9*triad, triad, triad)
}

func cudaText(gbps float64) string {
	text := "[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device 0: NVIDIA H200\n Quick Mode\n\n"
	for _, d := range []string{"Host to Device", "Device to Host", "Device to Device"} {
		text += fmt.Sprintf(" %s Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n   Transfer Size "+
			"(Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t%.1f\n\n", d, gbps)
	}
	return text + "Result = PASS\n"
}
