package inspect_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/report/hostview"
)

// BenchmarkSnapshot is what inspect does for each of many snapshots, on one core: unpack, read, judge, print.
func BenchmarkSnapshot(b *testing.B) {
	files, err := filepath.Glob("testdata/hwloc/linux/*.tar.bz2")
	if err != nil || len(files) == 0 {
		b.Fatalf("no dumps: %v", err)
	}
	dir := b.TempDir()
	var snapshots []string
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
		m, err := archive.Machine()
		if err != nil {
			b.Fatal(err)
		}
		var buf bytes.Buffer
		if err := inspect.WriteSnapshot(b.Context(), &buf, inspect.Source{Name: f, FS: m},
			inspect.SnapshotOptions{}); err != nil {
			b.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Base(f)+".zst")
		if err := os.WriteFile(name, buf.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
		snapshots = append(snapshots, name)
	}
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
