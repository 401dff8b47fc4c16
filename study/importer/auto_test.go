package importer_test

import (
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/rackless/rackless/study/importer"
)

// samplesOf has a log of each format, with the failures in it.
var samplesOf = map[string][]struct {
	file, test string
	failures   int
}{
	importer.Perftest: {{perftestLog, "ib_write_bw", 0}, {perftestJSON, "ib_write_bw", 0}},
	importer.NCCLTests: {{ncclLog, "nccl_all_reduce", 0},
		{"../../bench/tool/testdata/nccl-tests/synthetic-2.17-all_reduce.json", "nccl_all_reduce", 0},
		{"../../bench/tool/testdata/nccl-tests/synthetic-rccl-broadcast.txt", "rccl-tests", 0}},
	importer.OSU: {{"../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt", "osu_bw", 0}},
	importer.Iperf3: {{"../../bench/tool/testdata/iperf3/recorded-3.12-tcp.txt", "iperf3", 0},
		{"../../bench/tool/testdata/iperf3/recorded-3.12-tcp.json", "iperf3", 0}},
	importer.NVBandwidth: {{"../../bench/tool/testdata/nvbandwidth/recorded-0.8-h100.txt", "gpu_bandwidth_h2d", 0},
		{"../../bench/tool/testdata/nvbandwidth/synthetic-0.8.json", "gpu_bandwidth_h2d", 1}},
}

// The format is found alone, after prose, and after another tool's log.
func TestTheFormatOfEachLogIsFound(t *testing.T) {
	t.Parallel()
	apart := []string{importer.Auto, importer.VCPUBenchmarks, importer.Rackless, importer.Logs}
	for _, format := range importer.Formats() {
		if slices.Contains(apart, format) {
			continue
		}
		if len(samplesOf[format]) == 0 {
			t.Fatalf("samplesOf has no log of format %s", format)
		}
		for _, sample := range samplesOf[format] {
			t.Run(path.Base(sample.file), func(t *testing.T) {
				t.Parallel()
				text := testdata(t, sample.file)
				other, of := testdata(t, "../../bench/tool/testdata/perftest/synthetic-atomic_lat.txt"), "ib_atomic_lat"
				if format == importer.Perftest {
					other, of = testdata(t, "../../bench/tool/testdata/osu/synthetic-7.5-osu_latency-avg.txt"),
						"osu_latency"
				}
				isFound(t, "alone", text, format, sample.failures, sample.test)
				isFound(t, "below prose", "We measured this on Monday.\n\n"+text, format, sample.failures, sample.test)
				isFound(t, "below another log", other+"\n"+text, importer.Logs, sample.failures, sample.test, of)
			})
		}
	}
}

func isFound(t *testing.T, where, text, format string, failed int, want ...string) {
	t.Helper()
	s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{"all.txt": text}))
	tests := map[string]bool{}
	for _, r := range s.Runs {
		for _, x := range r.Samples {
			tests[x.Test] = true
		}
	}
	if s.Spec.Imported != format || len(failures(s)) != failed {
		t.Errorf("%s: format %s, want %s; failures %q", where, s.Spec.Imported, format, failures(s))
	}
	for _, test := range want {
		if !tests[test] {
			t.Errorf("%s: tests %q, want %s too; failures %q", where, slices.Sorted(maps.Keys(tests)), test,
				failures(s))
		}
	}
}
