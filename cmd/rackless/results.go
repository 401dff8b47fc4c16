package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report"
)

// Results of one measurement lie in a directory DATA/results/LAB/TIME of their own:
//
//	samples.jsonl  one figure a line, see docs/measuring.md
//	report.json    everything that the page shows, samples included
//	index.html     the page
const (
	samplesFile = "samples.jsonl"
	reportFile  = "report.json"
	pageFile    = "index.html"

	resultTime = "20060102T150405Z" // names that sort by time
)

func resultsDir(d rack.Dirs) string { return filepath.Join(d.Data, "results") }

// saveResults writes a result directory and returns its path. It is complete or not there.
func saveResults(d rack.Dirs, data report.Data) (string, error) {
	parent := filepath.Join(resultsDir(d), data.Lab)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("results: %w; set RACKLESS_DATA to a directory that can be written", err)
	}
	work, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", fmt.Errorf("results: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	for _, file := range []struct {
		name string
		fill func(w io.Writer) error
	}{
		{samplesFile, func(w io.Writer) error { return bench.WriteSamples(w, data.Samples) }},
		{reportFile, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", " ")
			return e.Encode(data)
		}},
		{pageFile, func(w io.Writer) error { return report.Page(w, data) }},
	} {
		err := writeResult(filepath.Join(work, file.name), file.fill)
		switch {
		case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
			return "", fmt.Errorf("results: %w; free space there, or set RACKLESS_DATA to a directory with more", err)
		case err != nil:
			return "", fmt.Errorf("results: %w", err)
		}
	}
	name := data.Generated.UTC().Format(resultTime)
	for i := 0; ; i++ { // two measurements that end in the same second
		dir := filepath.Join(parent, name)
		if i > 0 {
			dir = fmt.Sprintf("%s-%d", dir, i)
		}
		err := os.Rename(work, dir) // fails on a directory that has something in it
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrExist) || i == 100 {
			return "", fmt.Errorf("results: %w", err)
		}
	}
}

// writeResult writes one file of a result. What could not be written may show only when it is closed.
func writeResult(path string, fill func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// A result is one stored measurement.
type result struct {
	Lab  string `json:"lab"`
	Time string `json:"time"`
	Dir  string `json:"dir"`
}

// listResults returns the stored measurements, of one lab or of all, oldest first.
func listResults(d rack.Dirs, lab string) ([]result, error) {
	pattern := filepath.Join(resultsDir(d), "*", "*", reportFile)
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all []result
	for _, f := range found {
		dir := filepath.Dir(f)
		r := result{Lab: filepath.Base(filepath.Dir(dir)), Time: filepath.Base(dir), Dir: dir}
		if !strings.HasPrefix(r.Time, ".") && (lab == "" || r.Lab == lab) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b result) int { return strings.Compare(a.Time, b.Time) })
	return all, nil
}

// loadResult reads a result directory.
func loadResult(dir string) (report.Data, error) {
	var data report.Data
	path := filepath.Join(dir, reportFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return data, err
	}
	if err := json.Unmarshal(b, &data); err != nil {
		return data, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}
