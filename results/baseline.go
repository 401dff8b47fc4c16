package results

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/atomicfile"
)

// BaselineFile is where the baseline of a lab is kept, unless the user names another file.
func (s Store) BaselineFile(lab string) string {
	return filepath.Join(s.Data, "baselines", lab+".json")
}

// SaveBaseline writes a baseline to a file, or to that of its lab where file is "", and returns the
// path. It is written whole or not at all: a baseline that is cut off would stop every check.
func (s Store) SaveBaseline(file string, b *bench.Baseline) (path string, err error) {
	path = file
	if path == "" {
		path = s.BaselineFile(b.Lab)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return "", err
	}
	return path, atomicfile.WriteFile(path, append(text, '\n'), 0o644)
}
