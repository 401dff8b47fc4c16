package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/study/importer"
)

// The error names the verbs that accept it.
func TestInspectSaysWhatTakesResults(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"../../study/importer/testdata/cases/*", "../../bench/tool/testdata/nvbandwidth/*",
		"../../bench/tool/testdata/iperf3/recorded*-tcp.*", "../../bench/tool/testdata/osu/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			_, err := inspect.ReadFile(t.Context(), file)
			if err == nil || !strings.Contains(err.Error(), "rackless bench check") {
				t.Errorf("%s: %v, want the verbs that take results", file, err)
			}
		}
	}
	if got := importer.Tool([]byte("Architecture: x86_64\nCPU(s): 8\n")); got != "" {
		t.Errorf("lscpu is taken for results of %s", got)
	}
}
