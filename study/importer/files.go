package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/paste"
)

// A Source is a file or a directory to import.
type Source struct {
	FS    fs.FS
	Path  string // in FS; "." is all of it
	Name  string // as the user wrote it, for messages
	Base  string // its own name: that of the study, and of the level where nothing else names one
	Level string // of everything in it; "" where directories name the levels
}

// A file is a file of a source, read.
type file struct {
	source int
	name   string // for messages
	rel    string // below the source; the name of the file where the source is one
	data   []byte
	size   int    // bytes in the file: data is less where it is a run of several
	sum    string // SHA-256 of all that the file holds, hexadecimal
	above  int    // lines of the file above data, where data is a run of several
}

// dir returns the directories between the source and the file.
func (f *file) dir() []string {
	d := path.Dir(f.rel)
	if d == "." {
		return nil
	}
	return strings.Split(d, "/")
}

// fail is an error at a line of data; 0 is none.
func (f *file) fail(line int, format string, args ...any) error {
	if line > 0 {
		line += f.above
	}
	return &Error{File: f.name, Line: line, What: fmt.Sprintf(format, args...)}
}

// origin says where a figure of the file stands.
func (f *file) origin(level string) Origin { return Origin{File: f.name, SHA256: f.sum, Level: level} }

// readAll reads all files of the sources, those of a source in natural order. Names that begin with
// a dot are left out, as directory listings do.
func readAll(sources []Source) ([]*file, error) {
	var all []*file
	for i, src := range sources {
		var rels []string
		err := fs.WalkDir(src.FS, src.Path, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case p != src.Path && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			// Whoever gives a home directory by mistake gets an answer at once, and not after all of it was read.
			case d.IsDir() && strings.Count(p, "/") >= maxDepth:
				return &Error{File: path.Join(src.Name, p),
					What: fmt.Sprintf("deeper than %d directories: give the directory that holds the results",
						maxDepth)}
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				// Links may lead anywhere, and pipes never end.
				return nil
			case len(all)+len(rels) >= maxFiles:
				return &Error{File: src.Name, What: fmt.Sprintf("more than %d files: give the directory that holds "+
					"the results", maxFiles)}
			}
			rels = append(rels, p)
			return nil
		})
		if err != nil {
			return nil, named(src, err)
		}
		// The order decides which file is the first repeat: run2 comes before run10, as people number them.
		slices.SortFunc(rels, natural)
		for _, p := range rels {
			f := &file{source: i, rel: p, name: path.Join(src.Name, p)}
			if p == src.Path { // the source is this file
				f.rel, f.name = path.Base(p), src.Name
			}
			if f.data, err = read(src.FS, p); err != nil {
				return nil, named(src, err)
			}
			sum := sha256.Sum256(f.data)
			if !bytes.HasPrefix(bytes.TrimSpace(f.data), []byte("{")) {
				f.data = paste.Clean(f.data)
			}
			f.size = len(f.data)
			f.sum = hex.EncodeToString(sum[:])
			all = append(all, f)
		}
		if len(rels) == 0 {
			what := "there is no file in it"
			if info, err := fs.Stat(src.FS, src.Path); err == nil && !info.IsDir() {
				what = "neither a file nor a directory: write what it gives into a file"
			}
			return nil, &Error{File: src.Name, What: what}
		}
	}
	return all, nil
}

// named gives an error of the file system the name that the user knows.
func named(src Source, err error) error {
	if _, own := errors.AsType[*Error](err); own {
		return err
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{File: path.Join(src.Name, p.Path), What: p.Err.Error()}
	}
	return &Error{File: src.Name, What: err.Error()}
}

// read bounds what it takes: what is imported comes from strangers, and a file that never ends would take all memory.
func read(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = &fs.PathError{Op: "read", Path: name,
			Err: fmt.Errorf("larger than %d MiB, which no result is", maxFileSize>>20)}
	}
	return data, err
}
