package inspect_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/report/hostview"
)

type dump struct {
	name     string
	tree     *tree.Mem
	snapshot []byte
}

func dumps(b *testing.B) []dump {
	b.Helper()
	files, err := filepath.Glob("testdata/hwloc/linux/*.tar.bz2")
	if err != nil || len(files) == 0 {
		b.Fatalf("no dumps: %v", err)
	}
	var all []dump
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			b.Fatal(err)
		}
		archive, err := tree.ReadArchive(in, tree.Limits{})
		in.Close()
		if err != nil {
			b.Fatal(err)
		}
		m, err := archive.Chroot(tree.FindRoots(archive, 6)[0])
		if err != nil {
			b.Fatal(err)
		}
		var snapshot bytes.Buffer
		if err := inspect.WriteSnapshot(b.Context(), &snapshot, inspect.Source{Name: f, FS: m},
			inspect.SnapshotOptions{}); err != nil {
			b.Fatal(err)
		}
		all = append(all, dump{strings.TrimSuffix(filepath.Base(f), ".tar.bz2"), m, snapshot.Bytes()})
	}
	return all
}

func writeSnapshots(b *testing.B, dir string, all []dump, n int) []string {
	b.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = filepath.Join(dir, fmt.Sprintf("%04d.tar.zst", i))
		if err := os.WriteFile(names[i], all[i%len(all)].snapshot, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return names
}

func BenchmarkSnapshot(b *testing.B) {
	all := dumps(b)
	snapshots := writeSnapshots(b, b.TempDir(), all, len(all))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h, err := inspect.ReadFile(b.Context(), snapshots[i%len(snapshots)])
		if err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		if err := hostview.NewDocument(h, diagnose.Host(h)).WriteJSON(&out, false); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

type command struct{ env, argv []string }

// BenchmarkAgainstLstopo times "rackless inspect" against lstopo as whole processes. RACKLESS_BENCH names the program,
// as in hack/bench.sh; docs/performance.md explains the results.
func BenchmarkAgainstLstopo(b *testing.B) {
	rackless := os.Getenv("RACKLESS_BENCH")
	lstopo, err := exec.LookPath("lstopo-no-graphics")
	switch {
	case rackless == "":
		b.Skip("RACKLESS_BENCH does not name the program to measure")
	case err != nil:
		b.Skip("no lstopo to compare with: apt-get install hwloc-nox")
	}
	ours := func(args ...string) []command {
		return []command{{argv: append([]string{rackless, "inspect", "-o", "json"}, args...)}}
	}
	theirs := func(env ...string) command { return command{env, []string{lstopo, "--of", "xml"}} }
	of := func(root string) command { return theirs("HWLOC_FSROOT="+root, "HWLOC_THISSYSTEM=0") }

	all := dumps(b)
	dir := b.TempDir()
	roots := make([]string, len(all))
	for i, d := range all {
		roots[i] = filepath.Join(dir, "trees", d.name)
		if err := os.CopyFS(roots[i], d.tree); err != nil {
			b.Fatal(err)
		}
	}
	// The start of the process must hardly count.
	const many = 1000
	snapshots := filepath.Join(dir, "snapshots")
	if err := os.Mkdir(snapshots, 0o755); err != nil {
		b.Fatal(err)
	}
	writeSnapshots(b, snapshots, all, many)
	var oneByOne []command
	for i := range many {
		oneByOne = append(oneByOne, of(roots[i%len(roots)]))
	}
	largest, most := 0, 0
	for i, d := range all {
		n := 0
		if err := fs.WalkDir(d.tree, ".", func(string, fs.DirEntry, error) error { n++; return nil }); err != nil {
			b.Fatal(err)
		}
		if n > most {
			largest, most = i, n
		}
	}
	b.Run("live", func(b *testing.B) { compare(b, ours(), []command{theirs()}) })
	b.Run("directory/"+all[largest].name, func(b *testing.B) {
		compare(b, ours("--host", roots[largest]), []command{of(roots[largest])})
	})
	b.Run("snapshots", func(b *testing.B) { compare(b, ours("--host", snapshots), oneByOne) })
}

// compare takes the ratio within each round, in alternating order, so that changes of load affect both.
func compare(b *testing.B, ours, theirs []command) {
	ways := [2][]command{ours, theirs}
	var times [2][]float64
	var ratios []float64
	round := func(i int) (took [2]float64) {
		for k := range ways {
			w := (i + k) % 2
			took[w] = timed(b, ways[w])
		}
		return took
	}
	round(0) // fills the page cache
	for b.Loop() {
		took := round(len(ratios))
		times[0], times[1] = append(times[0], took[0]), append(times[1], took[1])
		ratios = append(ratios, took[1]/took[0])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times[0]), "rackless-ms")
	b.ReportMetric(median(times[1]), "lstopo-ms")
	b.ReportMetric(median(ratios), "lstopo/rackless")
	b.ReportMetric(slices.Min(ratios), "lowest")
	b.ReportMetric(slices.Max(ratios), "highest")
}

func timed(b *testing.B, all []command) float64 {
	start := time.Now()
	for _, c := range all {
		cmd := exec.CommandContext(b.Context(), c.argv[0], c.argv[1:]...)
		cmd.Env = append(os.Environ(), c.env...)
		var errText strings.Builder
		cmd.Stderr = &errText
		if err := cmd.Run(); err != nil {
			b.Fatalf("%s: %v\n%s", strings.Join(c.argv, " "), err, errText.String())
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1e6
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
