package inspect_test

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

var updateCorpus = flag.Bool("update-corpus", false,
	"rewrite testdata/corpus.tsv from the directory that RACKLESS_CORPUS names")

// Files that we may not redistribute are read if RACKLESS_CORPUS names the whole collection.
var corpusPlaces = []struct{ prefix, dir string }{
	{"ghw/", "testdata/corpus/ghw"},
	{"procfs/", "testdata/corpus/procfs"},
	{"hwloc/linux", "testdata/hwloc/linux"},
	{"hwloc/linux-old/", "testdata/hwloc/linux-old"},
	{"hwloc/x86linux/", "testdata/hwloc/x86linux"},
	{"hwloc/", "../dump/hwlocxml/testdata"},
	{"nccl-topo/", "../dump/nccl/testdata"},
	{"lspci/", "../dump/lspci/testdata"},
	{"nvidia-topo/", "../dump/smi/testdata"},
}

// corpusFiles finds files by SHA-256, because a copy may have another name.
func corpusFiles(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	dirs := []string{os.Getenv("RACKLESS_CORPUS")}
	for _, p := range corpusPlaces {
		dirs = append(dirs, p.dir)
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			found[hex.EncodeToString(sum[:])] = path
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func isMachine(name string) bool {
	for _, kind := range []string{"ghw/", "hwloc/", "lspci/", "nccl-topo/", "nvidia-topo/", "procfs/"} {
		if !strings.HasPrefix(name, kind) {
			continue
		}
		switch filepath.Ext(name) {
		case ".bz2", ".gz", ".tgz", ".xml", ".ttar":
			return true
		case ".txt":
			return (kind == "lspci/" || kind == "nvidia-topo/") && !strings.HasSuffix(name, ".lscpu.txt")
		}
	}
	return false
}

func summary(h *topology.Host) string {
	var nodes, ids []string
	for i := range h.NUMANodes {
		nodes = append(nodes, fmt.Sprintf("%d:%s", h.NUMANodes[i].ID, h.NUMANodes[i].CPUs))
	}
	classes := map[string]int{}
	for _, p := range topology.NewTree(h).Paths() {
		classes[p.Label()]++
	}
	var paths []string
	for _, c := range slices.Sorted(maps.Keys(classes)) {
		paths = append(paths, fmt.Sprintf("%s:%d", c, classes[c]))
	}
	for _, f := range diagnose.Host(h) {
		ids = append(ids, f.ID)
	}
	list := strings.Join(nodes, " ")
	if len(list) > 400 {
		sum := sha256.Sum256([]byte(list))
		list = fmt.Sprintf("%s... %x", list[:60], sum[:4])
	}
	return fmt.Sprintf("packages %d cores %d cpus %d l3 %d pci %d gpus %d nics %d disks %d unread %d nodes [%s] "+
		"paths [%s] findings [%s]",
		len(h.Packages), len(h.Cores), h.CPUs.Online.Len(), len(h.L3), len(h.PCI), len(h.GPUs), len(h.NICs),
		len(h.Storage), len(h.Unread),
		list, strings.Join(paths, " "), strings.Join(slices.Compact(slices.Sorted(slices.Values(ids))), " "))
}

func outcome(t *testing.T, path string) string {
	h, err := inspect.ReadFile(t.Context(), path)
	if err != nil {
		return "error: " + strings.ReplaceAll(strings.ReplaceAll(err.Error(), path, "FILE"), "\n", " ")
	}
	return summary(h)
}

// TestCorpus fails if a machine of the collection reads differently than when last reviewed.
func TestCorpus(t *testing.T) {
	t.Parallel()
	const golden = "testdata/corpus.tsv"
	if *updateCorpus {
		rewriteCorpus(t, golden)
	}
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := corpusFiles(t)
	read, total := 0, 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "\t")
		sum, want, _ := strings.Cut(rest, "\t")
		total++
		path := files[sum]
		if path == "" {
			continue // not redistributable
		}
		read++
		if testing.Short() && read%5 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := outcome(t, path); got != want {
				t.Errorf("%s\n got %s\nwant %s", path, got, want)
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d machines are here", read, total)
	if read < 100 {
		t.Errorf("only %d machines found: copies are missing", read)
	}
}

func rewriteCorpus(t *testing.T, golden string) {
	root := cmp.Or(os.Getenv("RACKLESS_CORPUS"), "/nonexistent")
	manifest, err := os.ReadFile(filepath.Join(root, "MANIFEST.tsv"))
	if err != nil {
		t.Fatalf("RACKLESS_CORPUS has to name the collection: %v", err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(manifest)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if !isMachine(fields[0]) {
			continue
		}
		name := fields[0]
		if strings.HasPrefix(name, "nvidia-topo/") {
			name = "nvidia-topo" // these file names reveal accounts
		}
		fmt.Fprintf(&out, "%s\t%s\t%s\n", name, fields[len(fields)-1], outcome(t, filepath.Join(root, fields[0])))
	}
	if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
