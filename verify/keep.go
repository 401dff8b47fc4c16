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

// A Record holds the findings of the last verify of a lab, for rackless ui and its metrics.
type Record struct {
	At       time.Time         `json:"at"` // when the checks were finished
	Findings []finding.Finding `json:"findings"`
}

// recordFile returns the path of a lab's record.
func recordFile(d rack.Dirs, lab string) string { return filepath.Join(d.Data, "checks", lab+".json") }

// SaveRecord replaces the record of a lab. The file is written completely or not at all.
func SaveRecord(d rack.Dirs, lab string, k Record) error {
	path := recordFile(d, lab)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(path, text, 0o600) // it contains addresses
}

// LastRecord returns the record of a lab; the zero value if the lab was never verified.
func LastRecord(d rack.Dirs, lab string) (Record, error) {
	var k Record
	text, err := userfile.Read(recordFile(d, lab), userfile.Document)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(text, &k)
}
