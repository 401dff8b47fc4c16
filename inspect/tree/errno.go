package tree

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"syscall"
)

// ErrorName returns an error of reading as one line that ErrorOf knows: "EACCES" for an error of
// the kernel, whose numbers differ between architectures, and the text of any other. The operation
// and the name of the file are left out.
func ErrorName(err error) string {
	err = cause(err)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if name := errnoName(errno); name != "" {
			return name
		}
	}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return oneLine(err.Error())
}

// oneLine returns s with single spaces for all white space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// sentinels are the errors of package fs that are not an errno. No two are the same, so the order
// in which they are asked does not matter.
var sentinels = map[string]error{"not-exist": fs.ErrNotExist, "permission": fs.ErrPermission, "invalid": fs.ErrInvalid}

// ErrorOf returns the error that ErrorName made name from: the same errno or error of package fs,
// or one with the same text.
func ErrorOf(name string) error {
	name = oneLine(name) // before it is looked up: what ErrorName makes of an error has no other white space
	if errno, ok := errnos()[name]; ok {
		return errno
	}
	if err, ok := sentinels[name]; ok {
		return err
	}
	name = cmp.Or(name, "unknown error")
	return errors.New(name)
}

// errnos are the kernel's errors by name.
var errnos = sync.OnceValue(func() map[string]syscall.Errno {
	const last = 4095 // MAX_ERRNO of the kernel
	out := make(map[string]syscall.Errno)
	for e := firstErrno; e <= firstErrno+last; e++ {
		if name := errnoName(e); name != "" {
			out[name] = e
		}
	}
	return out
})

// cause returns what went wrong without operation and name, which are those of a step and not of the caller.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
