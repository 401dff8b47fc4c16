package hostview

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryOutputOfEveryHostIsAsItWas(t *testing.T) {
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
			if strings.HasPrefix(o.file, "document.") && len(d.PCI) > 60 {
				continue // the smaller ones show the form
			}
			t.Run(c.name+" "+o.file, func(t *testing.T) {
				t.Parallel()
				golden(t, filepath.Join("testdata", "golden", c.name+"."+o.file), written(t, o.write))
			})
		}
	}
}
