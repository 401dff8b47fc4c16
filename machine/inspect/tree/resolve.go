package tree

import (
	"io/fs"
	"strings"
	"syscall"
)

// maxPath bounds a name while its links are resolved. It is far above Linux's PATH_MAX of 4096, and
// keeps 40 hostile links from growing it.
const maxPath = 64 << 10

// follow walks name from root and follows links, as path_resolution(7) describes it for a process
// whose root is root: an absolute target starts there, and ".." of the root is the root. A link at the
// end of name is followed only when last is set.
//
// up returns the directory that a place is in. enter returns an entry of a directory and, where the
// entry is a link, its target.
func follow[T any](name string, last bool, root T, up func(at T) T,
	enter func(at T, element string) (next T, target string, isLink bool, err error)) (T, error) {
	var none T
	if !fs.ValidPath(name) {
		return none, fs.ErrInvalid
	}
	at, links := root, 0
	for rest := name; rest != ""; {
		var element string
		element, rest = cutElement(rest)
		// Empty elements and dots come from link targets, such as "../../devices//cpu/".
		switch element {
		case "", ".":
			continue
		case "..":
			at = up(at)
			continue
		}
		next, target, isLink, err := enter(at, element)
		if err != nil {
			return none, err
		}
		if !isLink || rest == "" && !last {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return none, syscall.ELOOP
		}
		if target == "" {
			return none, fs.ErrNotExist // The kernel makes no link that leads to nothing.
		}
		if target[0] == '/' {
			at = root
		}
		if rest != "" {
			target += "/" + rest
		}
		if rest = target; len(rest) > maxPath {
			return none, syscall.ENAMETOOLONG
		}
	}
	return at, nil
}

// resolve returns the name without links that name stands for. readLink reads one link whose
// directory has none; it fails with EINVAL for what is not a link.
func resolve(name string, last bool, readLink func(string) (string, error)) (string, error) {
	return follow(name, last, ".", parentOf, func(at, element string) (string, string, bool, error) {
		next := join(at, element)
		target, err := readLink(next)
		if err == syscall.EINVAL {
			return next, "", false, nil
		}
		return next, target, err == nil, err
	})
}

// cutElement takes the first element off a name. strings.Cut would take a fifth of the time that it takes to find a
// file in memory.
func cutElement(name string) (first, rest string) {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return name, ""
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

// join appends an element to the clean name of a directory.
func join(dir, element string) string {
	if dir == "." {
		return element
	}
	return dir + "/" + element
}
