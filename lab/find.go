package lab

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
)

// A lab file with faults still counts, so that its user sees the faults.
var isLab, isOther = regexp.MustCompile(`(?m)^nodes[ \t]*:`),
	regexp.MustCompile(`(?m)^(apiVersion|kind|services)[ \t]*:`)

// maxSniffed is in bytes. Lab files have a few hundred.
const maxSniffed = 64 << 10

// Files returns the sorted names of the lab files in a directory.
func Files(dir fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("look for lab files: %w", err)
	}
	var names []string
	for _, e := range entries {
		// Opening a FIFO would wait for a writer, and a link may lead to one.
		info, err := fs.Stat(dir, e.Name())
		if ext := path.Ext(e.Name()); err != nil || !info.Mode().IsRegular() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		f, err := dir.Open(e.Name())
		if err != nil {
			continue // not readable by this user
		}
		text, err := io.ReadAll(io.LimitReader(f, maxSniffed))
		f.Close()
		if err == nil && isLab.Match(text) && !isOther.Match(text) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
