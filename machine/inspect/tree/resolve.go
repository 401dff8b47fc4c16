package tree

import (
	"io/fs"
	"strings"
	"syscall"
)

// maxPath limits a name while its links are resolved. It is far above Linux's PATH_MAX of 4096, and stops 40 hostile
// links from growing it.
const maxPath = 64 << 10

// follow walks name from root and follows links, as path_resolution(7) describes for a process with root directory
// root: an absolute target starts there, and ".." of the root is the root. It follows a link at the end of name only
// if last is set.
//
// up returns the parent directory of a place. enter returns an entry of a directory and, if it is a link, its target.
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
			return none, fs.ErrNotExist // The kernel makes no link with an empty target.
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

// resolve returns the link-free name of the file called name. readLink reads a link whose directory name is
// link-free; it fails with EINVAL if the entry is not a link.
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

// cutElement splits off the first element of a name. strings.Cut would take a fifth of the time of a file lookup in
// memory.
func cutElement(name string) (first, rest string) {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// parentOf returns the directory of a clean name; the root's is the root.
func parentOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return "."
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func join(dir, element string) string {
	if dir == "." {
		return element
	}
	return dir + "/" + element
}
