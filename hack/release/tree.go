package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

type file struct {
	path    string // below the prefix
	mode    fs.FileMode
	content []byte
}

// Below the prefix, in the order of the Filesystem Hierarchy Standard.
const (
	binPath  = "bin/rackless"
	docPath  = "share/doc/rackless"
	manPath  = "share/man/man1"
	bashPath = "share/bash-completion/completions/rackless"
	fishPath = "share/fish/vendor_completions.d/rackless.fish"
	zshPath  = "share/zsh/site-functions/_rackless"
	unitPath = "lib/systemd/user/rackless-ui.service" // a user unit
)

// installed match all paths of tree, in any version.
var installed = []string{binPath, docPath, manPath + "/rackless.1.gz", manPath + "/rackless-*.1.gz", bashPath, fishPath,
	zshPath, unitPath}

func (r *release) tree(binary string, pages, completions map[string][]byte) ([]file, error) {
	b, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	files := []file{
		{binPath, 0o755, b},
		{bashPath, 0o644, completions["bash"]},
		{fishPath, 0o644, completions["fish"]},
		{zshPath, 0o644, completions["zsh"]},
	}
	if b, err = os.ReadFile(filepath.Join(r.source, "examples/monitoring", path.Base(unitPath))); err != nil {
		return nil, err
	}
	files = append(files, file{unitPath, 0o644, b})
	for name, text := range pages {
		z, err := compress(text)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join(manPath, name+".gz"), 0o644, z})
	}
	docs, err := r.docs()
	if err != nil {
		return nil, err
	}
	files = append(files, docs...)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

var documents = []string{"docs/*.md", "docs/*.json", "docs/*.svg", "docs/studies/*.md", "examples/*.yaml",
	"examples/hosts/*.yaml", "examples/simulations/*.yaml", "examples/studies/*.yaml", "examples/models/*.yaml",
	"examples/monitoring/*.json", "examples/monitoring/*.yaml", "examples/vscode/*.*", "CODE_OF_CONDUCT.md",
	"CONTRIBUTING.md", "GOVERNANCE.md", "SECURITY.md"}

func (r *release) docs() ([]file, error) {
	var files []file
	// Debian's tools look for the licence in the file copyright.
	for from, to := range map[string]string{"LICENSE": "copyright", "README.md": "README.md",
		"CHANGELOG.md": "CHANGELOG.md"} {
		b, err := os.ReadFile(filepath.Join(r.source, from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join(docPath, to), 0o644, b})
	}
	for _, pattern := range documents {
		found, err := filepath.Glob(filepath.Join(r.source, pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("no %s in %s: %v", pattern, r.source, err)
		}
		for _, f := range found {
			b, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			files = append(files, file{path.Join(docPath, path.Dir(pattern), filepath.Base(f)), 0o644, b})
		}
	}
	return files, nil
}

// compress writes no time and no name, so that equal pages give equal files.
func compress(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}
