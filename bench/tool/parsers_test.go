package tool

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
)

func figureWords(figures []bench.Figure) []string {
	var out []string
	for _, f := range figures {
		out = append(out, fmt.Sprintf("%s %d %d %.6g %s", f.Metric, f.Bytes, f.Iterations, f.Value, f.Unit))
	}
	return out
}

func TestRecordedOutputsGiveTheFiguresThatTheyPrint(t *testing.T) {
	for _, tt := range []struct {
		parser, file string
		want         []string // metric, bytes, iterations, value, unit
	}{
		{"ping", "recorded-iputils-20221126.txt", []string{"latency_min 0 5 2431 us", "latency_average 0 5 2668 us",
			"latency_max 0 5 3121 us", "latency_stdev 0 5 259 us", "loss 0 5 0 %"}},
		{"ping", "recorded-busybox-1.35.txt", []string{"latency_min 0 5 2662 us", "latency_average 0 5 4545 us",
			"latency_max 0 5 6923 us", "loss 0 5 0 %"}},
		{"sysbench", "recorded-1.0.20-cpu-2threads.txt", []string{"events_per_second 0 8867 4428.47 events/s"}},
		{"sysbench", "synthetic-1.1-cpu.txt", []string{"events_per_second 0 10003 1000.25 events/s"}},
		{"stress-ng", "recorded-0.15.06-tcg-stream.txt", []string{"memory_bandwidth 0 0 0.0550817 GB/s"}},
		{"ucx", "recorded-1.13.1-rxe-tcg-put_lat.txt", []string{"latency_typical 8 300 3987.5 us",
			"latency_average 8 300 4460.24 us", "message_rate 8 300 0.000224 Mpps"}},
		{"ucx", "recorded-1.13.1-rxe-tcg-put_bw.txt", []string{"bw_average 8 200 0.0326317 Gb/s",
			"message_rate 8 200 6.3e-05 Mpps"}},
		{"ucx", "recorded-1.18.1-rxe-tcg-put_bw.txt", []string{"bw_average 8 1770 0.256104 Gb/s",
			"message_rate 8 1770 0.000489 Mpps"}},
		{"ucx", "recorded-1.13.1-tcp-tcg-tag_lat.txt", []string{"latency_typical 8 500 1209.5 us",
			"latency_average 8 500 1745.63 us", "message_rate 8 500 0.000573 Mpps"}},
		{"libfabric", "recorded-1.17.0-tcp-loopback.txt", []string{"latency_average 64 20 6483.67 us",
			"latency_average 256 20 1691.6 us", "latency_average 1024 20 3775.12 us",
			"latency_average 4096 20 2327.9 us", "latency_average 65536 20 1388.4 us",
			"latency_average 1048576 20 4481.3 us"}},
		{"libfabric", "recorded-1.17.0-rxe-tcg-msg.txt", []string{"latency_average 64 60 882.28 us",
			"latency_average 256 60 1021.88 us", "latency_average 1024 60 728.88 us",
			"latency_average 4096 60 827.76 us", "latency_average 65536 60 3536.18 us",
			"latency_average 1048576 60 28923.8 us"}},
		{"libfabric", "recorded-1.17.0-rxe-tcg-1536.txt", []string{"latency_average 1536 1000 739.85 us"}},
		{"osu", "synthetic-7.5-osu_latency-avg.txt", []string{"latency_average 1 0 1.61 us",
			"latency_average 2 0 1.6 us", "latency_average 4 0 1.62 us", "latency_average 8 0 1.65 us"}},
		{"osu", "synthetic-7.5-osu_latency-tail.txt", []string{"latency_average 1 0 1.18 us",
			"latency_typical 1 0 1.17 us", "latency_p99 1 0 1.4 us", "latency_average 2 0 1.19 us",
			"latency_typical 2 0 1.18 us", "latency_p99 2 0 1.42 us"}},
		{"osu", "synthetic-7.5-osu_bibw-cuda-tail.txt", []string{"bw_average 32768 0 144 Gb/s",
			"bw_average 65536 0 160.004 Gb/s"}},
		{"osu", "synthetic-7.3-osu_allreduce-full.txt", []string{"collective_time 4 1000 3.02 us",
			"collective_time 8 1000 3.04 us", "collective_time 16 1000 3.1 us"}},
		{"lmbench", "synthetic-3.0-a9-4KiB.txt", []string{"load_latency 512 0 1.1 ns", "load_latency 1024 0 1.113 ns",
			"load_latency 2048 0 1.126 ns", "load_latency 3072 0 1.139 ns", "load_latency 4096 0 1.152 ns"}},
		{"7-zip", "recorded-26.02-7z-2threads.txt", []string{"rating 0 0 3366 MIPS", "rating_compress 0 0 3745 MIPS",
			"rating_decompress 0 0 2987 MIPS"}},
		{"7-zip", "recorded-26.02-7zz-md20-1thread.txt", []string{"rating 0 0 3302 MIPS",
			"rating_compress 0 0 3321 MIPS", "rating_decompress 0 0 3282 MIPS"}},
		{"7-zip", "synthetic-16.02-8threads.txt", []string{"rating 0 0 20304 MIPS", "rating_compress 0 0 19394 MIPS",
			"rating_decompress 0 0 21215 MIPS"}},
	} {
		t.Run(tt.parser+" "+tt.file, func(t *testing.T) {
			got, err := parsers[tt.parser](readFile(t, "testdata/"+tt.parser+"/"+tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, figureWords(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// "-S all" begins with empty messages, has one and a half of each power of two, and ends with 6 MiB.
func TestAllSizesOfFiPingpong(t *testing.T) {
	figures, err := ParseFiPingpong(readFile(t, "testdata/libfabric/recorded-1.17.0-rxe-tcg-all.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for _, f := range figures {
		sizes = append(sizes, f.Bytes)
	}
	want := []int64{1, 2, 3, 4, 6}
	for size := int64(8); size <= 4<<20; size *= 2 {
		want = append(want, size, size+size/2)
	}
	if diff := cmp.Diff(want, sizes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The tool shortens 1500 iterations to 1k.
func TestFiPingpongTellsWhatWasAskedFor(t *testing.T) {
	e := mustEngine(t, "fi_pingpong")
	out := bench.Output{Stdout: readFile(t, "testdata/libfabric/recorded-1.17.0-rxe-tcg-1536.txt")}
	figures, err := e.Plugin.Parse(out, bench.Options{Bytes: 1536, Iterations: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"latency_average 1536 1500 739.85 us"}, figureWords(figures)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Stdout = readFile(t, "testdata/libfabric/recorded-1.17.0-rxe-tcg-msg.txt")
	if _, err := e.Plugin.Parse(out, bench.Options{Quick: true}); err == nil || !strings.Contains(err.Error(),
		"6 sizes, of one that was asked for") {
		t.Errorf("six sizes for one: %v", err)
	}
}

// A parser that counts columns would confuse the bandwidths: for an all-reduce over 8 GPUs the bus bandwidth is 7/4 of
// the other.
func TestBusBandwidthIsFoundInEveryLayout(t *testing.T) {
	for _, tt := range []struct {
		file    string
		figures int
		bytes   int64
		bus     float64
		time    float64
	}{
		{"superbench-ndv4-all_reduce.log", 59, 8589934592, 235.26, 63896},
		{"superbench-ndv4-all_gather.log", 0, 8589934592, 223.39, 33646},
		{"superbench-ndv4-alltoall.log", 54, 8589934592, 224.31, 33508},      // its column redop is empty
		{"timez-2xa100-all_reduce-debug.txt", 22, 8589934592, 216.60, 39658}, // NCCL's log interrupted each row, twice
		{"dgxc-h100-all_reduce.txt", 61, 17179869184, 479.90, 62648},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, err := ParseNCCLTests(readFile(t, "testdata/nccl-tests/"+tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if tt.figures != 0 && len(got) != tt.figures {
				t.Errorf("%d figures, want %d", len(got), tt.figures)
			}
			if f := figure(t, got, bench.MetricBusBandwidth, tt.bytes); f.Value != tt.bus || f.Unit != "GB/s" {
				t.Errorf("%+v, want %g", f, tt.bus)
			}
			if f := figure(t, got, bench.MetricCollectiveTime, tt.bytes); f.Value != tt.time {
				t.Errorf("%+v, want %g", f, tt.time)
			}
			for _, f := range got {
				if f.Bytes == 0 {
					t.Errorf("a figure of 0 bytes: %+v", f)
				}
			}
		})
	}
}

func TestBelowATableOfNCCLTestsEverythingMayStand(t *testing.T) {
	table := readFile(t, "testdata/nccl-tests/dgxc-h100-all_reduce.txt")
	want, err := ParseNCCLTests(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, below := range []string{"\nFinished at Tue Apr 21 10:00:00 UTC 2026\n",
		"=====\nCASE 2\nCOMMAND:\nmpirun x\n", "done"} {
		if got, err := ParseNCCLTests(slices.Concat(table, []byte(below))); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%q: %d figures of %d, error %v", below, len(got), len(want), err)
		}
	}
	if _, err := ParseNCCLTests(slices.Concat(table, table)); err == nil {
		t.Error("two tables are read as one")
	}
}

func TestAProgramOfNCCLTestsThatGaveUp(t *testing.T) {
	const parameters = "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5\n#\n"
	for _, tt := range []struct{ name, output, want string }{
		{"over a completion with error", parameters +
			"vm2:15364:15376 [0] transport/net_ib.cc:1192 NCCL WARN NET/IB : Got completion with error 4, opcode 1, " +
			"len 0, " +
			"vendor err 81\nvm1: Test NCCL failure common.cu:499 'unhandled system error'\n",
			`line 3 "vm2:15364:15376 [0] transport/net_ib.cc:1192 NCCL WARN NET/IB : Got completion with error 4, ` +
				`opcode 1, len 0, vendor err 81": the program gave up; status 4 is local protection error; vendor ` +
				`error 0x51 is ` +
				`seen beside status 4, local protection error`},
		{"over CUDA, which NCCL does not see", parameters + "gpu1: Test CUDA failure common.cu:892 'out of memory'\n",
			`line 3 "gpu1: Test CUDA failure common.cu:892 'out of memory'": the program gave up`},
		{"over fewer GPUs than it was to use", string(readFile(t,
			"testdata/nccl-tests/recorded-2.19.6-h200-two-gpus.txt")),
			`line 6 ".. node1 pid 3293: Test failure common.cu:1454": the program gave up`},
		{"over no GPU at all", string(readFile(t, "testdata/nccl-tests/recorded-2.19.6-no-gpu.txt")),
			`line 6 "node1: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'": the program gave up`},
		{"where standard error comes first", "Invalid number of GPUs: 2 requested but only 1 were found.\n" +
			parameters,
			`line 1 "Invalid number of GPUs: 2 requested but only 1 were found.": the program gave up`},
		{"and nothing says so", parameters,
			`line 2 "#": the table is cut off or empty: the line on values out of bounds ` +
				`is missing, or no row comes before it`},
	} {
		_, err := ParseNCCLTests([]byte(tt.output))
		if want := "read result of nccl-tests, " + tt.want; err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", tt.name, err, want)
		}
	}
}

func TestNVBandwidthSaysWhyThereIsNoResult(t *testing.T) {
	for file, want := range map[string]string{
		"recorded-0.8-h200-waived.txt": "all test cases were waived: the machine lacks what they take, such as a " +
			"second GPU",
		"recorded-0.8-h200-unknown-testcase.txt": `line 11 "ERROR: Testcase nothing_like_that not found!": the ` +
			`release has no such test case: nvbandwidth -l lists those that it has`,
		"recorded-0.8-no-gpu.txt": `line 4 "[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected in expression ` +
			`cuInit(0) in int main(int, char**)() : nvbandwidth.cpp:270": the program gave up`,
	} {
		_, err := ParseNVBandwidths(readFile(t, "testdata/nvbandwidth/"+file))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", file, err, want)
		}
	}
}

// Several ranks do not count data that a rank already has. For other operations such a figure is wrong.
func TestAHypercubeCountsWhatIsSent(t *testing.T) {
	const rank = "#  Rank  0 Group  0 Pid   3443 on      node1 device  0 [0000:00:06] NVIDIA H200\n"
	recorded := string(readFile(t, "testdata/nccl-tests/recorded-2.19.6-h200-hypercube.txt"))
	four := strings.NewReplacer(rank, strings.Repeat(rank, 4),
		"16777216       4194304     float              -1     7.22    0.00    0.00       0     0.19    0.00",
		"16777216       4194304     float              -1    83.89  150.00  150.00       0    83.89  150.00",
	).Replace(recorded)
	for _, short := range []string{"5.65", "5.56", "5.35", "5.38", "6.08", "5.58", "5.61"} {
		four = strings.ReplaceAll(four, short, "9e9")
	}
	got, err := ParseNCCLTests([]byte(four))
	if err != nil {
		t.Fatal(err)
	}
	if f := figure(t, got, bench.MetricBusBandwidth, 16777216); f.Value != 150 {
		t.Errorf("%+v", f)
	}
	if _, err := ParseNCCLTests([]byte(strings.Replace(four, "hypercube_perf", "sendrecv_perf", 1))); err == nil {
		t.Error("a bandwidth that its time does not give is taken")
	}
}

func TestCopiesAreThoseOfTheSlowestGPU(t *testing.T) {
	for _, tt := range []struct {
		file, testcase, version string
		want                    float64
	}{
		{"superbench-gh200.log", "host_to_device_memcpy_ce", "0.6", 269.33},
		{"superbench-gh200.log", "device_to_host_memcpy_ce", "0.6", 295.15},
		{"synthetic-0.8-device_local_copy.txt", "device_local_copy", "0.8", 398.5},
	} {
		in := readFile(t, "testdata/nvbandwidth/"+tt.file)
		got, err := ParseNVBandwidth(in, tt.testcase)
		if want := []bench.Figure{{Metric: bench.MetricCopyBandwidth, Value: tt.want,
			Unit: bench.UnitGBps}}; err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %v, error %v, want %v", tt.testcase, figureWords(got), err, figureWords(want))
		}
		if v := mustEngine(t, "gpu_bandwidth_h2d").Version(bench.Output{Stdout: in}); v != tt.version {
			t.Errorf("version %q, want %q", v, tt.version)
		}
	}
}

func change(t *testing.T, file, old, replacement string) string {
	t.Helper()
	in := string(readFile(t, "testdata/"+file))
	if !strings.Contains(in, old) {
		t.Fatalf("%s has no %q", file, old)
	}
	return strings.Replace(in, old, replacement, 1)
}

func TestOutputsThatAreNoResultAreRefusedWithTheirLine(t *testing.T) {
	const (
		iputils = "ping/recorded-iputils-20221126.txt"
		prime   = "sysbench/recorded-1.0.20-cpu-2threads.txt"
		stream  = "stress-ng/recorded-0.15.06-tcg-stream.txt"
		putLat  = "ucx/recorded-1.13.1-rxe-tcg-put_lat.txt"
		putBW   = "ucx/recorded-1.13.1-rxe-tcg-put_bw.txt"
		fi      = "libfabric/recorded-1.17.0-tcp-loopback.txt"
		gh200   = "nvbandwidth/superbench-gh200.log"
		h100    = "nccl-tests/dgxc-h100-all_reduce.txt"
		debug   = "nccl-tests/timez-2xa100-all_reduce-debug.txt"
		bw      = "osu/stackhpc-roce-gcc9-openmpi4-ucx-osu_bw.txt"
		reduce  = "osu/synthetic-7.3-osu_allreduce-full.txt"
		zip     = "7-zip/recorded-26.02-7z-2threads.txt"
		chase   = "lmbench/synthetic-3.0-a9-64MiB.txt"
	)
	for _, tt := range []struct{ name, parser, file, old, replacement, want string }{
		{"no echo came back", "ping", "ping/recorded-iputils-20221126-bad-none.txt", "", "",
			`line 4 "3 packets transmitted, 0 received, 100% packet loss, time 410ms": no echo came back`},
		{"an echo came twice", "ping", iputils, "5 received,", "5 received, +1 duplicates,",
			"an echo came back twice: two nodes have the address, or the network has a loop"},
		{"more echoes than sent", "ping", iputils, "5 received", "6 received", "more echoes came back than were sent"},
		{"a decimal comma", "ping", iputils, "2.431", "2,431", `min: value "2,431": not a decimal number`},
		{"a time of zero", "ping", iputils, "2.431/2.668", "0.000/2.668",
			`min: value "0.000": a value of zero is a failed measurement`},
		{"not a number", "ping", iputils, "2.668", "nan", `avg: value "nan": not a decimal number`},
		{"another unit", "ping", iputils, "0.259 ms", "0.259 s", "unknown form of the times"},
		{"another title", "ping", iputils, "avg/max", "med/max", `unknown layout: column "med"`},
		{"a title less", "ping", iputils, "min/avg/max/mdev", "min/avg/max",
			"the row has 4 fields, the header 3 columns"},
		{"times out of order", "ping", iputils, "2.431/2.668", "2.931/2.668", "the times are not in order"},
		{"more below the summary", "ping", iputils, "rtt min", "ping: sendmsg: No buffer space\nrtt min",
			"unknown line below the summary"},
		{"another summary", "ping", iputils, "0% packet loss", "0% lost", "unknown form of the summary"},

		{"a rate of zero", "sysbench", prime, "4428.47", "0.00",
			`value "0.00": a value of zero is a failed measurement`},
		{"a decimal comma", "sysbench", prime, "4428.47", "4428,47", `value "4428,47": not a decimal number`},
		{"a rate that its events do not give", "sysbench", prime, "4428.47", "8856.94",
			"events_per_second 8856.94 does not agree with 4430.4, which follows from what else is printed"},
		{"two rates", "sysbench", "sysbench/synthetic-1.1-cpu.txt", "1000.2500", "1100.2500",
			"events_per_second 1000.25 does not agree with 1100.25, which follows from what else is printed"},
		{"minutes", "sysbench", prime, "2.0014s", "2.0014m", `seconds: value "2.0014m": not a decimal number`},
		{"cut off", "sysbench", prime, "    execution time", "    exec", "the output is not whole: its end is missing"},
		{"without its rate", "sysbench", prime, "events per second", "events",
			"the output is not whole: events_per_second is missing"},

		{"too short a run", "stress-ng", "stress-ng/recorded-0.15.06-tcg-bad-short.txt", "", "",
			"stress-ng measured nothing"},
		{"a rate of zero", "stress-ng", stream, "14.68 MB", "0.00 MB",
			`value "0.00": a value of zero is a failed measurement`},
		{"infinite", "stress-ng", stream, "14.68 MB", "inf MB", `value "inf": not a decimal number`},
		{"another unit", "stress-ng", stream, "14.68 MB read", "14.68 GB read", "unknown form of a memory rate"},
		{"an instance twice", "stress-ng", stream, "(instance 1)", "(instance 0)", "the instance comes a second time"},
		{"cut off", "stress-ng", stream, "successful run", "succ",
			"the line that says that the run was completed is missing"},
		{"a failed stressor", "stress-ng", stream, "stress-ng: metrc: [365] stressor", "stress-ng: fail:  [365] stream",
			"stress-ng measured nothing"},

		{"a latency of zero", "ucx", putLat, "4460.238", "0.000",
			`column latency (usec) overall: value "0.000": a value of zero is a failed measurement`},
		{"a decimal comma", "ucx", putLat, "4460.238", "4460,238",
			`column latency (usec) overall: value "4460,238": not a decimal number`},
		{"another unit", "ucx", putLat, "latency (usec)", "latency (nsec)",
			`unknown layout: column "50.0%ile" below "latency (nsec)"`},
		{"another percentile", "ucx", putLat, "50.0%ile", "75.0%ile",
			`unknown layout: column "75.0%ile" below "latency (usec)"`},
		{"a field less", "ucx", putLat, "4460.238", "", "the row has 7 fields, the header 8 columns"},
		{"no rate at all", "ucx", putBW, "     3.89 ", "     -nan ",
			`column bandwidth (MB/s) overall: value "-nan": not a decimal number`},
		{"an error in the table", "ucx", putBW, "[thread 0]                65", "UCX ERROR x",
			"unknown line in the table"},
		{"no iterations", "ucx", putLat, "  300 ", "    0 ", `column # iterations: value "0": not above zero`},

		{"not all came back", "libfabric", fi, "=20", "=19", `column #ack: value "=19": not all messages came back`},
		{"a time of zero", "libfabric", fi, "6483.67", "0.00",
			`usec/xfer: value "0.00": a value of zero is a failed measurement`},
		{"a decimal comma", "libfabric", fi, "6483.67", "6483,67", `usec/xfer: value "6483,67": not a decimal number`},
		{"another column", "libfabric", fi, "usec/xfer", "nsec/xfer", `unknown layout: column "nsec/xfer"`},
		{"a column more", "libfabric", fi, "Mxfers/sec", "Mxfers/sec  more",
			`unknown layout: column "more"`},
		{"another size", "libfabric", fi, "64k ", "64x ", `column bytes: value "64x": no number of this tool`},
		{"part of a byte", "libfabric", fi, "256 ", "2.5 ", `column bytes: value "2.5": no number of this tool`},
		{"hundredths", "libfabric", fi, "64k ", "1.25k ", `column bytes: value "1.25k": no number of this tool`},
		{"a line above the table", "libfabric", fi, "bytes ", "fi_getinfo(): -61\nbytes ", "a line above the table"},

		{"rows that do not add up", "nvbandwidth", gh200, "369.36", "36.936", "the rows above add up to 1653.18"},
		{"a bandwidth of zero", "nvbandwidth", gh200, "369.36", "  0.00",
			`column 0: value "0.00": a value of zero is a failed measurement`},
		{"no bandwidth between two", "nvbandwidth", gh200, "369.36", "   N/A",
			`column 0: value "N/A": not a decimal number`},
		{"a column less than its header", "nvbandwidth", gh200, "369.36", "",
			"the row has 3 fields, the header 3 columns"},
		{"another unit", "nvbandwidth", gh200, "GPU(column) bandwidth (GB/s)", "GPU(column) (ns)",
			"unknown layout: want the line that says what is copied, in GB/s"},
		{"another header", "nvbandwidth", gh200, "           0         1         2", "           0         2",
			"unknown layout: want the numbers of the columns"},
		{"another sum", "nvbandwidth", gh200, "SUM host_to_device_memcpy_ce", "SUM all",
			"unknown layout: want SUM, host_to_device_memcpy_ce and the sum"},
		{"it comes twice", "nvbandwidth", gh200, "Running device_to_host_memcpy_ce.",
			"Running host_to_device_memcpy_ce.", "host_to_device_memcpy_ce comes a second time"},
		{"another test case", "nvbandwidth", "nvbandwidth/synthetic-0.8-device_local_copy.txt", "", "",
			"the results of host_to_device_memcpy_ce are cut off or missing"},
		{"wrong elements", "nccl-tests", h100, "477.24      0", "477.24      3",
			`column #wrong: value "3": elements of the result are wrong`},
		{"values out of bounds", "nccl-tests", h100, "0 OK", "2 FAILED", "the results of the collective are wrong"},
		{"cut off", "nccl-tests", h100, "# Out of bounds", "# Out",
			"the table is cut off or empty: the line on values out of bounds is missing, or no row comes before it"},
		{"another unit", "nccl-tests", h100, "(us)  (GB/s)", "(us)  (MB/s)", "unknown layout: other units"},
		{"another column", "nccl-tests", h100, "  root  ", "  peer  ", `unknown layout: column "peer"`},
		{"a column less than its header", "nccl-tests", h100, "sum      -1    13.67", "sum    13.67",
			"the row has 12 fields, the header 13 columns"},
		{"a bandwidth that its time does not give", "nccl-tests", h100, "272.71", "172.71",
			"4294967296 bytes in 15749 us are not 172.71 GB/s"},
		{"a decimal comma", "nccl-tests", h100, "272.71", "272,71",
			`column algbw: value "272,71": not a decimal number`},
		{"a time of zero", "nccl-tests", h100, "15749", "0", `column time: value "0": not above zero`},
		{"a row that a log line cut in two, without its end", "nccl-tests", debug, "    39657  216.61  216.61      0\n",
			"", "the row above has 9 fields, the header 13 columns"},
		{"a row that a log line cut in two, without its middle", "nccl-tests", debug,
			"    39658  216.60  216.60      0mew0", "mew0", "the row has 9 fields, the header 13 columns"},
		{"a bandwidth of zero", "osu", bw, "3007.99", "   0.00",
			`column Bandwidth (MB/s): value "0.00": a value of zero is a failed measurement`},
		{"no number", "osu", bw, "3007.99", "   -nan", `column Bandwidth (MB/s): value "-nan": not a decimal number`},
		{"infinite", "osu", bw, "3007.99", "    inf", `column Bandwidth (MB/s): value "inf": not a decimal number`},
		{"negative", "osu", bw, "3007.99", "-307.99",
			`column Bandwidth (MB/s): value "-307.99": the value is negative`},
		{"a decimal comma", "osu", bw, "3007.99", "3007,99",
			`column Bandwidth (MB/s): value "3007,99": not a decimal number`},
		{"another unit", "osu", bw, "(MB/s)", "(GB/s)", `unknown layout: column "Bandwidth (GB/s)"`},
		{"a latency in a table of a bandwidth", "osu", bw, "Bandwidth (MB/s)", "Latency (us)",
			`unknown layout: column "Latency (us)"`},
		{"no column of its own", "osu", bw, "Bandwidth (MB/s)", "Iterations",
			"unknown layout: 0 columns are what a test of Bandwidth measures, want 1"},
		{"a column twice", "osu", reduce, "Max Latency(us)", "Min Latency(us)",
			`column "Min Latency(us)" appears twice`},
		{"both titles of a latency", "osu", reduce, "Min Latency(us)", "   Latency (us)",
			"unknown layout: 2 columns are what a test of Allreduce Latency measures, want 1"},
		{"no size", "osu", bw, "# Size      Bandwidth (MB/s)", "# Size Bandwidth (MB/s)",
			`unknown layout: column "# Size Bandwidth (MB/s)"`},
		{"a field more", "osu", bw, "3007.99", "3007.99 1", "the row has 3 fields, the header 2 columns"},
		{"a row is missing", "osu", bw, "65536                3007.99\n", "",
			"131072 bytes come after 32768: a row is missing"},
		{"a row that another line took", "osu", bw, "65536                3007.99\n", "[vm01:1] warn 65536 3007.99\n",
			"131072 bytes come after 32768: a row is missing"},
		{"a size twice", "osu", bw, "131072 ", "65536  ", "65536 bytes come after 65536: a row is missing"},
		{"a size beyond all", "osu", bw, "4194304 ", "9223372036854775807 ",
			`column # Size: value "9223372036854775807": not a size`},
		{"a second table", "osu", bw, "65536 ", "# OSU MPI Bandwidth Test v5.6.2\n65536 ", "a second table"},
		{"a second header", "osu", bw, "65536 ", "# Size      Bandwidth (MB/s)\n65536 ", "a second table"},
		{"no title", "osu", bw, "# OSU", "# MY", "the line above the table, which names the test, is missing"},
		{"another test", "osu", "osu/stackhpc-roce-gcc9-openmpi4-ucx-osu_allgather.txt", "Allgather", "Stencil",
			`a table of "Stencil Latency" is not read`},
		{"another unit of the rate", "osu", "osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_mbw_mr_16.txt", "Messages/s",
			"Messages/m", `unknown layout: column "Messages/m"`},
		{"wrong data", "osu", reduce, "Pass", "Fail",
			`column Validation: value "Fail": the data that arrived are not those that were sent`},
		{"wrong data at the end", "osu", bw, "65536 ", "DATA VALIDATION ERROR: osu_bw exited with status 1\n65536 ",
			"the data that arrived are not those that were sent"},
		{"no iterations", "osu", reduce, " 1000 ", "    0 ", `column Iterations: value "0": not above zero`},
		{"no table", "osu", bw, "# Size ", "# Sighs ", "there is no row of a table"},

		{"killed", "7-zip", "7-zip/recorded-26.02-7z-bad-killed.txt", "", "",
			"the output is not whole: rating is missing"},
		{"cut off", "7-zip", zip, "Tot:", "T", "the output is not whole: rating is missing"},
		{"a total that is none", "7-zip", zip, "3366", "3466",
			"rating 3466 does not agree with 3366, which follows from what else is printed"},
		{"a rating of zero", "7-zip", zip, "3745", "   0", `value "0": a value of zero is a failed measurement`},
		{"no number", "7-zip", zip, "3366", " nan", `value "nan": not a decimal number`},
		{"negative", "7-zip", zip, "3745", "-745", `value "-745": the value is negative`},
		{"another unit", "7-zip", zip, "MIPS   MIPS  |", "MIPS   GIPS  |", "unknown layout: other units"},
		{"a column more", "7-zip", zip, "Tot:  ", "Tot: 1 ", "the output is not whole: rating is missing"},
		{"a second table", "7-zip", zip, "Tot:", "Avr:      3593    87   4265   3745  |      34289    88   3393   " +
			"2987\nTot:", "rating_compress comes a second time"},
		{"a total above its averages", "7-zip", zip, "Avr:", "Tot:              87   3829   3366\nAvr:",
			"rating comes a second time"},
		{"no memory", "7-zip", zip, "23:  ", "ERROR: Can't allocate required memory!\n23:  ", "7-Zip gave up"},
		{"stopped", "7-zip", zip, "23:  ", "Break signaled\n23:  ", "7-Zip gave up"},
		{"no number of threads", "7-zip", zip, "threads:      2\n\n", "threads:      x\n\n",
			`threads: value "x": not a decimal number`},

		{"a size that does not grow", "lmbench", chase, "48.00000 ", "24.00000 ", "the size does not grow"},
		{"a part of a byte", "lmbench", chase, "48.00000 ", "0.00010 ", `size "0.00010" is no multiple of 512 bytes`},
		{"no size", "lmbench", chase, "48.00000 ", "48,00000 ", `size "48,00000": not a decimal number`},
		{"a time of zero", "lmbench", chase, "64.00000 96.302", "64.00000 0.000",
			`value "0.000": a value of zero is a failed measurement`},
		{"a row without a time", "lmbench", chase, "64.00000 96.302", "64.00000", "a row has a size and a time"},
		{"a second stride", "lmbench", chase, "64.00000 ", "\"stride=128\n64.00000 ", "a second stride"},
		{"no title", "lmbench", chase, "\"stride", "\"Stride", "the title is missing"},
		{"a row that is cut off", "lmbench", "lmbench/bad-synthetic-cut.txt", "", "", "a row has a size and a time"},
		{"a time that is cut off", "lmbench", chase, "64.00000 96.302\n\n", "64.00000 96.3",
			"the output ends within a row"},

		{"words in the table", "nccl-tests", h100, "      16777216 ", "pool0: Test NCCL failure\n      16777216 ",
			"the row has 4 fields, the header 13 columns"},
	} {
		t.Run(tt.parser+" "+tt.name, func(t *testing.T) {
			in := string(readFile(t, "testdata/"+tt.file))
			if tt.old != "" {
				in = change(t, tt.file, tt.old, tt.replacement)
			}
			figures, err := parsers[tt.parser]([]byte(in))
			var bad *bench.BadResultError
			if !errors.As(err, &bad) || !strings.HasSuffix(err.Error(), tt.want) || bad.Line == 0 {
				t.Errorf("got  %v, error %v\nwant %s", figureWords(figures), err, tt.want)
			}
		})
	}
	for name, parse := range parsers {
		for _, in := range []string{"", "\n", "bash: not found\n"} {
			if figures, err := parse([]byte(in)); err == nil {
				t.Errorf("%s takes %q for %v", name, in, figureWords(figures))
			}
		}
	}
}

// Outputs that end with their last figure have a newline after it.
func TestNoPrefixOfATableGivesWrongFigures(t *testing.T) {
	for parser, file := range map[string]string{
		"ping": "recorded-iputils-20221126.txt", "sysbench": "recorded-1.0.20-cpu-2threads.txt",
		"stress-ng": "recorded-0.15.06-tcg-stream.txt",
		"ucx":       "recorded-1.13.1-rxe-tcg-put_bw.txt", "nccl-tests": "superbench-ndv4-all_reduce.log",
		"nvbandwidth": "superbench-gh200.log", "7-zip": "recorded-26.02-7z-2threads.txt",
	} {
		whole := readFile(t, "testdata/"+parser+"/"+file)
		want, err := parsers[parser](whole)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if got, err := parsers[parser](whole[:n]); err == nil && !cmp.Equal(want, got) {
				t.Fatalf("%s: %d of %d bytes give other figures:\n%s", parser, n, len(whole), cmp.Diff(want, got))
			}
		}
	}
}

func TestThreadsAndInstancesAreCounted(t *testing.T) {
	sysbench, stress := mustEngine(t, "sysbench_cpu"), mustEngine(t, "stress_stream")
	out := bench.Output{Stdout: readFile(t, "testdata/sysbench/recorded-1.0.20-cpu-2threads.txt")}
	if _, err := sysbench.ParseOutput(out, bench.Options{Threads: 4}); err == nil ||
		!strings.HasSuffix(err.Error(), "threads: 2, want 4") {
		t.Error(err)
	}
	out.Stdout = readFile(t, "testdata/stress-ng/recorded-0.15.06-tcg-stream.txt")
	if _, err := stress.ParseOutput(out, bench.Options{Threads: 3}); err == nil ||
		!strings.HasSuffix(err.Error(), "threads: 2, want 3") {
		t.Error(err)
	}
	out.Stdout = []byte("stress-ng: info: [1] stream: memory rate: 1000.00 MB/sec, 50.00 Mflop/sec (instance 0)\n" +
		"stress-ng: info: [1] successful run completed in 6s\n")
	if got, err := stress.ParseOutput(out, bench.Options{Threads: 1}); err != nil ||
		math.Abs(got[0].Value-1.048576) > 1e-9 {
		t.Errorf("one rate for both: %v, %v", figureWords(got), err)
	}
}

// Release 0.4 prints no rate.
func TestTheRateOfAnEarlySysbenchIsDerived(t *testing.T) {
	got, err := mustEngine(t, "sysbench_cpu").Parse(readFile(t, "testdata/sysbench/synthetic-0.4.12-cpu.txt"))
	if want := "events_per_second 0 10000 1600 events/s"; err != nil || !got[0].Derived ||
		strings.Join(figureWords(got), "") != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestALatencyBelowTheWireIsNoResult(t *testing.T) {
	w := bench.Wire{Rate: 10, MTU: 4096}
	lat := func(us float64, bytes int64) []bench.Figure {
		return []bench.Figure{{Metric: bench.MetricLatencyMin, Bytes: bytes, Value: us, Unit: bench.UnitUsec}}
	}
	for _, tt := range []struct {
		engine  string
		figures []bench.Figure
		good    bool
	}{
		{"ib_write_lat", lat(0.9, 2), true},
		{"ib_write_lat", lat(52.43, 65536), true},
		{"ib_write_lat", lat(52, 65536), false},
		{"ping", lat(0.196, 0), true}, // twice 122 bytes
		{"ping", lat(0.15, 0), false},
		{"iperf3", []bench.Figure{{Metric: bench.MetricThroughput, Value: 9.9, Unit: bench.UnitGbps}}, true},
		{"iperf3", []bench.Figure{{Metric: bench.MetricThroughput, Value: 10.1, Unit: bench.UnitGbps}}, false},
		{"ucx_put_bw", []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 10.1, Unit: bench.UnitGbps}},
			false},
		{"ib_write_bw/bidi", []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 19,
			Unit: bench.UnitGbps}}, true},
		{"ib_write_bw/bidi", []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 20.2,
			Unit: bench.UnitGbps}}, false},
		{"ib_atomic_bw", []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 8, Value: 11, Unit: bench.UnitGbps}},
			false},
	} {
		if err := w.Check(mustEngine(t, tt.engine), tt.figures); (err == nil) != tt.good {
			t.Errorf("%s %v: %v", tt.engine, figureWords(tt.figures), err)
		}
		if err := (bench.Wire{}).Check(mustEngine(t, tt.engine), tt.figures); err != nil {
			t.Errorf("%s on a wire of which nothing is known: %v", tt.engine, err)
		}
	}
	ud := bench.Wire{Rate: 25, MTU: 1024}.Limit(mustEngine(t, "ib_send_bw/ud"), 1024)
	if want := 25 * 1024. / 1114; math.Abs(ud/want-1) > 1e-12 {
		t.Errorf("a datagram: %g, want %g", ud, want)
	}
}
