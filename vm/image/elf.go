package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

var programDirs = []string{"usr/bin", "usr/sbin", "bin", "sbin"}

func findProgram(root, name string) (string, error) {
	for _, dir := range programDirs {
		rel := filepath.Join(dir, name)
		target, err := resolveIn(root, rel)
		if err != nil {
			continue
		}
		if fi, err := os.Stat(filepath.Join(root, target)); err == nil && fi.Mode().IsRegular() {
			return rel, nil
		}
	}
	return "", fmt.Errorf("program %s is in none of the packages", name)
}

// libraryDirs begins with /usr, so that a file also reachable through a link outside /usr has only one name.
var libraryDirs = []string{"usr/lib", "usr/lib64", "lib", "lib64"}

// closure returns the programs with all shared libraries and loaders that they need, relative to root. It only reads
// ELF headers, so root may hold a foreign system.
//
// Libraries opened at run time (dlopen) are not in headers; a recipe lists them in Keep.
func closure(root string, programs []string) ([]string, error) {
	index, err := indexLibraries(root)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	var order []string
	var visit func(rel, why string) error
	visit = func(rel, why string) error {
		if seen[rel] {
			return nil
		}
		seen[rel] = true
		order = append(order, rel)
		target, err := resolveIn(root, rel)
		if err != nil {
			return fmt.Errorf("%s (%s): %w", rel, why, err)
		}
		needed, interp, err := elfNeeds(filepath.Join(root, target))
		if err != nil {
			return fmt.Errorf("%s (%s): %w", rel, why, err)
		}
		if interp != "" {
			p, err := resolveIn(root, interp)
			if err != nil {
				return fmt.Errorf("%s: its loader %s: %w", rel, interp, err)
			}
			// Programs name the loader by this path, even if it is a link.
			if err := visit(p, "loader of "+rel); err != nil {
				return err
			}
			if name := strings.TrimPrefix(interp, "/"); !seen[name] {
				seen[name] = true
				order = append(order, name)
			}
		}
		for _, so := range needed {
			p, ok := index[so]
			if !ok {
				return fmt.Errorf("%s needs %s, which no package in the build root provides", rel, so)
			}
			if err := visit(p, "needed by "+rel); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range programs {
		if err := visit(p, "asked for"); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// indexLibraries maps names to paths relative to root. The dynamic loader looks for the exact name, so each link is an
// entry.
func indexLibraries(root string) (map[string]string, error) {
	index := make(map[string]string)
	for _, dir := range libraryDirs {
		for _, pattern := range []string{"*.so*", "*-linux-gnu*/*.so*"} {
			found, err := filepath.Glob(filepath.Join(root, dir, pattern))
			if err != nil {
				return nil, err
			}
			for _, f := range found {
				rel, err := filepath.Rel(root, f)
				if err != nil {
					return nil, err
				}
				if _, dup := index[filepath.Base(f)]; !dup {
					index[filepath.Base(f)] = rel
				}
			}
		}
	}
	return index, nil
}

// elfNeeds returns needed sonames and the program interpreter. A file that is not ELF, such as a script, needs nothing.
func elfNeeds(path string) (needed []string, interp string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		if _, notELF := errors.AsType[*elf.FormatError](err); notELF || errors.Is(err, io.EOF) {
			return nil, "", nil
		}
		return nil, "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return nil, "", fmt.Errorf("read interpreter: %w", err)
			}
			interp = strings.TrimRight(string(b), "\x00")
		}
	}
	needed, err = f.ImportedLibraries()
	if err != nil {
		return nil, "", fmt.Errorf("read needed libraries: %w", err)
	}
	return needed, interp, nil
}

// resolveIn follows links as a process with that root would, and returns a path relative to root.
func resolveIn(root, path string) (string, error) {
	rel := strings.TrimPrefix(filepath.Clean(path), "/")
	for range 40 { // the kernel's limit
		done := true
		parts := strings.Split(rel, "/")
		// A directory may be a link too.
		for i := range parts {
			head := filepath.Join(parts[:i+1]...)
			fi, err := os.Lstat(filepath.Join(root, head))
			if err != nil {
				return "", err
			}
			if fi.Mode()&os.ModeSymlink == 0 {
				continue
			}
			target, err := os.Readlink(filepath.Join(root, head))
			if err != nil {
				return "", err
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join("/", filepath.Dir(head), target)
			}
			rel = strings.TrimPrefix(filepath.Join(append([]string{target}, parts[i+1:]...)...), "/")
			done = false
			break
		}
		if done {
			return rel, nil
		}
	}
	return "", fmt.Errorf("too many symbolic links in %s", path)
}
