package tree

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// resolve returns the name without links that name stands for, confined to the root. readLink reads
// one link whose directory has none; it fails with EINVAL for what is not a link. A link at the end
// of name is resolved only when follow is set.
func resolve(name string, follow bool, readLink func(string) (string, error)) (string, error) {
	if !fs.ValidPath(name) {
		return "", fs.ErrInvalid
	}
	at, links := ".", 0
	for rest := name; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(rest, "/")
		switch element {
		case "", ".":
			continue
		case "..":
			at = parentOf(at)
			continue
		}
		next := join(at, element)
		if rest == "" && !follow {
			return next, nil
		}
		target, err := readLink(next)
		if errors.Is(err, syscall.EINVAL) {
			at = next
			continue
		}
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			at = "."
		}
		if rest == "" {
			rest = target
		} else {
			rest = target + "/" + rest
		}
		if len(rest) > maxPath {
			return "", syscall.ENAMETOOLONG
		}
	}
	return at, nil
}

// parentOf returns the directory that a clean name is in; the root is in itself.
func parentOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return "."
}

// base returns the last element of a clean name.
func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
