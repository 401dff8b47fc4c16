// Package results keeps measurements on disk: those of rackless bench, and the baselines that later
// ones are compared with. Each is complete or not there.
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

// The files of a measurement, which lie in a directory DATA/results/LAB/TIME of their own.
const (
	SamplesFile = "samples.jsonl" // one figure a line, see docs/measuring.md
	reportFile  = "report.json"   // everything that the page shows, samples included
	PageFile    = "index.html"
)

// timeFormat gives names that sort by time.
const timeFormat = "20060102T150405Z"

// A Store is where the measurements of a user are kept.
type Store struct {
	Data string // the directory, see rack.Dirs
}

// Dir is the directory that the measurements of all labs lie in.
func (s Store) Dir() string { return filepath.Join(s.Data, "results") }

// Unfinished is a file that keeps what is measured of a lab until all is.
func (s Store) Unfinished(lab string) string { return filepath.Join(s.Dir(), lab, ".unfinished") }

// Save writes a measurement, with the page that page writes of it, and returns its directory. Where the disk is full,
// the error says so and nothing is left.
func (s Store) Save(data record.Record, page func(io.Writer, record.Record) error) (string, error) {
	parent := filepath.Join(s.Dir(), data.Lab)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("results: %w; set RACKLESS_DATA to a directory that can be written", err)
	}
	// All files are written beside their place and moved there together, so that a reader never finds a part of a
	// result.
	work, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", fmt.Errorf("results: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	// The samples are also in the report. They have a file of their own for tools that read JSON line by line.
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
	for i := 0; ; i++ { // two measurements that end in the same second
		dir := filepath.Join(parent, name)
		if i > 0 {
			dir = fmt.Sprintf("%s-%d", dir, i)
		}
		err := atomicfile.Rename(work, dir) // fails on a directory that has something in it
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrExist) || i == 100 {
			return "", fmt.Errorf("results: %w", err)
		}
	}
}

// writeFile writes one file of a result. What could not be written may show only when it is closed.
func writeFile(path string, fill func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// A Result is one stored measurement. As JSON it is what rackless report --list prints.
type Result struct {
	Lab  string `json:"lab"`
	Time string `json:"time"`
	Dir  string `json:"dir"`
}

// List returns the stored measurements, of one lab or of all, oldest first.
func (s Store) List(lab string) ([]Result, error) {
	found, err := filepath.Glob(filepath.Join(s.Dir(), "*", "*", reportFile))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, f := range found {
		dir := filepath.Dir(f)
		r := Result{Lab: filepath.Base(filepath.Dir(dir)), Time: filepath.Base(dir), Dir: dir}
		// Directories that begin with a dot are results that are being written, or that were broken off.
		if !strings.HasPrefix(r.Time, ".") && (lab == "" || r.Lab == lab) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Result) int { return strings.Compare(a.Time, b.Time) })
	return all, nil
}

// Find returns the directory that an argument names: a directory with a measurement, or LAB/TIME as
// List has them. It is "" where the argument is neither.
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

// Last returns the directory of the last measurement of a lab, or of any if lab is "".
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

// BaselineFile is where the baseline of a lab is kept, unless the user names another file.
func (s Store) BaselineFile(lab string) string {
	return filepath.Join(s.Data, "baselines", lab+".json")
}

// SaveBaseline writes a baseline to a file, or to that of its lab where file is "", and returns the
// path. It is written whole or not at all: a baseline that is cut off would stop every check.
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
