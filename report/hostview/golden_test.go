package hostview

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackless/rackless/internal/golden"
)

// drawnHosts have golden files: a server with tenants and findings, eight GPUs behind NVSwitches, and a matrix without
// a PCI tree.
var drawnHosts = []string{"epyc-4-nodes", "dgx-8gpu-10nic", "matrix-only"}

func TestOutputsOfHostsAreAsTheyWere(t *testing.T) {
	for _, c := range hostCases() {
		d := NewDocument(c.host, c.findings)
		for _, o := range []struct {
			file  string
			write func(*bytes.Buffer) error
		}{
			{"document.json", func(b *bytes.Buffer) error { return d.WriteJSON(b, true) }},
			{"document.yaml", func(b *bytes.Buffer) error { return d.WriteYAML(b) }},
			{"table.txt", func(b *bytes.Buffer) error { return d.WriteTable(b, TableOptions{}) }},
			{"matrix.txt", func(b *bytes.Buffer) error { return d.WriteMatrix(b) }},
			{"picture.svg", func(b *bytes.Buffer) error { return d.WriteSVG(b) }},
			{"page.html", func(b *bytes.Buffer) error { return d.WritePage(b) }},
		} {
			everyHost := o.file == "table.txt" || o.file == "document.json" && c.name != "arm-128vfs" // 300 kB
			if !everyHost && !slices.Contains(drawnHosts, c.name) {
				continue
			}
			t.Run(c.name+" "+o.file, func(t *testing.T) {
				t.Parallel()
				golden.Check(t, filepath.Join("testdata", "golden", c.name+"."+o.file), written(t, o.write))
			})
		}
	}
}
