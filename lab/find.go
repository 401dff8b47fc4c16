package lab

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
)

// isLab tells a lab file from other YAML files that people keep beside it. A lab file with a fault in it is one still:
// its user wants to hear of the fault.
var isLab, isOther = regexp.MustCompile(`(?m)^nodes[ \t]*:`),
	regexp.MustCompile(`(?m)^(apiVersion|kind|services)[ \t]*:`)

// maxSniffed is how much of a file is looked at: lab files are a few hundred bytes.
const maxSniffed = 64 << 10

// Files returns the names of the lab files in a directory, in order.
func Files(dir fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("look for lab files: %w", err)
	}
	var names []string
	for _, e := range entries {
		// A FIFO would wait for a writer. A link may lead to one.
		info, err := fs.Stat(dir, e.Name())
		if ext := path.Ext(e.Name()); err != nil || !info.Mode().IsRegular() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		f, err := dir.Open(e.Name())
		if err != nil {
			continue // not this user's
		}
		text, err := io.ReadAll(io.LimitReader(f, maxSniffed))
		f.Close()
		if err == nil && isLab.Match(text) && !isOther.Match(text) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
