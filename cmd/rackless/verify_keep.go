package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/rack"
)

// keptFindings are those of the last verify of a lab, for others to show: rackless ui and its metrics.
type keptFindings struct {
	At       time.Time       `json:"at"` // when the checks had been made
	Findings []check.Finding `json:"findings"`
}

func findingsFile(d rack.Dirs, lab string) string {
	return filepath.Join(d.Data, "checks", lab+".json")
}

// keepFindings replaces those that were kept of a lab.
func keepFindings(d rack.Dirs, lab string, k keptFindings) error {
	path := findingsFile(d, lab)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600: addresses are in it
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readFindings returns what is kept of a lab; nothing where it was never verified.
func readFindings(d rack.Dirs, lab string) (keptFindings, error) {
	var k keptFindings
	text, err := os.ReadFile(findingsFile(d, lab))
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(text, &k)
}
