package bench

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines writes the tests of an output with the number of their figures, and errors.
func lines(res Tests) []string {
	var out []string
	for _, t := range res.All {
		text := fmt.Sprintf("%s %d", t.Name, len(t.Figures))
		if t.Err != nil {
			text += " failed"
		}
		out = append(out, text)
	}
	return out
}

func TestOutputsOfSeveralTests(t *testing.T) {
	for _, tt := range []struct {
		file    string
		parse   func([]byte) (Tests, error)
		version string
		tests   []string // with the number of figures
		some    []string // test, and a figure
	}{
		{"imb/stackhpc-2019.5-pingpong.txt", ParseIMB, "2019 Update 5", []string{"imb_pingpong 47"}, []string{
			"imb_pingpong latency_average 0 1000 1.03 us", "imb_pingpong bw_average 4194304 10 95.1408 Gb/s"}},
		{"imb/recorded-2021.11-mpi1.txt", ParseIMB, "2021.11", []string{"imb_pingpong 25", "imb_sendrecv 27",
			"imb_allreduce 12", "imb_barrier 1"}, []string{"imb_sendrecv latency_average 1024 200 200.42 us",
			"imb_allreduce collective_time 4096 200 476.4 us", "imb_barrier collective_time 0 200 12.48 us"}},
		{"imb/recorded-2021.11-nbc.txt", ParseIMB, "2021.11", []string{"imb_iallreduce 6", "imb_ibarrier 1"},
			[]string{"imb_iallreduce collective_time 64 100 183.82 us"}},
		{"imb/recorded-2021.11-multi.txt", ParseIMB, "2021.11", []string{"imb_uniband 11", "imb_pingpong 11"},
			[]string{"imb_uniband message_rate 4 50 0.162349 Mpps"}},
		// A megabyte was 2^20 bytes, Sendrecv counts both ways, and one size ran out of time.
		{"imb/synthetic-3.2-sendrecv.txt", ParseIMB, "3.2", []string{"imb_sendrecv 5", "imb_alltoall/np8 3 failed"},
			[]string{"imb_sendrecv bw_average 65536 640 26.2144 Gb/s"}},
		{"fio/recorded-3.33-jobs.txt", ParseFio, "3.33", []string{"fio_write/seqwrite/psync 6",
			"fio_randread/rnd/psync/j2 3", "fio_randread/trimmed/psync/d4 6"}, []string{
			"fio_write/seqwrite/psync io_bandwidth 65536 0 8.08872 GB/s",
			"fio_write/seqwrite/psync io_rate 65536 0 123000 IO/s",
			"fio_write/seqwrite/psync latency_average 65536 0 7.79 us",
			"fio_write/seqwrite/psync latency_p99 65536 0 10.688 us",
			// (384k + 89.3k) operations; sizes are split.
			"fio_randread/rnd/psync/j2 io_rate 4096 0 473300 IO/s",
			"fio_randread/trimmed/psync/d4 io_rate 0 0 523000 IO/s"}},
		{"fio/recorded-3.33-jobs-grouped.txt", ParseFio, "3.33", []string{"fio_write/seqwrite/psync 6",
			"fio_randread/rnd/psync/j2 6", "fio_randread/trimmed/psync/d4 6"}, nil},
		{"fio/recorded-3.33-jobs-json-and-text.txt", ParseFio, "3.33", []string{"fio_write/seqwrite/psync 6",
			"fio_randread/rnd/psync/j2 3", "fio_randread/trimmed/psync/d4 6"},
			[]string{"fio_write/seqwrite/psync io_bandwidth 65536 0 9.36687 GB/s"}},
		{"fio/recorded-3.33-randrw.json", ParseFio, "3.33", []string{"fio_randrw/t/psync/read 6",
			"fio_randrw/t/psync/write 6"}, []string{"fio_randrw/t/psync/read latency_p99.9 4096 0 489.472 us",
			"fio_randrw/t/psync/write io_rate 4096 0 95762.6 IO/s"}},
		// KB are 1024 bytes in release 2, in text and JSON, and times us.
		{"fio/synthetic-2.1.11.txt", ParseFio, "2.1.11", []string{"fio_randwrite/4kwrite/libaio/d64 6"}, []string{
			"fio_randwrite/4kwrite/libaio/d64 io_bandwidth 4096 0 0.0536873 GB/s",
			"fio_randwrite/4kwrite/libaio/d64 latency_p99 4096 0 7300 us"}},
		{"fio/synthetic-2.1.11.json", ParseFio, "2.1.11", []string{"fio_write/4kwrite 6"}, []string{
			"fio_write/4kwrite io_bandwidth 4096 0 0.0536873 GB/s",
			"fio_write/4kwrite latency_average 4096 0 4880.5 us"}},
		{"fio/synthetic-bad-no-space.txt", ParseFio, "3.28", []string{"fio_write/fill/libaio/d8 0 failed"}, nil},
		{"stress-ng/recorded-0.15.06-metrics.txt", ParseStressNG, "", []string{"stress_cpu/instances2 1", "stress_vm 1",
			"stress_matrix 1"}, []string{"stress_cpu/instances2 events_per_second 0 1139 566.35 events/s"}},
		{"stress-ng/recorded-0.15.06-metrics-brief.txt", ParseStressNG, "", []string{"stress_pipe 1", "stress_cache 1"},
			nil},
		{"stress-ng/recorded-0.15.06-stream-metrics.txt", ParseStressNG, "", []string{"stress_stream 2"}, []string{
			"stress_stream memory_bandwidth 0 0 14.9799 GB/s", "stress_stream events_per_second 0 57 9.2 events/s"}},
		{"cuda-bandwidthtest/superbench-h2d.log", ParseCUDABandwidth, "", []string{"cuda_bandwidthtest_h2d 81"},
			[]string{"cuda_bandwidthtest_h2d copy_bandwidth 68000000 0 12.4 GB/s"}},
		{"cuda-bandwidthtest/synthetic-quick.txt", ParseCUDABandwidth, "", []string{"cuda_bandwidthtest_h2d 1",
			"cuda_bandwidthtest_d2h/pageable 1", "cuda_bandwidthtest_d2d 1"}, []string{
			"cuda_bandwidthtest_h2d copy_bandwidth 32000000 0 24.6 GB/s",
			"cuda_bandwidthtest_d2h/pageable copy_bandwidth 32000000 0 9.1 GB/s",
			"cuda_bandwidthtest_d2d copy_bandwidth 32000000 0 1166.9 GB/s"}},
		// Lines alone, and the MB/s of releases up to CUDA 10.
		{"cuda-bandwidthtest/synthetic-csv.txt", ParseCUDABandwidth, "", []string{"cuda_bandwidthtest_h2d 1",
			"cuda_bandwidthtest_d2h/pageable 1", "cuda_bandwidthtest_d2d/gpus2 1"}, []string{
			"cuda_bandwidthtest_h2d copy_bandwidth 33554432 0 12.5829 GB/s",
			"cuda_bandwidthtest_d2h/pageable copy_bandwidth 33554432 0 6.3 GB/s"}},
		{"nvbandwidth/synthetic-0.8.json", ParseNVBandwidths, "0.8", []string{"gpu_bandwidth_h2d 1",
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce 1", "nvbandwidth_host_device_latency_sm 1",
			"nvbandwidth_host_to_all_memcpy_ce 0 failed"}, []string{"gpu_bandwidth_h2d copy_bandwidth 0 0 54.1033 GB/s",
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce copy_bandwidth 0 0 52.3 GB/s",
			"nvbandwidth_host_device_latency_sm load_latency 0 0 810.4 ns"}},
		{"nvbandwidth/synthetic-0.8-both-ways.txt", ParseNVBandwidths, "0.8", []string{
			"nvbandwidth_device_to_device_memcpy_read_ce 1",
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce 1",
			"nvbandwidth_host_device_latency_sm 1"}, []string{
			"nvbandwidth_device_to_device_bidirectional_memcpy_read_ce copy_bandwidth 0 0 52.3 GB/s"}},
		// Test cases that were waived are left out: release 0.8 does not say which they are.
		{"nvbandwidth/recorded-0.8-h200.txt", ParseNVBandwidths, "0.8", []string{"gpu_bandwidth_h2d 1",
			"gpu_bandwidth_d2h 1", "nvbandwidth_host_to_device_bidirectional_memcpy_ce 1",
			"nvbandwidth_device_to_host_bidirectional_memcpy_ce 1", "nvbandwidth_all_to_host_memcpy_ce 1",
			"nvbandwidth_all_to_host_bidirectional_memcpy_ce 1", "nvbandwidth_host_to_all_memcpy_ce 1",
			"nvbandwidth_host_to_all_bidirectional_memcpy_ce 1", "nvbandwidth_host_to_device_memcpy_sm 1",
			"nvbandwidth_device_to_host_memcpy_sm 1", "nvbandwidth_host_to_device_bidirectional_memcpy_sm 1",
			"nvbandwidth_device_to_host_bidirectional_memcpy_sm 1", "nvbandwidth_all_to_host_memcpy_sm 1",
			"nvbandwidth_all_to_host_bidirectional_memcpy_sm 1", "nvbandwidth_host_to_all_memcpy_sm 1",
			"nvbandwidth_host_to_all_bidirectional_memcpy_sm 1", "nvbandwidth_host_device_latency_sm 1",
			"gpu_bandwidth_local 1"}, []string{"gpu_bandwidth_h2d copy_bandwidth 0 0 55.39 GB/s",
			"gpu_bandwidth_d2h copy_bandwidth 0 0 55.3 GB/s", "gpu_bandwidth_local copy_bandwidth 0 0 2094.08 GB/s",
			"nvbandwidth_host_device_latency_sm load_latency 0 0 1192.44 ns"}},
		{"nvshmem/synthetic-3.6-tables.txt", ParseNVSHMEM, "3.6.5", []string{"nvshmem_put_bw_uni 2",
			"nvshmem_put_latency/thread 2", "nvshmem_alltoall_device/32-bit/block 3",
			"nvshmem_reduction_on_stream/int/sum 2"}, []string{"nvshmem_put_bw_uni bw_average 1048576 0 196 Gb/s",
			"nvshmem_put_latency/thread latency_average 4 0 8.25 us",
			"nvshmem_alltoall_device/32-bit/block bus_bandwidth 1048576 0 4.063 GB/s",
			"nvshmem_reduction_on_stream/int/sum collective_time 1024 0 8.5 us"}},
		{"deepep/synthetic-internode.txt", ParseDeepEP, "", []string{"deepep_dispatch/fp8/rdma 1",
			"deepep_dispatch/fp8/nvl 1", "deepep_dispatch/bf16/rdma 1", "deepep_dispatch/bf16/nvl 1",
			"deepep_combine/rdma 1", "deepep_combine/nvl 1"}, []string{
			"deepep_dispatch/fp8/rdma bw_average 0 0 332 Gb/s", "deepep_combine/nvl bw_average 0 0 1100 Gb/s"}},
		{"deepep/synthetic-low-latency.txt", ParseDeepEP, "", []string{
			"deepep_low_latency_dispatch/rank0 2", "deepep_low_latency_combine/rank0 2",
			"deepep_low_latency_dispatch/rank1 2", "deepep_low_latency_combine/rank1 2"}, []string{
			"deepep_low_latency_dispatch/rank1 bw_average 0 0 72 Gb/s",
			"deepep_low_latency_combine/rank0 collective_time 0 0 100 us"}},
		{"namd/synthetic-2.14.txt", ParseNAMD, "2.14", []string{"namd/np48 2"}, []string{
			"namd/np48 step_rate 0 0 4 steps/s", "namd/np48 simulated 0 0 0.3456 ns/day"}},
		{"namd/synthetic-3.0.txt", ParseNAMD, "3.0.1", []string{"namd/np1 2"}, []string{
			"namd/np1 step_rate 0 0 100 steps/s", "namd/np1 simulated 0 0 8.64 ns/day"}},
		{"wrf/synthetic-3.9.1.1-rsl.out", ParseWRF, "3.9.1.1", []string{"wrf/np24 1"}, []string{
			"wrf/np24 step_rate 0 0 0.5 steps/s"}},
		{"nccl-tests/synthetic-2.17-all_reduce.json", ParseNCCLKinds, "", []string{" 4", "/half/max 2"}, []string{
			" bus_bandwidth 8589934592 0 478.738 GB/s", "/half/max collective_time 8589934592 0 31500 us"}},
		{"nccl-tests/synthetic-2.18-per-iteration.txt", ParseNCCLKinds, "2.18.0", []string{" 4"}, []string{
			" collective_time 2048 0 10.24 us"}},
		// One GPU sends nothing to others, so that there is no bus bandwidth.
		{"nccl-tests/recorded-2.19.6-h200-all_reduce.txt", ParseNCCLKinds, "2.19.6", []string{" 28"}, []string{
			" collective_time 8 0 6.26 us", " collective_time 1073741824 0 505.19 us"}},
		// The time of the CPU is shorter than that of the GPU, which the bandwidths are of.
		{"nccl-tests/recorded-2.19.6-h200-cputime.txt", ParseNCCLKinds, "2.19.6", []string{"/cputime 18"}, []string{
			"/cputime collective_time 8192 0 7.1 us"}},
		{"nccl-tests/recorded-2.19.6-h200-hypercube.txt", ParseNCCLKinds, "2.19.6", []string{" 8"}, []string{
			" collective_time 1024 0 5.65 us"}},
		{"nccl-tests/synthetic-rccl-broadcast.txt", ParseNCCLKinds, "develop:0123abc", []string{" 4", "/half 2"},
			[]string{"/half bus_bandwidth 2097152 0 25.89 GB/s"}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			in := readFile(t, "testdata/"+tt.file)
			res, err := tt.parse(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.tests, lines(res)); diff != "" || res.Version != tt.version {
				t.Errorf("version %q; tests (-want +got):\n%s", res.Version, diff)
			}
			var all []string
			for _, x := range res.All {
				for _, w := range figureWords(x.Figures) {
					all = append(all, x.Name+" "+w)
				}
			}
			for _, want := range tt.some {
				if !slices.Contains(all, want) {
					t.Errorf("no %q among %q", want, all)
				}
			}
			// What a killed tool or a full pipe leaves is refused, or each figure is one of the whole.
			for n := 0; n < min(len(in), 8000); n += 7 {
				part, err := tt.parse(in[:n])
				var bad *BadResultError
				if err != nil && !errors.As(err, &bad) {
					t.Fatalf("%d bytes: error %v is not a BadResultError", n, err)
				}
				for _, x := range part.All {
					for _, w := range figureWords(x.Figures) {
						if !slices.Contains(all, x.Name+" "+w) && !strings.HasPrefix(x.Name, "fio_randread/rnd") {
							t.Fatalf("%d bytes give %s %s", n, x.Name, w)
						}
					}
				}
			}
		})
	}
}

// What is no result is refused, and the reason names what is wrong.
func TestWhatIsNoResultOfSeveralTests(t *testing.T) {
	for _, tt := range []struct {
		file     string
		parse    func([]byte) (Tests, error)
		old, new string
		want     string
	}{
		{"imb/stackhpc-2019.5-pingpong.txt", ParseIMB, "11892.60", "11342.60",
			"a megabyte is 1.048576e+06 bytes here, and 1e+06 above"},
		{"imb/stackhpc-2019.5-pingpong.txt", ParseIMB, "11892.60", "1892.60", "are not 1892.6 Mbytes/sec"},
		{"imb/stackhpc-2019.5-pingpong.txt", ParseIMB, "Mbytes/sec", "Gbytes/sec",
			`unknown layout: column "Gbytes/sec"`},
		{"imb/stackhpc-2019.5-pingpong.txt", ParseIMB, "# Benchmarking PingPong", "#",
			"which names the benchmark, is missing"},
		{"fio/recorded-3.33-jobs.txt", ParseFio, "Run status group", "", "the text is cut off"},
		{"fio/recorded-3.33-jobs.txt", ParseFio, "IOPS=123k", "IOPS=", "no IOPS or no bandwidth"},
		{"fio/recorded-3.33-randrw.json", ParseFio, `"iops" : 95914.042979`, `"iops" : "x"`, "unknown layout"},
		{"stress-ng/recorded-0.15.06-metrics.txt", ParseStressNG, "successful run", "unsuccessful run",
			"a stressor failed"},
		{"stress-ng/recorded-0.15.06-metrics.txt", ParseStressNG, "566.35", "5663.5", "are not 5663.5 a second"},
		{"cuda-bandwidthtest/superbench-h2d.log", ParseCUDABandwidth, "Result = PASS", "", "it is cut off"},
		{"cuda-bandwidthtest/superbench-h2d.log", ParseCUDABandwidth, "Result = PASS", "Result = FAIL",
			"the program failed"},
		{"cuda-bandwidthtest/superbench-h2d.log", ParseCUDABandwidth, "12.1 GB/s", "0.0 GB/s", "zero"},
		{"cuda-bandwidthtest/superbench-h2d.log", ParseCUDABandwidth, "12.1 GB/s", "12.1 GiB/s", "unknown unit GiB/s"},
		{"nvbandwidth/synthetic-0.8.json", ParseNVBandwidths, `"testcases"`, `"testcases" x`, "unknown layout"},
		{"nvbandwidth/synthetic-0.8-both-ways.txt", ParseNVBandwidths, "SUM device_to_device_memcpy_read_ce 52.40",
			"SUM device_to_device_memcpy_read_ce 53.40", "add up to 52.40"},
		{"nvbandwidth/synthetic-0.8-both-ways.txt", ParseNVBandwidths, "52.30", "N/A", `value "N/A"`},
		{"nccl-tests/synthetic-2.17-all_reduce.json", ParseNCCLKinds, `"okay":"true"`, `"okay":"false"`, "are wrong"},
		{"nccl-tests/synthetic-2.17-all_reduce.json", ParseNCCLKinds, `"out_of_bounds"`, `"x"`, "the program gave up"},
		{"nccl-tests/synthetic-2.17-all_reduce.json", ParseNCCLKinds, `"alg_bw":273.564796`, `"alg_bw":27.3564796`,
			"are not 27.3564796 GB/s"},
		{"nccl-tests/synthetic-2.18-per-iteration.txt", ParseNCCLKinds, "(%)", "(us)", "unknown layout: other units"},
	} {
		in := readFile(t, "testdata/"+tt.file)
		if !bytes.Contains(in, []byte(tt.old)) {
			t.Errorf("%s has no %q", tt.file, tt.old)
		}
		res, err := tt.parse(bytes.ReplaceAll(in, []byte(tt.old), []byte(tt.new)))
		for _, x := range res.All {
			err = errors.Join(err, x.Err)
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: error %v, want %q", tt.file, tt.new, err, tt.want)
		}
	}
}
