package verify

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/rack"
)

// Kept are the findings of the last verify of a lab, for others to show: rackless ui and its metrics.
type Kept struct {
	At       time.Time         `json:"at"` // when the checks had been made
	Findings []finding.Finding `json:"findings"`
}

// keptFile is where the findings of a lab are kept.
func keptFile(d rack.Dirs, lab string) string {
	return filepath.Join(d.Data, "checks", lab+".json")
}

// Keep replaces what was kept of a lab. The file is complete or not there.
func Keep(d rack.Dirs, lab string, k Kept) error {
	path := keptFile(d, lab)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(path, text, 0o600) // addresses are in it
}

// Last returns what is kept of a lab; the zero value where it was never verified.
func Last(d rack.Dirs, lab string) (Kept, error) {
	var k Kept
	text, err := userfile.Read(keptFile(d, lab), userfile.Document)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(text, &k)
}
