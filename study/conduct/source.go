package conduct

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/study/importer"
)

// OpenSources opens what arguments name, all before the first is read: a wrong name costs nothing. The caller closes
// them.
func OpenSources(args []string) (sources []importer.Source, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	for _, arg := range args {
		src, closeSource, err := openSource(arg)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		sources, closers = append(sources, src), append(closers, closeSource)
	}
	return sources, closeAll, nil
}

// openSource opens what an argument names: LEVEL=PATH, or a PATH, which may have an equals sign
// of its own. Links cannot lead out of it.
func openSource(arg string) (src importer.Source, closeSource func(), err error) {
	level, path := "", arg
	info, err := os.Stat(arg)
	if before, after, ok := strings.Cut(arg, "="); ok && errors.Is(err, os.ErrNotExist) {
		level, path = before, after
		if level == "" {
			return importer.Source{}, nil, fmt.Errorf("%q: want a level before the equals sign", arg)
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return importer.Source{}, nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return importer.Source{}, nil, err
	}
	// What the user names may be a link; what is found in it may not lead out.
	dir, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return importer.Source{}, nil, err
	}
	src = importer.Source{Name: path, Path: ".", Level: level, Base: filepath.Base(abs)}
	if !info.IsDir() {
		dir, src.Path, src.Base = filepath.Dir(dir), filepath.Base(dir), filepath.Base(filepath.Dir(abs))
	}
	// os.Root refuses links that lead out of the directory, also those that are made while it is read.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return importer.Source{}, nil, err
	}
	src.FS = root.FS()
	return src, func() { _ = root.Close() }, nil
}
