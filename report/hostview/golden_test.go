package hostview

import (
	"bytes"
	"path/filepath"
	"testing"
)

func TestEveryOutputOfEveryHostIsAsItWas(t *testing.T) {
	for _, c := range hostCases() {
		d := NewDocument(c.host, c.findings)
		for _, o := range []struct {
			file  string
			write func(*bytes.Buffer) error
		}{
			{"table.txt", func(b *bytes.Buffer) error { return d.WriteTable(b, TableOptions{}) }},
			{"matrix.txt", func(b *bytes.Buffer) error { return d.WriteMatrix(b) }},
			{"picture.svg", func(b *bytes.Buffer) error { return d.WriteSVG(b) }},
			{"graph.dot", func(b *bytes.Buffer) error { return d.WriteDOT(b) }},
			{"page.html", func(b *bytes.Buffer) error { return d.WritePage(b) }},
		} {
			t.Run(c.name+" "+o.file, func(t *testing.T) {
				t.Parallel()
				golden(t, filepath.Join("testdata", "golden", c.name+"."+o.file), written(t, o.write))
			})
		}
	}
}
