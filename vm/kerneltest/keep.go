package kerneltest

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// Keep reduces the initial file system to files that match patterns (path.Match), with their libraries and link
// targets. Call it before Add. Unpacking the whole image takes an emulated kernel seconds.
func (m *Machine) Keep(t TB, patterns ...string) {
	t.Helper()
	in, err := os.Open(m.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	all, err := cpio.ReadAllRecords(cpio.Newc.Reader(in))
	if err != nil {
		t.Fatalf("%s: %v", m.Initrd, err)
	}
	kept, err := keep(all, patterns)
	if err != nil {
		t.Fatalf("%s: %v", m.Initrd, err)
	}
	path := filepath.Join(t.TempDir(), "initrd")
	if err := writeAfter(path, strings.NewReader(""), kept); err != nil {
		t.Fatal(err)
	}
	m.Initrd = path
}

// An archive has files by name, and by base name for libraries.
type archive struct {
	files  map[string]cpio.Record
	byBase map[string][]string
	kept   map[string]bool
}

func keep(all []cpio.Record, patterns []string) (kept []cpio.Record, err error) {
	a := archive{map[string]cpio.Record{}, map[string][]string{}, map[string]bool{}}
	for _, r := range all {
		a.files[r.Name] = r
		a.byBase[path.Base(r.Name)] = append(a.byBase[path.Base(r.Name)], r.Name)
	}
	for _, pattern := range patterns {
		matched := false
		for _, r := range all {
			ok, err := path.Match(pattern, r.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pattern, err)
			}
			if !ok {
				continue
			}
			matched = true
			if err := a.keep(r.Name); err != nil {
				return nil, err
			}
		}
		if !matched {
			return nil, fmt.Errorf("no file matches %s", pattern)
		}
	}
	for _, r := range all {
		kind := r.Mode & cpio.S_IFMT
		if a.kept[r.Name] || kind != cpio.S_IFREG && kind != cpio.S_IFLNK {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

func (a *archive) keep(name string) error {
	r, ok := a.files[name]
	if !ok {
		return fmt.Errorf("no file %s", name)
	}
	if a.kept[name] {
		return nil
	}
	a.kept[name] = true
	switch r.Mode & cpio.S_IFMT {
	case cpio.S_IFLNK:
		to := make([]byte, r.FileSize)
		if _, err := r.ReadAt(to, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		target := string(to)
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(name), target)
		}
		return a.keep(cpio.Normalize(target))
	case cpio.S_IFREG:
		return a.keepLibraries(r)
	}
	return nil
}

func (a *archive) keepLibraries(r cpio.Record) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil // a script, or data
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	for _, library := range needed {
		if len(a.byBase[library]) == 0 {
			return fmt.Errorf("no library %s, which %s needs", library, r.Name)
		}
		for _, name := range a.byBase[library] {
			if err := a.keep(name); err != nil {
				return err
			}
		}
	}
	return nil
}
