package conduct_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/store"
)

// Formats are found in standard input, as in files.
func TestEachFormatOfStandardInput(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"perftest/synthetic-write_bw-cx4lx-25g.txt":    importer.Perftest,
		"perftest/synthetic-json-valid.json":           importer.Perftest,
		"nccl-tests/dgxc-h100-all_reduce.txt":          importer.NCCLTests,
		"nccl-tests/synthetic-2.17-all_reduce.json":    importer.NCCLTests,
		"nccl-tests/synthetic-rccl-broadcast.txt":      importer.NCCLTests,
		"osu/stackhpc-ib-gcc9-openmpi4-ucx-osu_bw.txt": importer.OSU,
		"iperf3/recorded-3.12-tcp.txt":                 importer.Iperf3,
		"iperf3/recorded-3.12-tcp.json":                importer.Iperf3,
		"nvbandwidth/recorded-0.8-h100.txt":            importer.NVBandwidth,
		"nvbandwidth/synthetic-0.8.json":               importer.NVBandwidth,
	} {
		f, err := os.Open("../../bench/tool/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		sources, end, err := conduct.OpenSources([]string{conduct.Stdin}, f)
		if err != nil {
			t.Fatal(err)
		}
		all, err := importer.Import(sources, importer.Options{})
		if err != nil || all[0].Spec.Imported != want || all[0].Figures() == 0 {
			t.Errorf("%s: %v of %v, want %s", file, err, all, want)
		}
		end()
		f.Close()
	}
}

// placements makes figures after the findings of vcpu_benchmarks' authors: guest NUMA raises STREAM, pinning alone does
// not, and GPU tests do not change.
func placements(t *testing.T, repeats int) []*importer.Study {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := range repeats {
		noise := 1 + 0.01*float64(i%3-1)
		for level, triad := range map[string]float64{"default": 52000, "pin": 52500, "pin-numa": 210000} {
			dir := fmt.Sprintf("h200/%s/%d/", level, i+1)
			fsys[dir+"stream.txt"] = &fstest.MapFile{Data: fmt.Appendf(nil,
				"Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy: %.1f 1 1 1\nScale: %.1f 1 1 "+
					"1\nAdd: %.1f 1 1 1\nTriad: %.1f 1 1 1\nSolution Validates\n",
				triad, triad, triad, triad*noise)}
			fsys[dir+"gpu_compute.txt"] = &fstest.MapFile{Data: fmt.Appendf(nil, "100 matmuls: %.3fs (%.1fms each)\n",
				2.5*noise, 25*noise)}
		}
	}
	all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "results", Base: "results"}},
		importer.Options{Name: "vcpu"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func kept(t *testing.T, all []*importer.Study) (*store.DB, *study.Result) {
	t.Helper()
	ctx := context.Background()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := conduct.Keep(ctx, db, all, "test", time.Unix(1e9, 0), false); err != nil {
		t.Fatal(err)
	}
	rec, err := conduct.Load(ctx, db, all[0].Spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := study.Analyse(rec.Data)
	if err != nil {
		t.Fatal(err)
	}
	return db, r
}

func TestImportedRepeatsEndInVerdicts(t *testing.T) {
	t.Parallel()
	_, r := kept(t, placements(t, 10))
	verdicts := map[string]stats.Verdict{}
	for _, c := range append(r.Comparisons, r.Controls...) {
		verdicts[c.Test+" "+c.B] = c.Judged.Verdict
	}
	want := map[string]stats.Verdict{"stream pin": stats.Equivalent, "stream pin+numa": stats.Better,
		"gpu_compute pin": stats.Equivalent, "gpu_compute pin+numa": stats.Equivalent}
	for k, v := range want {
		if verdicts[k] != v {
			t.Errorf("%s: %q, want %q", k, verdicts[k], v)
		}
	}
	words := strings.Join(r.Words, "\n")
	if !strings.HasPrefix(words, "These runs were measured elsewhere and imported (vcpu-benchmarks): rackless "+
		"neither interleaved nor randomised them.") ||
		!strings.Contains(words, "With placement=pin+numa instead of default, triad of stream rises by a factor of 4") {
		t.Errorf("words:\n%s", words)
	}
	if len(r.Confounds) != 1 || !strings.Contains(r.Confounds[0],
		"the order of the runs in time and the state of the machine around them are not known") {
		t.Errorf("confounds %q", r.Confounds)
	}
}

// The suite's report compares with the alphabetically first configuration, and its "local" and "remote" STREAM bind
// only memory, so threads run on all nodes in both.
func TestTrapsOfVCPUBenchmarks(t *testing.T) {
	t.Parallel()
	stream := func(triad float64) *fstest.MapFile {
		return &fstest.MapFile{Data: fmt.Appendf(nil,
			"Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy: %.1f 1 1 1\nScale: %.1f 1 1 "+
				"1\nAdd: %.1f 1 1 1\nTriad: %.1f 1 1 1\nSolution Validates\n", triad, triad, triad, triad)}
	}
	fsys := fstest.MapFS{}
	for i := range 10 {
		noise := 1 + 0.01*float64(i%3-1)
		for level, factor := range map[string]float64{"all": 2, "Cores": 3, "default": 1, "pin": 1, "pin-numa": 4} {
			dir := fmt.Sprintf("h200/%s/%d/", level, i+1)
			fsys[dir+"stream.txt"] = stream(50000 * factor * noise)
			fsys[dir+"stream_numa_local.txt"] = stream(10000 * factor * noise)
			fsys[dir+"stream_numa_remote.txt"] = stream(7000 * factor * noise)
		}
	}
	all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "results", Base: "results"}},
		importer.Options{Name: "vcpu"})
	if err != nil {
		t.Fatal(err)
	}
	_, r := kept(t, all)
	with := map[string]stats.Verdict{}
	for _, c := range append(r.Comparisons, r.Controls...) {
		if c.A != "default" || c.Test != "stream" {
			t.Errorf("%s: %s is compared with %s", c.Test, c.B, c.A)
		}
		with[c.B] = c.Judged.Verdict
	}
	want := map[string]stats.Verdict{"all": stats.Better, "Cores": stats.Better, "pin": stats.Equivalent,
		"pin+numa": stats.Better}
	for level, v := range want {
		if with[level] != v {
			t.Errorf("%s: %q, want %q", level, with[level], v)
		}
	}
	if len(with) != len(want) {
		t.Errorf("compared with default: %v, want %v", with, want)
	}
	if words := strings.Join(r.Words, "\n"); strings.Contains(words, "stream_numa") {
		t.Errorf("words:\n%s", words)
	}
	// Tests that are not compared show the memory rate of each node.
	kept := map[string]int{}
	for _, run := range all[0].Runs {
		for _, x := range run.Samples {
			kept[x.Test]++
		}
	}
	if kept["stream_numa_local"] == 0 || kept["stream_numa_local"] != kept["stream"] ||
		kept["stream_numa_remote"] != kept["stream"] {
		t.Errorf("figures by test: %v", kept)
	}
}

// latencyLog makes runs of ib_write_lat, optionally with the list of -U. Level pin is a fifth lower.
func latencyLog(level string, runs int, list bool) string {
	factor := map[string]float64{"default": 1, "pin": 0.8}[level]
	const ruler = "---------------------------------------------------------------------------------------\n"
	const header = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    " +
		"t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
	var b strings.Builder
	for run := range runs {
		const n = 200
		b.WriteString(ruler + "                    RDMA_Write Latency Test\n Connection type : RC\t\tUsing SRQ     " +
			" : OFF\n" + ruler)
		at := func(i int) float64 { return factor * (1 + float64(i)/n) * (1 + float64(run%3)/100) }
		if list {
			b.WriteString(header + "#, usec\n")
			for i := range n {
				fmt.Fprintf(&b, "%d, %.4f\n", i+1, at(i*7%n))
			}
			b.WriteString(ruler)
		}
		fmt.Fprintf(&b, "%s 2 %d %.2f %.2f %.2f %.2f 0.29 %.2f %.2f\n%s", header, n+1, at(0), at(n-1), at(n/2), at(n/2),
			at(n-3), at(n-1), ruler)
	}
	return b.String()
}

// Percentiles come from all listed latencies; without a list those of the runs are compared, with a remark.
func TestImportedLatenciesAreMerged(t *testing.T) {
	t.Parallel()
	for _, list := range []bool{true, false} {
		fsys := fstest.MapFS{}
		for _, level := range []string{"default", "pin"} {
			fsys[level+"/lat.log"] = &fstest.MapFile{Data: []byte(latencyLog(level, 8, list))}
		}
		all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "r", Base: "r"}},
			importer.Options{Name: "lat"})
		if err != nil {
			t.Fatal(err)
		}
		_, r := kept(t, all)
		if len(r.Comparisons) != 2 {
			t.Errorf("list %v: %d comparisons, want those of median and p99", list, len(r.Comparisons))
		}
		for _, c := range r.Comparisons {
			if c.Effect == nil || c.Judged.Verdict != stats.Better || c.Effect.Blocks != 8 ||
				c.Effect.Estimate < 0.78 || c.Effect.Estimate > 0.82 {
				t.Errorf("list %v: %s: %+v", list, c.Metric, c.Effect)
			}
			if said := strings.Contains(strings.Join(c.Drift, "\n"),
				"percentile: it compares what each run had"); said == list {
				t.Errorf("list %v: %s: %q", list, c.Metric, c.Drift)
			}
		}
	}
}

func TestOneImportedRunDecidesNothing(t *testing.T) {
	t.Parallel()
	_, r := kept(t, placements(t, 1))
	for _, c := range r.Comparisons {
		if c.Judged == nil || c.Judged.Verdict != stats.Undecided {
			t.Errorf("%s %s: %+v, want undecided", c.Test, c.B, c.Judged)
		}
	}
}

func TestOneImportedLevelIsComparedWithNothing(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{"a.log": &fstest.MapFile{Data: []byte("[  5]   0.00-2.04   sec  2.19 GBytes  9.22 Gbits/sec" +
		"                  receiver\n")}}
	all, err := importer.Import([]importer.Source{{FS: fsys, Path: ".", Name: "x", Base: "x"}}, importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, r := kept(t, all)
	if len(r.Comparisons) != 0 || len(r.Words) != 2 ||
		r.Words[1] != "They have one level alone, variant=x, so there is nothing to compare." {
		t.Errorf("comparisons %v, words %q", r.Comparisons, r.Words)
	}
}

func TestAnImportIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	first, second := placements(t, 1)[0], placements(t, 1)[0]
	db, _ := kept(t, []*importer.Study{second})
	first.Spec.Name = "another"
	err := conduct.Keep(ctx, db, []*importer.Study{first, second}, "test", time.Unix(1e9, 0), false)
	if !errors.Is(err, store.ErrTaken) || !strings.Contains(err.Error(),
		"study vcpu: there is a study of this name already in ") {
		t.Errorf("error %v", err)
	}
	if _, err := db.Find(ctx, "another"); !errors.Is(err, store.ErrNoStudy) {
		t.Errorf("half of the import is there: %v", err)
	}
	if err := conduct.Keep(ctx, db, []*importer.Study{first, second}, "test", time.Unix(2e9, 0), true); err != nil {
		t.Fatal(err)
	}
	rec, err := conduct.Load(ctx, db, "vcpu")
	if err != nil || len(rec.Data.Runs) != 3 || rec.Study.Created.Unix() != 2e9 {
		t.Errorf("runs %d, created %v, error %v", len(rec.Data.Runs), rec.Study.Created, err)
	}
	var raw struct {
		Tool   string          `json:"tool"`
		Origin importer.Origin `json:"origin"`
	}
	samples, err := db.Samples(ctx, rec.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range samples {
		if x.Raw != nil && x.Test == "stream" {
			if err := json.Unmarshal(x.Raw, &raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	if raw.Tool != "STREAM" || raw.Origin.Level == "" || !strings.HasPrefix(raw.Origin.File, "results/h200/") ||
		len(raw.Origin.SHA256) != 64 {
		t.Errorf("raw %+v", raw)
	}
}
