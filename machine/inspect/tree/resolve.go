package tree

import (
	"io/fs"
	"strings"
	"syscall"
)

// maxPath is far above Linux's PATH_MAX of 4096, and stops 40 hostile links from growing a name.
const maxPath = 64 << 10

// follow walks name from root and follows links, as path_resolution(7) describes for a process with that root. It
// follows a link at the end of name only if last is set. enter returns an entry of a directory and, if it is a link,
// its target.
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
		// From link targets, such as "../../devices//cpu/".
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
			return none, fs.ErrNotExist // the kernel makes no such link
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

// resolve returns a link-free name. readLink gets a name whose directory is link-free, and fails with EINVAL if the
// entry is not a link.
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

// cutElement avoids strings.Cut, which would take a fifth of a file lookup in memory.
func cutElement(name string) (first, rest string) {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// parentOf returns the root for the root.
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
