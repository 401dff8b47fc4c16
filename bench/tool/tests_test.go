package tool

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
)

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
		// Release 0.8 does not name waived test cases.
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
		{"nccl-tests/synthetic-2.17-all_reduce.json", ParseNCCLKinds, "", []string{" 4", "/half/max 2"}, []string{
			" bus_bandwidth 8589934592 0 478.738 GB/s", "/half/max collective_time 8589934592 0 31500 us"}},
		{"nccl-tests/synthetic-2.18-per-iteration.txt", ParseNCCLKinds, "2.18.0", []string{" 4"}, []string{
			" collective_time 2048 0 10.24 us"}},
		// One GPU sends nothing to others.
		{"nccl-tests/recorded-2.19.6-h200-all_reduce.txt", ParseNCCLKinds, "2.19.6", []string{" 28"}, []string{
			" collective_time 8 0 6.26 us", " collective_time 1073741824 0 505.19 us"}},
		// The bandwidths use the GPU's time.
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
			for n := 0; n < min(len(in), 8000); n += 7 {
				part, err := tt.parse(in[:n])
				var bad *bench.BadResultError
				if err != nil && !errors.As(err, &bad) {
					t.Fatalf("%d bytes: error %v is not a BadResultError", n, err)
				}
				for _, x := range part.All {
					for _, w := range figureWords(x.Figures) {
						if !slices.Contains(all, x.Name+" "+w) {
							t.Fatalf("%d bytes give %s %s", n, x.Name, w)
						}
					}
				}
			}
		})
	}
}

func TestWhatIsNoResultOfSeveralTests(t *testing.T) {
	for _, tt := range []struct {
		file     string
		parse    func([]byte) (Tests, error)
		old, new string
		want     string
	}{
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
