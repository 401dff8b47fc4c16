package importer_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/study/importer"
)

func one(t *testing.T, o importer.Options, sources ...importer.Source) *importer.Study {
	t.Helper()
	all, err := importer.Import(sources, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("%d studies, want 1", len(all))
	}
	return all[0]
}

func find(s *importer.Study, level, test, metric string, bytes int64) []string {
	var out []string
	for _, r := range s.Runs {
		for _, x := range r.Samples {
			if r.Cell[s.Spec.Factors[0].Name] == level && x.Test == test && x.Metric == metric && x.Bytes == bytes {
				out = append(out, fmt.Sprintf("%d: %g %s", r.Block, x.Value, x.Unit))
			}
		}
	}
	return out
}

func failures(s *importer.Study) []string {
	var out []string
	for _, r := range s.Runs {
		out = append(out, r.Failures...)
	}
	return out
}

func TestATreeOfVCPUBenchmarksIsAStudyOfPlacement(t *testing.T) {
	t.Parallel()
	tree := map[string]string{"report.html": "<html>", "notes.txt": "mine"}
	suite(tree, "h200/default", 50000, 1000, 12.3, 1)
	suite(tree, "h200/vcpu_pin", 50000, 1010, 12.3, 1)
	suite(tree, "h200/pin-numa", 200000, 1000, 12.3, 4)
	suite(tree, "h200/pin-numa-smt", 205000, 1020, 12.3, 4)
	suite(tree, "h200/hugepages", 52000, 1000, 12.3, 1)
	s := one(t, importer.Options{Version: "1.2"}, files("vcpu/results", tree))
	f := s.Spec.Factors[0]
	if want := []string{"default", "pin", "pin+numa", "pin+numa+smt", "hugepages"}; f.Name != "placement" ||
		!slices.Equal(f.Levels, want) {
		t.Errorf("factor %s %q, want placement %q", f.Name, f.Levels, want)
	}
	if s.Spec.Name != "results" || s.Spec.Imported != importer.VCPUBenchmarks || s.Spec.Blocks != 1 {
		t.Errorf("spec %+v", s.Spec)
	}
	for _, tt := range []struct {
		test, metric string
		bytes        int64
		want         string
	}{
		{"stream", "triad", 0, "1: 200000 MB/s"},
		{"cpu_all", "events_per_second", 0, "1: 1000 events/s"},
		{"mem_latency", "load_latency", 512 << 20, "1: 130 ns"},
		{"gpu_compute", "matmul_time", 0, "1: 12.3 ms"},
		{"gpu_bandwidth", "h2d_bw:0", 32000000, "1: 25.1 GB/s 1: 25.2 GB/s 1: 25.3 GB/s 1: 25.4 GB/s 1: 25.5 GB/s"},
	} {
		if got := strings.Join(find(s, "pin+numa", tt.test, tt.metric, tt.bytes), " "); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.test, tt.metric, got, tt.want)
		}
	}
	// The origin keeps the results' name.
	for _, r := range s.Runs {
		if r.Cell["placement"] == "pin" && r.Samples[0].Origin.Level != "vcpu_pin" {
			t.Errorf("origin %+v, want level vcpu_pin", r.Samples[0].Origin)
		}
	}
	var keys []string
	for _, m := range s.Spec.Measure {
		k := m.Key() + " " + strings.Join(m.Metrics, ",")
		if m.Control {
			k += " control"
		}
		keys = append(keys, k)
	}
	want := []string{"cpu_all events_per_second", "cpu_single events_per_second", "gpu_bandwidth ",
		"gpu_bandwidth_d2d  control", "gpu_compute  control", "mem_latency/536870912 load_latency", "stream triad"}
	if !slices.Equal(keys, want) {
		t.Errorf("measured %q, want %q", keys, want)
	}
	if text := fmt.Sprint(s.Environment); !strings.Contains(text, "rackless 1.2") ||
		!strings.Contains(text, "vcpu/results (files:") || !strings.Contains(text, s.Digest) {
		t.Errorf("environment %s", text)
	}
	if len(s.Notes) != 0 || len(failures(s)) != 0 {
		t.Errorf("notes %q, failures %q, want none", s.Notes, failures(s))
	}
}

func TestHostsAreStudiesAndRepeatsAreBlocks(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	for i := range 12 {
		suite(tree, fmt.Sprintf("h200/pin/run%d", i+1), 1000*float64(i+1), 1000, 12.3, 1)
	}
	suite(tree, "h200/default/1", 500, 1000, 12.3, 1)
	suite(tree, "MI350X (8)/default", 700, 1000, 12.3, 1)
	again := map[string]string{}
	suite(again, "h200/default", 600, 1000, 12.3, 1)
	all, err := importer.Import([]importer.Source{files("a", tree), files("b", again)}, importer.Options{Name: "vcpu"})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Spec.Name != "vcpu-mi350x--8" || all[1].Spec.Name != "vcpu-h200" {
		t.Fatalf("studies %v", all)
	}
	h200 := all[1]
	if got := find(h200, "pin", "stream", "triad", 0); len(got) != 12 || got[1] != "2: 2000 MB/s" ||
		got[9] != "10: 10000 MB/s" {
		t.Errorf("pin %q: want 12 repeats in the order of their numbers", got)
	}
	if got, want := find(h200, "default", "stream", "triad", 0),
		[]string{"1: 500 MB/s", "2: 600 MB/s"}; !slices.Equal(got, want) {
		t.Errorf("default %q, want %q", got, want)
	}
}

func TestWhatIsNoResultIsAFailureAndTheRestCounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, text, want string }{
		{"a zero", "stream.txt", strings.Replace(streamText(1000), "Triad:          1000.0", "Triad: 0.0", 1),
			`stream: r/pin/stream.txt: read result of STREAM, line 5 ` +
				`"Triad: 0.0     0.006969     0.006926     0.007042": ` +
				`rate of Triad: value "0.0": a value of zero is a failed measurement`},
		{"no number", "stream.txt", strings.Replace(streamText(1000), "Triad:          1000.0", "Triad: nan", 1),
			`stream.txt: read result of STREAM, line 5 ` +
				`"Triad: nan     0.006969     0.006926     0.007042": ` +
				`rate of Triad: value "nan": not a decimal number`},
		{"wrong arrays", "stream.txt", strings.Replace(streamText(1000), "Solution Validates",
			"Failed Validation on array a[], AvgRelAbsErr > epsilon", 1),
			"on all three arrays\": STREAM found its arrays wrong"},
		{"cut off", "stream.txt", strings.Split(streamText(1000), "Triad")[0],
			`0.006892": the table is cut off or missing: no rate of Triad in MB/s`},
		{"no verdict", "stream.txt", strings.Split(streamText(1000), "Solution")[0],
			"does not say that the solution validates"},
		{"a negative latency", "mem_latency.txt", "4096\t-1.0\n",
			`mem_latency.txt: read result of mem_latency, line 1 "4096\t-1.0": latency: value "-1.0": ` +
				`the value is negative`},
		{"sizes that do not grow", "mem_latency.txt", "4096\t1.0\n4096\t1.0\n",
			`mem_latency.txt: read result of mem_latency, line 2 "4096\t1.0": size "4096"`},
		{"no GPU", "gpu_compute.txt", "Traceback (most recent call last):\nRuntimeError: no GPU\n",
			`gpu_compute.txt: read result of matmul, line 2 "RuntimeError: no GPU": ` +
				`the line "N matmuls: ..." is missing`},
		{"a time that does not agree", "gpu_compute.txt", "100 matmuls: 1.234s (99.9ms each)\n",
			`line 1 "100 matmuls: 1.234s (99.9ms each)": 100 products in 1.234 s are not 99.9 ms each`},
		{"a failed copy", "gpu_bandwidth.txt", strings.Replace(cudaText(1), "PASS", "FAIL", 1),
			`"Result = FAIL": bandwidthTest failed`},
		{"a copy that is cut off", "gpu_bandwidth.txt", "GPU 0 [x]\n  Host-to-Device: 54.70 GB/s\n",
			"cut off: 1 figures of h2d_bw:0 and 0 of d2"},
		{"a tool that is not read", "gpu_bandwidth.txt", "RocmBandwidthTest Version: 2.6.0\n",
			"rocm-bandwidth-test is not read"},
		{"a cut table", "nccl_allreduce.txt", "# nThread 1\n",
			"nccl_allreduce: r/pin/nccl_allreduce.txt: read result of nccl-tests, line 1"},
		{"no sysbench", "cpu_single.txt", "sysbench: command not found\n",
			"cpu_single.txt: read result of sysbench, line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := map[string]string{}
			suite(tree, "default", 1000, 1000, 12.3, 1)
			suite(tree, "pin", 1000, 1000, 12.3, 1)
			tree["pin/"+tt.file] = tt.text
			s := one(t, importer.Options{Format: importer.VCPUBenchmarks}, files("r", tree))
			got := failures(s)
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("failures %q, want one with %q", got, tt.want)
			}
			test := strings.TrimSuffix(tt.file, ".txt")
			for _, r := range s.Runs {
				for _, x := range r.Samples {
					if r.Cell["placement"] == "pin" && x.Test == test {
						t.Errorf("figure %+v of what failed", x)
					}
				}
			}
			if len(find(s, "pin", "stream", "triad", 0))+len(find(s, "pin", "cpu_all", "events_per_second", 0)) == 0 {
				t.Error("the other tests are lost")
			}
		})
	}
}

func TestASettingThatDidNotTakeEffectIsNoted(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	suite(tree, "default", 1000, 1000, 12.3, 1)
	suite(tree, "pin-numa", 1000, 1000, 12.3, 1)
	s := one(t, importer.Options{}, files("r", tree))
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0],
		"placement=pin+numa had 1 NUMA node: the setting did not take effect") {
		t.Errorf("notes %q", s.Notes)
	}
}

func TestRealSTREAM(t *testing.T) {
	t.Parallel()
	tree := map[string]string{
		"default/stream.txt": testdata(t, "testdata/vcpu-benchmarks/superbench-streamResultNeo.log"),
		"pin/stream.txt":     testdata(t, "testdata/vcpu-benchmarks/superbench-streamResultZen.log"),
	}
	all, err := importer.Import([]importer.Source{files("r", tree)}, importer.Options{Format: importer.VCPUBenchmarks})
	if err != nil {
		t.Fatal(err)
	}
	if got := find(all[0], "default", "stream", "triad", 0); !slices.Equal(got, []string{"1: 105256 MB/s"}) {
		t.Errorf("triad %q, failures %q", got, failures(all[0]))
	}
}

func TestLogsOfPerftestAreRepeatsByLevelAndTest(t *testing.T) {
	t.Parallel()
	good, bad := testdata(t, perftestLog), testdata(t, perftestBad)
	s := one(t, importer.Options{Name: "nic"}, files("logs", map[string]string{
		"pin/run1.txt": good, "pin/run2.txt": bad, "pin/run10.txt": good, "default/run1.txt": good, "default/.swp": "x",
		"pin/lat.txt": testdata(t, "../../bench/tool/testdata/perftest/synthetic-write_lat-cx4lx-25g-fewcolumns.txt"),
	}))
	if f := s.Spec.Factors[0]; f.Name != "variant" || !slices.Equal(f.Levels, []string{"default", "pin"}) {
		t.Errorf("factor %+v", f)
	}
	var blocks []string
	for _, r := range s.Runs {
		tests := map[string]bool{}
		for _, x := range r.Samples {
			tests[x.Test] = true
		}
		blocks = append(blocks, fmt.Sprintf("%d %s %v %d", r.Block, r.Cell["variant"], tests, len(r.Failures)))
	}
	want := []string{"1 default map[ib_write_bw:true] 0", "1 pin map[ib_write_bw:true ib_write_lat:true] 0",
		"2 pin map[] 1", "3 pin map[ib_write_bw:true] 0"}
	if !slices.Equal(blocks, want) {
		t.Errorf("runs %q, want %q", blocks, want)
	}
	if got := failures(s); len(got) != 1 ||
		!strings.Contains(got[0], "logs/pin/run2.txt: read result of perftest, line ") {
		t.Errorf("failures %q", got)
	}
}

func TestALogThatIsCutOffIsAFailure(t *testing.T) {
	t.Parallel()
	whole := testdata(t, perftestLog)
	cut := strings.TrimRight(strings.TrimSpace(whole), "-")
	s := one(t, importer.Options{}, files("logs", map[string]string{"a.txt": whole, "b.txt": cut}))
	got := failures(s)
	if len(got) != 1 || !strings.HasPrefix(got[0], "ib_write_bw: logs/b.txt:") || strings.Count(got[0], "b.txt") != 1 ||
		!strings.Contains(got[0], "the table is cut off") {
		t.Errorf("failures %q", got)
	}
}

// An excerpt is what people paste: its rows count, without the last line.
func TestAnExcerptHasTheRowsAboveTheCut(t *testing.T) {
	t.Parallel()
	perftest := testdata(t, perftestAll)
	perftest = perftest[:strings.Index(perftest, "\n65536")+20]
	nccl := testdata(t, "../../bench/tool/testdata/nccl-tests/dgxc-h100-all_reduce.txt")
	nccl = nccl[:strings.Index(nccl, "# Out of bounds")-30]
	for name, log := range map[string]string{"ib_write_bw": perftest, "nccl_all_reduce": nccl} {
		sources := files("all_reduce", map[string]string{"all_reduce.log": log})
		s := one(t, importer.Options{Excerpt: true}, sources)
		if len(failures(s)) != 0 || len(s.Runs) != 1 || len(s.Runs[0].Samples) < 10 {
			t.Fatalf("%s: failures %q, %d runs", name, failures(s), len(s.Runs))
		}
		for _, sample := range s.Runs[0].Samples {
			if sample.Test == name && strings.Contains(fmt.Sprint(sample.Origin.Remarks), "cut off") {
				continue
			}
			t.Errorf("%s: %+v has no remark on the cut", name, sample)
		}
	}
}

// A run that failed is no excerpt.
func TestAFailureIsNoExcerpt(t *testing.T) {
	t.Parallel()
	perftest := testdata(t, perftestAll)
	perftest = perftest[:strings.Index(perftest, "\n65536")+1]
	nccl := testdata(t, "../../bench/tool/testdata/nccl-tests/dgxc-h100-all_reduce.txt")
	nccl = nccl[:strings.Index(nccl, "# Out of bounds")]
	for log, want := range map[string]string{
		perftest + "Completion with error at client\n":                    "error",
		nccl + "node1:1:1 [0] misc/socket.cc:1 NCCL WARN socket closed\n": "the program gave up",
	} {
		source := files("all_reduce", map[string]string{"all_reduce.log": log})
		_, err := importer.Import([]importer.Source{source}, importer.Options{Excerpt: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestALastLineWithoutAnEndIsReadWhereItIsWhole(t *testing.T) {
	t.Parallel()
	whole := strings.TrimSuffix(testdata(t, "../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt"),
		"\n")
	cuts := map[string]string{"a.txt": whole}
	for cut := range len("4194304             12164.86") - len("4194304") {
		cuts[fmt.Sprintf("cut%d.txt", cut+1)] = whole[:len(whole)-cut-1]
	}
	// Without aligned columns, a truncated row can have the length of the one above.
	unaligned := strings.Join(strings.Fields(whole[strings.LastIndex(whole, "\n")+1:]), " ")
	cuts["unaligned.txt"] = whole + "\n" + "1" + unaligned[:len(unaligned)-1]
	s := one(t, importer.Options{}, files("logs", cuts))
	got := failures(s)
	if len(got) != len(cuts)-1 || strings.Contains(strings.Join(got, "\n"), "a.txt") ||
		!strings.Contains(got[0], "the output ends within a row") {
		t.Errorf("%d failures of %d logs: %q", len(got), len(cuts), got)
	}
}

func TestLevelsCanBeNamed(t *testing.T) {
	t.Parallel()
	a, b := files("x/a", map[string]string{"1.json": testdata(t, perftestJSON)}),
		files("x/b", map[string]string{"1.json": testdata(t, perftestJSON)})
	a.Level, b.Level = "old firmware", "new firmware"
	s := one(t, importer.Options{Name: "fw", Factor: "firmware"}, a, b)
	if f := s.Spec.Factors[0]; f.Name != "firmware" ||
		!slices.Equal(f.Levels, []string{"old firmware", "new firmware"}) {
		t.Errorf("factor %+v", f)
	}
}

// Default is the first level if present, regardless of sorting.
func TestDefaultIsTheFirstLevel(t *testing.T) {
	t.Parallel()
	tree, logs := map[string]string{}, map[string]string{}
	for _, level := range []string{"all", "cores", "default", "hugepages"} {
		suite(tree, level, 1000, 1000, 12.3, 1)
		logs[level+"/run1.txt"] = testdata(t, perftestLog)
	}
	for _, s := range []*importer.Study{one(t, importer.Options{}, files("r", tree)),
		one(t, importer.Options{}, files("r", logs))} {
		if f := s.Spec.Factors[0]; !slices.Equal(f.Levels, []string{"default", "all", "cores", "hugepages"}) {
			t.Errorf("%s: factor %+v", s.Spec.Imported, f)
		}
	}
}

// The suite's report takes the memory of the first guest node for all.
func TestTheMemoryOfOneGuestNodeIsNotTakenForAll(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	suite(tree, "default", 1000, 1000, 12.3, 2)
	tree["default/numa_topology.txt"] = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 4321 MB\nnode 0 " +
		"free: 4000 MB\nnode 1 cpus: 2 3\nnode 1 size: 8765 MB\nnode 1 free: 8000 MB\n"
	s := one(t, importer.Options{}, files("r", tree))
	text := fmt.Sprint(s.Environment)
	if !strings.Contains(text, "guest NUMA nodes, default, repeat 1 2") {
		t.Errorf("the nodes are not counted: %s", text)
	}
	for _, size := range []string{"4321", "8765"} {
		if strings.Contains(text, size) {
			t.Errorf("the memory of one node is told: %s", text)
		}
	}
}

func TestOtherLogs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, text, format, test, metric, want string }{
		{"nccl-tests", "all_reduce.txt", testdata(t, ncclLog), importer.NCCLTests, "nccl_all_reduce", "bus_bandwidth",
			"1: 479.9 GB/s"},
		{"old nccl-tests", "nccl-allgather-0.log", testdata(t, ncclOld), importer.NCCLTests, "nccl_all_gather",
			"bus_bandwidth", ""},
		{"iperf3", "x.json", testdata(t, "../../bench/tool/testdata/iperf3/recorded-3.12-tcp.json"), importer.Iperf3,
			"iperf3", "throughput", ""},
		{"iperf3, others", "x.json", testdata(t,
			"../../bench/tool/testdata/iperf3/recorded-3.12-reverse-2streams.json"), importer.Iperf3,
			"iperf3/reverse/streams2", "retransmits", ""},
		{"iperf3's text", "x.log", testdata(t, "../../bench/tool/testdata/iperf3/recorded-3.12-reverse-2streams.txt"),
			importer.Iperf3, "iperf3/reverse/streams2", "retransmits", ""},
		{"iperf3's text, UDP", "x.log", testdata(t, "../../bench/tool/testdata/iperf3/recorded-3.12-udp.txt"),
			importer.Iperf3, "iperf3/udp", "throughput", ""},
		{"iperf3, UDP", "x.json", testdata(t, "../../bench/tool/testdata/iperf3/recorded-3.12-udp.json"),
			importer.Iperf3, "iperf3/udp", "throughput", ""},
		{"iperf3 with a title", "x.json", strings.Replace(testdata(t,
			"../../bench/tool/testdata/iperf3/recorded-3.12-tcp.json"), "{", `{"title": "before",`, 1), importer.Iperf3,
			"iperf3", "throughput", ""},
		{"OSU", "x.out", testdata(t, "../../bench/tool/testdata/osu/stackhpc-ib-gcc9-impi-verbs-osu_latency.txt"),
			importer.OSU, "osu_latency", "latency_average", ""},
		{"OSU, many pairs", "x.out", testdata(t,
			"../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt"), importer.OSU,
			"osu_mbw_mr", "bw_average", ""},
		{"perftest, all sizes", "x.log", testdata(t, perftestAll), importer.Perftest, "ib_write_bw", "bw_average", ""},
		{"rackless", "samples.jsonl",
			`{"run":"1","test":"ib_write_bw","client":"a","server":"b","metric":"bw_average","bytes":17179869184,` +
				`"value":3,"unit":"Gb/s","tool":"perftest","command":"c","accelerator":"tcg","emulated":true,` +
				`"started":"2026-01-02T03:04:05Z","seconds":1,"attempt":1}`,
			importer.Rackless, "ib_write_bw", "bw_average", "1: 3 Gb/s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{tt.file: tt.text}))
			if s.Spec.Imported != tt.format || len(failures(s)) > 0 {
				t.Errorf("format %s, failures %q, want %s", s.Spec.Imported, failures(s), tt.format)
			}
			if !slices.ContainsFunc(s.Runs[0].Samples, func(x importer.Sample) bool {
				return x.Test == tt.test && x.Metric == tt.metric
			}) {
				t.Errorf("no %s of %s", tt.metric, tt.test)
			}
			if got := strings.Join(find(s, "d", tt.test, tt.metric, 17179869184), ""); tt.want != "" && got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A log without a tool's name is recognized by its error.
func TestLogsOfProgramsThatGaveUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ format, text, want string }{
		{importer.Perftest, "Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor for socket " +
			"connection\n",
			`line 1 "Couldn't connect to 10.0.0.2:18515": the server was not reached`},
		{importer.Perftest, "IB device mlx5_7 not found\n Unable to find the Infiniband/RoCE device\n",
			`line 1 "IB device mlx5_7 not found": there is no such RDMA device`},
		{importer.NCCLTests, "a:1:2 [0] NCCL INFO x\na:1:2 [0] ibvwrap.cc:252 NCCL WARN Call to ibv_modify_qp " +
			"failed with error No such device\na: Test NCCL failure all_reduce.cu:44 'unhandled system error'\n",
			"line 2 \"a:1:2 [0] ibvwrap.cc:252 NCCL WARN Call to ibv_modify_qp failed"},
		{importer.NCCLTests, "gpu1: Test CUDA failure common.cu:894 'out of memory'\n", "line 1 "},
		{importer.Iperf3, "iperf3: error - unable to connect to server: Connection refused\n", "line 1 "},
	} {
		_, err := importer.Import([]importer.Source{files("d", map[string]string{"x.log": tt.text})},
			importer.Options{Name: "a"})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(),
			"format "+tt.format) {
			t.Errorf("%.40q: error %v, want %s", tt.text, err, tt.want)
		}
	}
}

// Each run has its own test; other message sizes belong to the same repeat.
func TestALogOfSeveralRuns(t *testing.T) {
	t.Parallel()
	bench := func(name string) string { return testdata(t, "../../bench/tool/testdata/"+name) }
	write, read, lat := bench("perftest/recorded-6.06-rxe-tcg-write_bw-64k.txt"),
		bench("perftest/recorded-6.06-rxe-tcg-read_bw-a.txt"), bench("perftest/recorded-6.06-rxe-tcg-write_lat.txt")
	nccl, osu, tcp := testdata(t, ncclLog), bench("osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt"),
		bench("iperf3/recorded-3.12-tcp.json")
	latency := bench("osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_latency.txt")
	mbw := bench("osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt")
	const nvTable = "nvbandwidth Version: v0.8\n\nRunning host_to_device_memcpy_ce.\n" +
		"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     55.20\n" +
		"SUM host_to_device_memcpy_ce 55.20\n"
	sized := func(size string) string { return strings.Replace(write, " 65536 ", " "+size+" ", 1) }
	cut := strings.TrimRight(write, "-\n") + "\n"
	const cuda = "initializing CUDA\nListing all CUDA devices in system:\nCUDA device 0: PCIe address is 8F:00\n\n" +
		"Picking device No. 0\n[pid = 29, dev = 0] device name = [NVIDIA H200]\ncreating CUDA Ctx\n" +
		"using DMA-BUF for GPU buffer address at 0x78e9f8800000 aligned at 0x78e9f8800000\n"
	bothWays := regexp.MustCompile(`"reverse":\s*0`).ReplaceAllString(tcp, `"reverse": 0, "bidir": 1`)
	starting := func(operation, log string) string {
		log = regexp.MustCompile(`(?m)^# Collective test starting.*\n`).ReplaceAllString(log, "")
		return "# Collective test starting: " + operation + "_perf\n" + log
	}
	for _, tt := range []struct {
		name, file, text string
		runs             []string // repeat: tests, with sizes
		failures         []string
	}{
		{"perftest, several tests", "x.log", write + read + write + lat,
			[]string{"1: ib_read_bw 23, ib_write_bw 1, ib_write_lat 1", "2: ib_write_bw 1"}, nil},
		{"perftest, reliable connections and extended ones", "x.log", write + strings.Replace(write, "type : RC",
			"type : XRC", 1),
			[]string{"1: ib_write_bw 1, ib_write_bw/xrc 1"}, nil},
		{"perftest, memory of the host and of GPUs", "x.log", write + cuda + write +
			"Using ROCm Device with ID: 2, Name: x\n" +
			write + cuda + write, []string{"1: ib_write_bw 1, ib_write_bw/cuda0/dmabuf 1, ib_write_bw/rocm2 1",
			"2: ib_write_bw/cuda0/dmabuf 1"}, nil},
		{"perftest, GPU memory by the command line", "x.log", "$ ib_write_bw -d mlx5_0 node2\n" + write +
			"$ ib_write_bw -d mlx5_0 --use_cuda=0 node2\ninitializing CUDA\ncuMemAlloc() of a 131072 bytes GPU " +
			"buffer\n" + write,
			[]string{"1: ib_write_bw 1, ib_write_bw/cuda0 1"}, nil},
		{"perftest, other MTU", "x.log", write + regexp.MustCompile(`Mtu( *): \d+`).ReplaceAllString(write,
			"Mtu$1: 256"),
			[]string{"1: ib_write_bw/mtu256 1, ib_write_bw/mtu4096 1"}, nil},
		{"perftest, a start without a server", "x.log", "$ ib_write_bw node2\nCouldn't connect to node2:18515\n" +
			"$ ib_write_bw node2\n" + write, []string{"1: ib_write_bw 1"}, nil},
		{"nccl-tests, of more GPUs", "all_reduce.log", nccl + regexp.MustCompile(`(?m)^#\s+Rank\s+1 .*\n`).
			ReplaceAllString(nccl, ""), []string{"1: nccl_all_reduce/gpus7 32, nccl_all_reduce/gpus8 32"}, nil},
		{"OSU, of more pairs", "x.out", mbw + strings.Replace(mbw, "pairs: 8", "pairs: 16", 1),
			[]string{"1: osu_mbw_mr/pairs16 23, osu_mbw_mr/pairs8 23"}, nil},
		{"perftest, below a line in brackets", "x.log", "[node1:123] a warning of mpirun\n" + write + write,
			[]string{"1: ib_write_bw 1", "2: ib_write_bw 1"}, nil},
		{"perftest, several sizes", "x.log", sized("64") + sized("128") + sized("64") + sized("128"),
			[]string{"1: ib_write_bw 2", "2: ib_write_bw 2"}, nil},
		{"perftest, a size that failed", "x.log", sized("64") + strings.Replace(write, "65536 ",
			"Completion with error", 1) + sized("256"), []string{"1: ib_write_bw 2"},
			[]string{"x.log: read result of perftest, line "}},
		{"perftest, a repeat that failed", "x.log", write + cut + write, []string{"1: ib_write_bw 1", "2: ",
			"3: ib_write_bw 1"}, []string{"the table is cut off"}},
		{"perftest, client and server on one terminal, twice", "x.log", testdata(t, perftestAll) +
			testdata(t, perftestAll), []string{"1: ib_write_bw 23", "2: ib_write_bw 23"}, nil},
		{"nccl-tests", "all_reduce.log", nccl + strings.Replace(nccl, "#wrong", "#other", 1) + nccl,
			[]string{"1: nccl_all_reduce 32", "2: ", "3: nccl_all_reduce 32"},
			[]string{`unknown layout: column "#other"`}},
		{"nccl-tests, a run for each size", "all_gather.txt",
			bench("nccl-tests/panlichen-8xv100-all_gather-27-runs.txt"), []string{"1: nccl_all_gather 27"}, nil},
		{"nccl-tests, of other operations and types", "x.txt", starting("alltoall", nccl) + starting("alltoallv",
			nccl) +
			starting("all_reduce", strings.ReplaceAll(nccl, " float ", "  half ")) +
			starting("all_reduce", strings.ReplaceAll(nccl, "  sum ", "  max ")),
			[]string{"1: nccl_all_reduce/half 32, " +
				"nccl_all_reduce/max 32, nccl_alltoall 32, nccl_alltoallv 32"}, nil},
		{"nccl-tests, what was run is not said", "x.txt", "# Collective test starting: reduce_perf\n" +
			strings.Repeat(bench("nccl-tests/superbench-ndv4-all_gather.log"), 2), []string{"1: nccl_reduce 29"},
			[]string{"x.txt:55: which collective"}},
		{"nccl-tests, below the command lines", "x.txt", "$ ./build/reduce_scatter_perf -b 8 -e 1G\n" +
			testdata(t, ncclOld) + "$ mpirun -np 2 /opt/nccl-tests/build/sendrecv_perf -g 1\n" + testdata(t, ncclOld) +
			"$ ./build/all_reduce_perf -b 8\n", []string{"1: nccl_reduce_scatter 32, nccl_sendrecv 32"}, nil},
		{"several tools", "x.txt", "a note\n" + write + latency + testdata(t, ncclOld) + nvTable + write,
			[]string{"1: gpu_bandwidth_h2d 1, ib_write_bw 1, nccl_all_reduce 32, osu_latency 24", "2: ib_write_bw 1"},
			nil},
		{"JSON behind the text of other tools", "x.txt", write + "$ iperf3 -c node2 --json\n" + tcp + latency +
			"note: bandwidths\n" + bench("nccl-tests/synthetic-2.17-all_reduce.json") + "done\n", []string{
			"1: ib_write_bw 1, iperf3 1, nccl_all_reduce 2, nccl_all_reduce/half/max 1, osu_latency 24"}, nil},
		{"JSON behind a command line", "x.txt", "$ iperf3 -c node2 --json\n" + tcp, []string{"1: iperf3 1"}, nil},
		{"a tool that names another", "x.txt", "all_reduce_perf -g 1 comes later\n" + write + testdata(t, ncclOld),
			[]string{"1: ib_write_bw 1, nccl_all_reduce 32"}, nil},
		{"OSU", "x.out", osu + latency + osu, []string{"1: osu_bw 23, osu_latency 24", "2: osu_bw 23"}, nil},
		{"iperf3", "x.json", tcp + tcp, []string{"1: iperf3 1", "2: iperf3 1"}, nil},
		{"iperf3, one way and both", "x.json", tcp + bothWays, []string{"1: iperf3 1, iperf3/bidir 1"}, nil},
		{"iperf3's text", "x.log", bench("iperf3/recorded-3.12-tcp.txt") + bench("iperf3/recorded-3.12-udp.txt") +
			bench("iperf3/recorded-3.12-tcp.txt"), []string{"1: iperf3 1, iperf3/udp 1", "2: iperf3 1"}, nil},
		{"iperf3, one way and both", "x.json", tcp + bothWays, []string{"1: iperf3 1, iperf3/bidir 1"}, nil},
		{"iperf3, below the prompt of a shell", "x.txt",
			"[root@node1 ~]# iperf3 -c node2 -J\n" + tcp + "[root@node1 ~]#\n", []string{"1: iperf3 1"}, nil},
		{"iperf3, in an array", "x.json", "[" + tcp + ",\n" + tcp + "]\n", []string{"1: iperf3 1", "2: iperf3 1"}, nil},
		{"perftest, with an immediate, of a list, by compare and swap, with a shared queue", "x.log", write +
			strings.Replace(write, "RDMA_Write BW", "RDMA_Write_imm BW", 1) +
			strings.Replace(write, "RDMA_Write BW", "RDMA_Write Post List BW", 1) +
			strings.Replace(write, "RDMA_Write BW", "Atomic CMP_AND_SWAP BW", 1) +
			regexp.MustCompile(`SRQ( *): OFF`).ReplaceAllString(write, "SRQ$1: ON") +
			strings.Replace(write, "type : RC", "type : SRD", 1),
			[]string{"1: ib_atomic_bw/cas 1, ib_write_bw 1, ib_write_bw/imm 1, ib_write_bw/postlist 1, " +
				"ib_write_bw/srd 1, ib_write_bw/srq 1"}, nil},
		{"nvbandwidth", "x.txt", bench("nvbandwidth/synthetic-0.8-both-ways.txt") +
			bench("nvbandwidth/synthetic-0.8-device_local_copy.txt"), []string{"1: gpu_bandwidth_local 1, " +
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce 1, " +
			"nvbandwidth_device_to_device_memcpy_read_ce 1, nvbandwidth_host_device_latency_sm 1"}, nil},
		{"nvbandwidth's JSON", "x.json", bench("nvbandwidth/synthetic-0.8.json"), []string{"1: gpu_bandwidth_h2d 1, " +
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce 1, nvbandwidth_host_device_latency_sm 1"},
			[]string{`status "Error" CUDA_ERROR_OUT_OF_MEMORY`}},
		{"nccl-tests' JSON", "x.json", bench("nccl-tests/synthetic-2.17-all_reduce.json"),
			[]string{"1: nccl_all_reduce 2, nccl_all_reduce/half/max 1"}, nil},
		{"RCCL's tests", "broadcast.txt", bench("nccl-tests/synthetic-rccl-broadcast.txt"),
			[]string{"1: rccl_broadcast 2, rccl_broadcast/half 1"}, nil},
		{"nvbandwidth, up to a test case that fails", "x.txt", nvTable + "Running device_to_host_memcpy_ce.\n" +
			"[CUDA_ERROR_OUT_OF_MEMORY] out of memory in expression cuMemAlloc(&buffer, size)\n",
			[]string{"1: gpu_bandwidth_h2d 1"},
			[]string{"gpu_bandwidth_d2h: d/x.txt: read result of nvbandwidth, line 9 "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{tt.file: tt.text}))
			var runs []string
			for _, r := range s.Runs {
				sizes := map[string]map[int64]bool{}
				for _, x := range r.Samples {
					if sizes[x.Test] == nil {
						sizes[x.Test] = map[int64]bool{}
					}
					sizes[x.Test][x.Bytes] = true
				}
				var tests []string
				for _, test := range slices.Sorted(maps.Keys(sizes)) {
					tests = append(tests, fmt.Sprintf("%s %d", test, len(sizes[test])))
				}
				runs = append(runs, fmt.Sprintf("%d: %s", r.Block, strings.Join(tests, ", ")))
			}
			if !slices.Equal(runs, tt.runs) {
				t.Errorf("runs %q, want %q", runs, tt.runs)
			}
			got := failures(s)
			if !slices.EqualFunc(got, tt.failures, strings.Contains) {
				t.Errorf("failures %q, want %q", got, tt.failures)
			}
		})
	}
}

// Unrecognized files are noted, and each test is compared by its main metric.
func TestLogsOfSeveralToolsAreOneStudy(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	for _, level := range []string{"default", "pin"} {
		tree[level+"/bw.txt"] = testdata(t, perftestLog)
		tree[level+"/tcp.json"] = testdata(t, "../../bench/tool/testdata/iperf3/recorded-3.12-tcp.json")
		tree[level+"/nccl-allreduce.txt"] = testdata(t, ncclLog)
		tree[level+"/rates.out"] = testdata(t,
			"../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt")
	}
	tree["pin/notes.txt"] = "remember to reboot\n"
	for _, format := range []string{importer.Auto, importer.Logs} {
		s := one(t, importer.Options{Name: "a", Format: format}, files("r", tree))
		if s.Spec.Imported != importer.Logs || len(s.Runs) != 2 {
			t.Errorf("format %s, %d runs", s.Spec.Imported, len(s.Runs))
		}
		if got, want := failures(s), []string{"r/pin/notes.txt: a log of no known tool"}; !slices.Equal(got, want) {
			t.Errorf("failures %q, want %q", got, want)
		}
		got := map[string]string{}
		for _, m := range s.Spec.Measure {
			got[m.Test] = fmt.Sprintf("%d%v", m.Bytes, m.Metrics)
		}
		want := map[string]string{"ib_write_bw": "0[]", "iperf3": "0[]",
			"nccl_all_reduce": "17179869184[bus_bandwidth]", "osu_mbw_mr": "0[]"}
		if !maps.Equal(got, want) {
			t.Errorf("compared is %v, want %v", got, want)
		}
		for _, r := range s.Runs {
			for _, x := range r.Samples {
				if x.Test == "iperf3" && x.Version != "3.12" || x.Test == "osu_mbw_mr" && x.Version != "5.6.2" {
					t.Errorf("version %q of %s", x.Version, x.Test)
				}
			}
		}
	}
}

func TestWhatCannotBeImportedIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", 8) + "x.txt"
	both := map[string]string{}
	suite(both, "pin", 1, 1000, 12.3, 1)
	suite(both, "vcpu_pin", 1, 1000, 12.3, 1)
	tooDeep := map[string]string{}
	suite(tooDeep, "a/b/c", 1, 1000, 12.3, 1)
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("level%d/a.txt", i)] = testdata(t, perftestLog)
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		o     importer.Options
		want  string
	}{
		{"no file", nil, importer.Options{}, "r: there is no file in it"},
		{"no format", map[string]string{"a.txt": "hello"}, importer.Options{},
			"r/a.txt: of no known format; read are logs of perftest,"},
		{"iperf3 that did not end", map[string]string{"a.txt": "Connecting to host 192.0.2.1, port 5201\n[  5] local " +
			"192.0.2.2 port 1 connected to 192.0.2.1 port 5201\n"}, importer.Options{},
			"iperf3: r/a.txt: read result of iperf3, line 2 "},
		{"nccl-tests that gave up", map[string]string{"a.txt": "# nThread 1 nGpus 1 minBytes 8 maxBytes 128 step: " +
			"2(factor)\n" +
			"vm2:1:2 [0] transport/net_ib.cc:1192 NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, " +
			"vendor err 129\nvm1: Test NCCL failure common.cu:499 'unhandled system error'\n"}, importer.Options{},
			"with error 12, opcode 0, len 0, vendor err 129\": the program gave up; status 12 is transport retry " +
				"counter exceeded; vendor error 0x81 is seen beside status 12"},
		{"a wrong format", map[string]string{"a.txt": "x"}, importer.Options{Format: "csv"},
			`format "csv": want one of auto,`},
		{"too deep", map[string]string{deep: "x"}, importer.Options{}, "deeper than 6 directories"},
		{"no figure", map[string]string{"a.txt": testdata(t, perftestBad)}, importer.Options{Format: importer.Perftest},
			"no figure in the one file of format perftest, so nothing is imported; the first: "},
		{"a bad name", map[string]string{"a.txt": testdata(t, perftestLog)}, importer.Options{Name: "A b"},
			`name "A b": want small letters, digits and dashes, 63 at most; name the study with --name`},
		{"a factor for placement", both, importer.Options{Factor: "x"}, `"pin" and "vcpu_pin" are both placement pin`},
		{"a tree too deep", tooDeep, importer.Options{}, "r/a/b/c: too deep: want RESULTS/GPU/CONFIG"},
		{"too many levels", many, importer.Options{}, "65 levels of variant, and a study has at most 64"},
		{"JSON of no tool", map[string]string{"a.jsonl": `{"node": "a", "mem-bw/h2d_bw": 1}`}, importer.Options{},
			"r/a.jsonl: of no known format; read are logs of perftest,"},
		{"bad samples", map[string]string{"samples.jsonl": `{"run":"1","test":"a","metric":"m","value":0,"unit":"us"}`},
			importer.Options{}, "r/samples.jsonl: read samples: line 1: m 0: a value of zero"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all, err := importer.Import([]importer.Source{files("r", tt.files)}, tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || all != nil {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// The error lists the supported formats.
func TestUnknownResultsHearWhatIsRead(t *testing.T) {
	t.Parallel()
	_, err := importer.Import([]importer.Source{files("r", map[string]string{"a.txt": "hello"})}, importer.Options{})
	for _, format := range importer.Formats() {
		if format == importer.Auto || format == importer.Logs {
			continue
		}
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), format) {
			t.Errorf("%v: it does not name %s", err, format)
		}
	}
}

func TestTheSameResultsMakeTheSameStudy(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	suite(tree, "h/default", 1000, 1000, 12.3, 1)
	suite(tree, "h/pin", 1000, 1000, 12.3, 1)
	a, b := one(t, importer.Options{}, files("r", tree)), one(t, importer.Options{}, files("r", tree))
	if fmt.Sprintf("%+v", a.Runs) != fmt.Sprintf("%+v", b.Runs) ||
		fmt.Sprint(a.Environment) != fmt.Sprint(b.Environment) || len(a.Digest) != 64 {
		t.Error("two imports of the same differ")
	}
	tree["h/pin/stream.txt"] = streamText(1001)
	if c := one(t, importer.Options{}, files("r", tree)); c.Digest == a.Digest {
		t.Error("another file has the same digest")
	}
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{"a": &fstest.MapFile{Data: make([]byte, 16<<20+1)}}
	_, err := importer.Import([]importer.Source{{FS: fsys, Path: "a", Name: "a", Base: "x"}}, importer.Options{})
	if err == nil || !strings.Contains(err.Error(), "a: larger than 16 MiB") {
		t.Errorf("error %v", err)
	}
}
