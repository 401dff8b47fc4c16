package smi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
)

// summary holds facts but no text of the source.
func summary(h *topology.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d GPUs %d NICs %d nodes:", len(h.GPUs), len(h.NICs), len(h.NUMANodes))
	classes := map[string]int{}
	for _, p := range h.Reported {
		classes[p.Label()]++
	}
	var labels []string
	for l := range classes {
		labels = append(labels, l)
	}
	slices.Sort(labels)
	for _, l := range labels {
		fmt.Fprintf(&b, " %s=%d", l, classes[l])
	}
	for _, n := range h.NUMANodes {
		fmt.Fprintf(&b, " node%d=%s", n.ID, n.CPUs)
	}
	var links, unplaced, named int
	for _, g := range h.GPUs {
		if g.NVLinks != nil {
			links += *g.NVLinks
		}
	}
	for _, n := range h.NICs {
		if n.NUMANode == nil {
			unplaced++
		}
		named += len(n.RDMA)
	}
	fmt.Fprintf(&b, " nvlinks=%d rdma=%d nodeless_nics=%d notes=%d", links, named, unplaced, len(h.Unread))
	return b.String()
}

func outcome(b []byte, name string) string {
	h, err := smi.Parse(b, name)
	if err != nil {
		return "error: " + strings.TrimPrefix(err.Error(), name+":")
	}
	return summary(h)
}

// TestCorpus reads texts that may not be part of this repository; the golden file has checksums and facts.
func TestCorpus(t *testing.T) {
	dir := os.Getenv("RACKLESS_CORPUS")
	if dir == "" {
		t.Skip("RACKLESS_CORPUS does not name a directory with nvidia-topo/")
	}
	var lines []string
	for _, sub := range []string{"issues", "repos"} {
		files, err := filepath.Glob(filepath.Join(dir, "nvidia-topo", sub, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(b)
			name := sub + "/" + filepath.Base(f)
			if sub == "repos" {
				name = sub // file names there are names of accounts
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\n", name, hex.EncodeToString(sum[:]), outcome(b, name)))
		}
	}
	slices.Sort(lines)
	golden.Check(t, filepath.Join("testdata", "corpus.tsv"), []byte(strings.Join(lines, "")))
}
