package planner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
)

// ReadLab reads and checks a lab file. An error says which lab file was meant, where the path is a slip, and what the
// file is, where it is of another kind. All errors are *RequestError.
func ReadLab(path string) (*lab.Lab, error) {
	text, err := userfile.Read(path, userfile.Text)
	if err != nil {
		info, statErr := os.Stat(path)
		if isDir := statErr == nil && info.IsDir(); isDir || errors.Is(statErr, os.ErrNotExist) {
			err = fmt.Errorf("%s: %s", path, instead(path, isDir))
		}
		return nil, request(err)
	}
	l, err := lab.Parse(path, text)
	if err != nil {
		return nil, request(inspect.Misplaced(path, text, "a lab file", err))
	}
	return l, nil
}

// instead says that there is no lab file at path, and which one may be meant: one that is written alike, or those that
// there are in its directory or else in examples, where the name of a lab leads to as well.
func instead(path string, isDir bool) string {
	text, look := "no such lab file", []string{filepath.Dir(path), "examples"}
	if isDir {
		text, look = "a directory and no lab file", []string{path}
	}
	byName, names := map[string]string{}, []string{}
	for _, dir := range look {
		files, _ := lab.Files(os.DirFS(dir)) // one that cannot be read has none to offer
		for _, f := range files {
			if name := strings.TrimSuffix(f, filepath.Ext(f)); byName[name] == "" {
				byName[name] = filepath.Join(dir, f)
				names = append(names, name)
			}
		}
	}
	base := filepath.Base(path)
	if near := strictyaml.Nearest(strings.TrimSuffix(base, filepath.Ext(base)), names); near != "" {
		return text + "; did you mean " + byName[near] + "?"
	}
	for i, n := range names {
		names[i] = byName[n]
	}
	switch most := 5; {
	case len(names) == 0:
		return text + "; make one with: rackless init"
	case len(names) > most:
		names = append(names[:most], "...")
	}
	return text + "; there are " + strings.Join(names, ", ")
}

// LabName returns the name of the lab that an argument means: itself, or the name in the lab file
// that it leads to. What it returns is the name of a directory below that of the running labs, so
// nothing else must get through. Its errors are *RequestError.
func LabName(arg string) (string, error) {
	if strings.ContainsAny(arg, "./") {
		l, err := ReadLab(arg)
		if err != nil {
			return "", err
		}
		return l.Name, nil
	}
	if !isName(arg) {
		return "", request(fmt.Errorf("%q is not the name of a lab (letters a-z, digits and hyphens), and no lab file",
			arg))
	}
	return arg, nil
}

// isName reports whether a word can be the name of a lab or of a node.
func isName(s string) bool {
	return s != "" && len(s) <= lab.MaxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
