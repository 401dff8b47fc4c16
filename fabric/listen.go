package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path of a unix socket: sun_path has 108 bytes, one of them for the final zero (unix(7)).
const maxPath = 107

// A boundSocket is a listening unix stream socket and the file it made.
type boundSocket struct {
	fd   int
	path string
	file fs.FileInfo // tells our file from one that somebody else put in its place later
}

// bind creates a non-blocking listening socket at path with mode 0600. A socket file that stands
// there already is removed: it is what a switch that was killed left behind. Whether another switch
// lives is asked once for all ports, at its control socket.
func bind(path string) (*boundSocket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen at %q: the path has %d bytes and a unix socket's may have %d: use a directory "+
			"with a shorter name", path, len(path), maxPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: socket: %w", path, err)
	}
	s := &boundSocket{fd: fd, path: path}
	// On Linux bind makes the file with the mode of the socket's own inode, less the umask. Setting
	// it here leaves no moment in which others could connect, which chmod on the path after bind
	// would.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: fchmod: %w", path, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: bind: %w", path, err)
	}
	if s.file, err = os.Lstat(path); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: %w", path, err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %q: %w", path, err), s.close())
	}
	return s, nil
}

// removeStale removes the socket at path, if there is one, and refuses to remove anything else.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen at %q: %w", path, err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen at %q: the path exists and is not a socket (mode %v): remove it or choose "+
			"another path", path, fi.Mode())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("listen at %q: remove the old socket: %w", path, err)
	}
	return nil
}

// close closes the socket and removes its file, unless the file is no longer ours.
func (s *boundSocket) close() error {
	unix.Close(s.fd)
	return s.unlink()
}

func (s *boundSocket) unlink() error {
	fi, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	if !os.SameFile(fi, s.file) {
		return nil
	}
	if err := os.Remove(s.path); err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}
