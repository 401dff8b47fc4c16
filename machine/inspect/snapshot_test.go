package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/machine/topology"
)

func hostJSON(t testing.TB, h *topology.Host) string {
	t.Helper()
	c := *h
	c.Provenance = topology.Provenance{Filled: h.Provenance.Filled, Emulated: h.Provenance.Emulated}
	b, err := json.MarshalIndent(&c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func snapshotOf(t testing.TB, src Source, opts SnapshotOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSnapshot(context.Background(), &b, src, opts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func reread(t testing.TB, b []byte) *topology.Host {
	t.Helper()
	h, err := ReadStream(context.Background(), bytes.NewReader(b), "host.tar.zst")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// recordedRead reads a changing machine only once.
func recordedRead(t testing.TB, src Source) (*topology.Host, *snapshot) {
	t.Helper()
	s, h, err := takeSnapshot(context.Background(), src)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func TestSnapshotsOfRealMachines(t *testing.T) {
	t.Parallel()
	files := dumpFiles(t)
	if testing.Short() {
		files = storey.Some(storey.Rand(t), files, len(files)/5)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			o, want := openMachine(t, name)
			b := snapshotOf(t, o.Source, SnapshotOptions{KeepIDs: true})
			if diff := cmp.Diff(hostJSON(t, want), hostJSON(t, reread(t, b))); diff != "" {
				t.Errorf("host (-read +of its snapshot):\n%s", diff)
			}
			if again := snapshotOf(t, o.Source, SnapshotOptions{KeepIDs: true}); !bytes.Equal(b, again) {
				t.Error("two snapshots differ")
			}
			checkAnonymous(t, o, want)
		})
	}
}

func dumpFiles(t testing.TB) []string {
	t.Helper()
	dirs := []string{"testdata"}
	if dir := os.Getenv("RACKLESS_CORPUS"); dir != "" {
		dirs = append(dirs, dir)
	}
	var out []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (strings.Contains(name, ".tar") || strings.HasSuffix(name, ".tgz") ||
				strings.HasSuffix(name, ".ttar")) {
				out = append(out, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// openMachine skips archives without a machine or with several.
func openMachine(t *testing.T, name string) (*Opened, *topology.Host) {
	t.Helper()
	o, err := Open(name)
	if err == nil {
		var h *topology.Host
		if h, err = o.Read(t.Context()); err == nil {
			return o, h
		}
	}
	var many *ManyError
	if errors.Is(err, errNoRoot) || errors.Is(err, ErrNoMachine) || errors.As(err, &many) {
		t.Skip(err)
	}
	t.Fatal(err)
	return nil, nil
}

func TestSnapshotOfThisMachine(t *testing.T) {
	t.Parallel()
	want, s := recordedRead(t, Live())
	var b bytes.Buffer
	if err := s.write(&b, SnapshotOptions{KeepIDs: true, Tool: "rackless test"}); err != nil {
		t.Fatal(err)
	}
	got := reread(t, b.Bytes())
	if diff := cmp.Diff(hostJSON(t, want), hostJSON(t, got)); diff != "" {
		t.Errorf("host (-live +snapshot):\n%s", diff)
	}
	p := got.Provenance
	p.Filled = nil
	if diff := cmp.Diff(topology.Provenance{Kind: topology.SourceTree, Name: "host.tar.zst", Tool: "rackless test"},
		p); diff != "" {
		t.Errorf("provenance (-want +got):\n%s", diff)
	}
}
