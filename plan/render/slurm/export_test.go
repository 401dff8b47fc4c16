package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan/render"
)

// Slurm itself starts with the golden files of render/export.
func TestSlurmTakesTheExportedFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lab, nodes string
		want       []string // the switches above a job that asks to stay below one, in some order
	}{
		{"epyc-pair", "2", []string{"fabric.vm00", "fabric.vm01"}},
		{"r740-one", "1", []string{"fabric.vm"}},
		{"r740-eight", "4", []string{"fabric.nic-0000-3b-00.0.vm00", "fabric.nic-0000-3b-00.0.vm03",
			"fabric.nic-0000-3b-00.0.vm04", "fabric.nic-0000-3b-00.0.vm05"}},
	} {
		t.Run(tt.lab, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("..", "export", "testdata", tt.lab, "slurm")
			list, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var files []render.Artifact
			for _, e := range list {
				data, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, render.Artifact{Path: e.Name(), Data: data})
			}
			s := started(t, files)
			out, err := s.Run("srun", "--immediate=30", "--switches=1", "--nodes="+tt.nodes, "sh", "-c",
				"echo $SLURM_TOPOLOGY_ADDR")
			got := strings.Fields(out)
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
