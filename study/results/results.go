// Package results stores measurements and baselines on disk, each completely or not at all.
package results

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
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/study/record"
)

// The files of a measurement, in DATA/results/LAB/TIME.
const (
	SamplesFile = "samples.jsonl" // see docs/measuring.md
	reportFile  = "report.json"   // all data of the page
	PageFile    = "index.html"
)

// timeFormat sorts by time.
const timeFormat = "20060102T150405Z"

// A Store is the directory of a user's measurements.
type Store struct {
	Data string // see rack.Dirs
}

// Dir returns the directory of all labs' measurements.
func (s Store) Dir() string { return filepath.Join(s.Data, "results") }

// Unfinished returns the journal file of a lab's unfinished measurement.
func (s Store) Unfinished(lab string) string { return filepath.Join(s.Dir(), lab, ".unfinished") }

// Save writes a measurement and its page, and returns the directory. If the disk is full, nothing is left.
func (s Store) Save(data record.Record, page func(io.Writer, record.Record) error) (string, error) {
	parent := filepath.Join(s.Dir(), data.Lab)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("results: %w; set RACKLESS_DATA to a directory that can be written", err)
	}
	// A reader never sees a partial result.
	work, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", fmt.Errorf("results: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	// Samples are in the report too; their file is for tools that read line by line.
	for _, file := range []struct {
		name string
		fill func(w io.Writer) error
	}{
		{SamplesFile, func(w io.Writer) error { return bench.WriteSamples(w, data.Samples) }},
		{reportFile, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", " ")
			return e.Encode(data)
		}},
		{PageFile, func(w io.Writer) error { return page(w, data) }},
	} {
		err := writeFile(filepath.Join(work, file.name), file.fill)
		switch {
		case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
			return "", fmt.Errorf("results: %w; free space there, or set RACKLESS_DATA to a directory with more", err)
		case err != nil:
			return "", fmt.Errorf("results: %w", err)
		}
	}
	name := data.Generated.UTC().Format(timeFormat)
	for i := 0; ; i++ { // two may end in the same second
		dir := filepath.Join(parent, name)
		if i > 0 {
			dir = fmt.Sprintf("%s-%d", dir, i)
		}
		err := atomicfile.Rename(work, dir) // fails if dir is not empty
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrExist) || i == 100 {
			return "", fmt.Errorf("results: %w", err)
		}
	}
}

// writeFile checks Close, because some write errors appear only there.
func writeFile(path string, fill func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// A Result is one stored measurement, as bench show --list prints it.
type Result struct {
	Lab  string `json:"lab"`
	Time string `json:"time"`
	Dir  string `json:"dir"`
}

// List returns the measurements of one lab or of all, oldest first.
func (s Store) List(lab string) ([]Result, error) {
	found, err := filepath.Glob(filepath.Join(s.Dir(), "*", "*", reportFile))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, f := range found {
		dir := filepath.Dir(f)
		r := Result{Lab: filepath.Base(filepath.Dir(dir)), Time: filepath.Base(dir), Dir: dir}
		// incomplete results begin with a dot
		if !strings.HasPrefix(r.Time, ".") && (lab == "" || r.Lab == lab) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Result) int { return strings.Compare(a.Time, b.Time) })
	return all, nil
}

// Find returns the directory of a measurement, given as such or as LAB/TIME, or "".
func (s Store) Find(arg string) string {
	dirs := []string{arg}
	if filepath.IsLocal(arg) && strings.Count(arg, "/") > 0 {
		dirs = append(dirs, filepath.Join(s.Dir(), arg))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, reportFile)); err == nil {
			return dir
		}
	}
	return ""
}

// Last returns the last measurement of a lab, or of any if lab is "".
func (s Store) Last(lab string) (string, error) {
	all, err := s.List(lab)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		what := "no measurement is stored"
		if lab != "" {
			what += " of lab " + lab
		}
		return "", fmt.Errorf("%s in %s; make one with: rackless bench NAME", what, s.Dir())
	}
	return all[len(all)-1].Dir, nil
}

// Load reads the directory of a measurement.
func Load(dir string) (record.Record, error) {
	var data record.Record
	path := filepath.Join(dir, reportFile)
	b, err := userfile.Read(path, userfile.Document)
	if err != nil {
		return data, err
	}
	if err := json.Unmarshal(b, &data); err != nil {
		return data, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// BaselineFile returns the default file of a lab's baseline.
func (s Store) BaselineFile(lab string) string {
	return filepath.Join(s.Data, "baselines", lab+".json")
}

// SaveBaseline writes to file, or to the default file if "", and returns the path. A truncated baseline would break
// every check, so it writes atomically.
func (s Store) SaveBaseline(file string, b *expect.Baseline) (path string, err error) {
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
