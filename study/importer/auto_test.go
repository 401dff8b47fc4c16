package importer_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/rackless/rackless/study/importer"
)

var samplesOf = map[string]struct{ file, test string }{
	importer.Perftest:    {perftestLog, "ib_write_bw"},
	importer.NCCLTests:   {ncclLog, "nccl-tests"},
	importer.OSU:         {"../../bench/tool/testdata/osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt", "osu_bw"},
	importer.Iperf3:      {"../../bench/tool/testdata/iperf3/recorded-3.12-tcp.txt", "iperf3"},
	importer.NVBandwidth: {"../../bench/tool/testdata/nvbandwidth/recorded-0.8-h100.txt", "gpu_bandwidth_h2d"},
}

// The content identifies the format of each log: alone, after prose, and after the log of another tool.
func TestTheFormatOfEachLogIsFound(t *testing.T) {
	t.Parallel()
	// Directory trees, samples.jsonl and logs of several tools are tested elsewhere.
	apart := []string{importer.Auto, importer.VCPUBenchmarks, importer.Rackless, importer.Logs}
	for _, format := range importer.Formats() {
		if slices.Contains(apart, format) {
			continue
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			sample, ok := samplesOf[format]
			if !ok {
				t.Fatal("samplesOf has no log of this format")
			}
			text := testdata(t, sample.file)
			other := testdata(t, "../../bench/tool/testdata/perftest/synthetic-atomic_lat.txt")
			for name, tt := range map[string]struct {
				text   string
				format string
				others []string
			}{
				"alone":             {text, format, nil},
				"below prose":       {"We measured this on Monday.\n\n" + text, format, nil},
				"below another log": {other + "\n" + text, importer.Logs, []string{"ib_atomic_lat"}},
			} {
				s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{"all.txt": tt.text}))
				tests := map[string]bool{}
				for _, r := range s.Runs {
					for _, x := range r.Samples {
						tests[x.Test] = true
					}
				}
				if format == importer.Perftest {
					tt.format = format
				}
				if s.Spec.Imported != tt.format || len(failures(s)) > 0 {
					t.Errorf("%s: format %s, want %s; failures %q", name, s.Spec.Imported, tt.format, failures(s))
				}
				for _, want := range append(tt.others, sample.test) {
					if !tests[want] {
						t.Errorf("%s: tests %q, want %s too", name, slices.Sorted(maps.Keys(tests)), want)
					}
				}
			}
		})
	}
}
