package importer_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/study/importer"
)

// Settings in the text become part of a test's name, and different tests are never repeats of one. Sources:
// NVIDIA/nccl-tests, NVIDIA/nccl#1453 and #229, linux-rdma/perftest (#105), openucx/ucx#8851, verl-project/verl#1516
// (figures made up), iperf3 and OSU.
func TestLogsOfStrangers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, test, metric, want string }{
		{"nccl-line-below.txt", "nccl_alltoall", "bus_bandwidth", "34.17"},
		{"nccl-two-cases.txt", "nccl_alltoall", "bus_bandwidth", "34.17,33.97"},
		{"nccl-alltoallv.txt", "nccl_alltoallv", "bus_bandwidth", "34.17"},
		{"nccl-alltoall.txt", "nccl_alltoall", "bus_bandwidth", "34.17"},
		{"nccl-mpirun-tag-output.txt", "nccl_alltoall", "bus_bandwidth", "34.17"},
		{"nccl-prepend-rank.txt", "nccl_all_reduce", "bus_bandwidth", "4.09"},
		{"rccl-two-hosts.txt", "rccl_all_reduce", "bus_bandwidth", "6.84"},
		{"osu-no-space.txt", "osu_bw", "bw_average", "170.5"},
		{"perftest-no-marks.txt", "ib_read_bw", "bw_average", "3.284"},
		{"perftest-cuda.txt", "ib_write_bw/cuda0/dmabuf", "bw_average", "140.4"},
		{"perftest-host.txt", "ib_write_bw", "bw_average", "390"},
		{"iperf3-bidir.json", "iperf3/bidir", "throughput", "8.964"},
		{"iperf3-uni.json", "iperf3", "throughput", "8.964"},
		{"osu-indented.txt", "osu_bw", "bw_average", "0.1273"},
		{"osu-non-blocking.txt", "osu_iallreduce", "collective_time", "4.1"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{
				tt.file: testdata(t, "testdata/cases/"+tt.file)}))
			var got []string
			for _, r := range s.Runs {
				best := ""
				for _, x := range r.Samples {
					if x.Test != tt.test {
						t.Errorf("a figure of %s", x.Test)
					}
					if x.Metric == tt.metric { // the largest message
						best = strconv.FormatFloat(x.Value, 'g', 4, 64)
					}
				}
				got = append(got, best)
			}
			if all := strings.Join(got, ","); all != tt.want || len(failures(s)) > 0 {
				t.Errorf("%s of %s: %s, want %s; failures %q", tt.metric, tt.test, all, tt.want, failures(s))
			}
		})
	}
	for file, want := range map[string]string{
		"perftest-status-4.txt":  "status 4, local protection error",
		"perftest-status-12.txt": "status 12, transport retry counter exceeded",
		"perftest-no-qp.txt":     `line 6 "Unable to create QP.": the device refused the queue pair`,
		"nccl-ofi-tcp.txt":       "it says that the plugin for libfabric took the provider tcp, which is no RDMA",
		"nccl-gave-up.txt":       "NCCL WARN NET/IB : Got completion from peer 192.0.2.12<60054> with error 4",
	} {
		_, err := importer.Import([]importer.Source{files("d", map[string]string{
			file: testdata(t, "testdata/cases/"+file)})}, importer.Options{Name: "a"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// The log of an unsupported tool is named, with an alternative.
func TestLogsThatAreNotReadAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 32: 4.71 GB/s (RDMA), 9.50 GB/s (NVL)\n": "DeepEP",
		"[rank 0] Dispatch bandwidth: 38.19 GB/s, avg_t=197.04 us\n":                                     "DeepEP",
		"Timing for main: time 2005-08-28_00:01:00 on domain   1:    1.23 elapsed seconds\n":             "WRF",
		"Info: Benchmark time: 8 CPUs 0.5 s/step 5.8 days/ns 0 MB memory\n":                              "NAMD",
		"#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part\n":                                              "Intel MPI",
		"|    Stage     | # iterations | 50.0%ile | average | overall |  average |\n" +
			"|              |              |      overhead (usec)      |\n": "ucx_perftest",
		"bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n": "fi_pingpong",
		"[CUDA Bandwidth Test] - Starting...\nRunning on...\n":                             "bandwidthTest",
		"STREAM version $Revision: 5.10 $\n":                                               "STREAM",
		"{\n  \"fio version\" : \"fio-3.36\",\n  \"timestamp\" : 1\n}\n":                   "fio",
		"neither\n": "of no known format",
	} {
		_, err := importer.Import([]importer.Source{files("d", map[string]string{"a.txt": text})},
			importer.Options{Name: "a"})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "read are logs of") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Web pages take "#" at the beginning of a line; the figures stay the same.
func TestHeadingsWithoutTheirMarks(t *testing.T) {
	t.Parallel()
	values := func(text string) (all []float64) {
		for _, r := range one(t, importer.Options{Name: "a"}, files("d", map[string]string{"x.txt": text})).Runs {
			for _, x := range r.Samples {
				all = append(all, x.Value)
			}
		}
		return all
	}
	for _, tt := range []struct{ file, mark, without string }{
		{"nccl-tests/dgxc-h100-all_reduce.txt", `(?m)^# *`, ""},
		{"nccl-tests/dgxc-h100-all_reduce.txt", `(?m)^# +`, "#"},
		{"nccl-tests/synthetic-rccl-broadcast.txt", `(?m)^#`, ""},
		{"osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt", `(?m)^# `, ""},
		{"osu/synthetic-7.5-osu_bibw-cuda-tail.txt", `(?m)^# `, "#"},
		{"osu/synthetic-7.5-osu_latency-avg.txt", `(?m)^# `, "#"},
		{"perftest/synthetic-write_bw-cx4lx-25g.txt", `#iterations`, "iterations"},
		{"perftest/synthetic-write_bw-cx4lx-25g.txt", `(?m)#|^-+$`, ""},
	} {
		text := testdata(t, "../../bench/tool/testdata/"+tt.file)
		bare := regexp.MustCompile(tt.mark).ReplaceAllString(text, tt.without)
		if got, want := values(bare), values(text); bare == text || !slices.Equal(got, want) {
			t.Errorf("%s without %s: %v, want %v", tt.file, tt.mark, got, want)
		}
	}
}

// A program that gave up before its title is known by its own words.
func TestProgramsThatGaveUpEarlyAreKnown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Unable to create QP.\nFailed to create QP.\n":                     importer.Perftest,
		" Couldn't create IB resources\n":                                  importer.Perftest,
		"Couldn't allocate MR\n":                                           importer.Perftest,
		"Couldn't create CQ\nFailed to create CQs\n":                       importer.Perftest,
		" Unable to perform rdma_client function\n":                        importer.Perftest,
		"* Waiting for client to connect... *\n":                           importer.Perftest,
		"n1:2:3 [0] NCCL INFO NET/OFI Selected Provider is tcp\n":          importer.NCCLTests,
		"We were unable to create QP. It failed.\n":                        "",
		"a note on NCCL\nand Couldn't create IB resources in the middle\n": "",
	} {
		if got := importer.Tool([]byte(text)); got != want {
			t.Errorf("%q is of %q, want %q", text, got, want)
		}
	}
}
