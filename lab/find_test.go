package lab

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
)

func TestFilesAreToldFromOtherYAML(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	dir := fstest.MapFS{
		"pair.yaml":      file("name: pair\nnodes:\n  vm00: {}\n"),
		"broken.yml":     file("name: Pair\nnodes: [\n"),
		"study.yaml":     file("name: s\nlab: pair.yaml\nfactors: {}\n"),
		"kind.yaml":      file("kind: Cluster\nnodes:\n- role: worker\n"),
		"compose.yaml":   file("services: {}\nnodes: {}\n"),
		"pair.yaml~":     file("nodes: {}\n"),
		"notes.txt":      file("nodes: {}\n"),
		"deep.yaml":      file("lab:\n  nodes: {}\n"),
		"fifo.yaml":      {Mode: fs.ModeNamedPipe | 0o644},
		"below/lab.yaml": file("nodes: {}\n"),
	}
	got, err := Files(dir)
	if want := []string{"broken.yml", "pair.yaml"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
