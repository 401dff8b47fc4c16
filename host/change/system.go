package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/trace"
)

// A System is the machine to change.
type System struct {
	// Root is "/", or the directory of a test.
	Root string
	// Run runs a program and returns its standard output; nil means [Exec].
	Run func(ctx context.Context, argv []string) ([]byte, error)
	// Fault, if set, is called before each single change. Tests kill the process or cut the power there.
	Fault func(what string)
}

// Path returns the path below Root. It is for reading; changes go through the methods.
func (s *System) Path(path string) string { return filepath.Join(s.Root, path) }

// ReadFile reads a file of the machine.
func (s *System) ReadFile(path string) ([]byte, error) {
	trace.Reads(s.Path(path))
	return os.ReadFile(s.Path(path))
}

// Value reads a file of one line without the newline.
func (s *System) Value(path string) (string, error) {
	b, err := s.ReadFile(path)
	return strings.TrimRight(string(b), "\n"), err
}

// Number reads decimals, or hexadecimals with 0x (such as the flags of network devices).
func (s *System) Number(path string) (uint64, error) {
	text, err := s.Value(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 0, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", path, text)
	}
	return n, nil
}

// ValueOr is like [System.Value], but returns missing if the file does not exist.
func (s *System) ValueOr(path, missing string) (string, error) {
	text, err := s.Value(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing, nil
	}
	return text, err
}

// List returns the sorted names in a directory, or nil if it does not exist.
func (s *System) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(s.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lists.Map(entries, os.DirEntry.Name), err
}

// Numbers returns each number N of an entry prefixN in a directory.
func (s *System) Numbers(dir, prefix string) ([]int, error) {
	names, err := s.List(dir)
	var numbers []int
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, prefix)
		if n, err := strconv.Atoi(digits); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// Exists is true for a dangling link too.
func (s *System) Exists(path string) bool {
	_, err := os.Lstat(s.Path(path))
	return err == nil
}

// LinkName returns the last element of a link's target, or "" if there is no link.
func (s *System) LinkName(path string) (string, error) {
	to, err := os.Readlink(s.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(to), nil
}

func (s *System) point(format string, args ...any) {
	if !strings.HasPrefix(format, "run ") { // Query traces programs
		trace.Changes(format, args...)
	}
	if s.Fault != nil {
		s.Fault(fmt.Sprintf(format, args...))
	}
}

// WriteValue writes to an existing kernel file. It never creates a file.
func (s *System) WriteValue(path, value string) error {
	s.point("write %q to %s", value, path)
	f, err := os.OpenFile(s.Path(path), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	// sysfs takes each write as a whole value.
	_, err = f.WriteString(value)
	if err != nil {
		err = fmt.Errorf("write %q: %w", value, err)
	}
	return errors.Join(err, f.Close())
}

// newSuffix is fixed, so that leftovers can be found.
const newSuffix = ".rackless-new"

// Replace replaces a file atomically: readers see the old or the new content, even after a power cut.
func (s *System) Replace(path string, data []byte, mode fs.FileMode, uid, gid int) (err error) {
	s.point("replace %s", path)
	full := s.Path(path)
	tmp := full + newSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, chownIfNeeded(f, uid, gid))
	err = errors.Join(err, f.Chmod(mode)) // after chown, which clears setuid bits
	err = errors.Join(err, copyLabel(full, f))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	s.point("rename %s", path)
	return atomicfile.Rename(tmp, full)
}

// chownIfNeeded leaves an owner that is right, because only root may set it.
func chownIfNeeded(f *os.File, uid, gid int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == uid && int(sys.Gid) == gid {
		return nil
	}
	return f.Chown(uid, gid)
}

// copyLabel copies the SELinux label, if any: services may not be allowed to read the file otherwise.
func copyLabel(old string, f *os.File) error {
	const label = "security.selinux"
	buf := make([]byte, 256)
	n, err := syscall.Getxattr(old, label, buf)
	if err != nil || n == 0 {
		return nil // no old file, or no SELinux
	}
	return syscall.Setxattr(f.Name(), label, buf[:n], 0)
}

// Remove removes a file, a link or an empty directory. A missing one is not an error.
func (s *System) Remove(path string) error {
	full := s.Path(path)
	// A replacement file may have been cut off.
	if err := os.Remove(full + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	if _, err := os.Lstat(full); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	s.point("remove %s", path)
	if err := os.Remove(full); err != nil {
		return err
	}
	// In sysfs and cgroups the sync does nothing and returns no error.
	return atomicfile.SyncDir(filepath.Dir(full))
}

// Mkdir makes one directory.
func (s *System) Mkdir(path string, mode fs.FileMode) error {
	s.point("mkdir %s", path)
	if err := os.Mkdir(s.Path(path), mode); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(s.Path(path)))
}

// Symlink replaces an existing link.
func (s *System) Symlink(to, path string) error {
	s.point("link %s to %s", path, to)
	full := s.Path(path)
	tmp := full + newSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	return atomicfile.Rename(tmp, full)
}

// Program runs a program that changes something.
func (s *System) Program(ctx context.Context, argv ...string) ([]byte, error) {
	s.point("run %s", strings.Join(argv, " "))
	return s.Query(ctx, argv...)
}

// Query runs a program that changes nothing.
func (s *System) Query(ctx context.Context, argv ...string) ([]byte, error) {
	trace.Runs("", argv)
	if s.Run != nil {
		return s.Run(ctx, argv)
	}
	return Exec(ctx, argv)
}

// programLimit is long, because dracut and grub-mkconfig take minutes on slow machines.
const programLimit = 10 * time.Minute

// Exec runs a program without a shell. An error includes the last lines of its standard error.
func Exec(ctx context.Context, argv []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programLimit, fmt.Errorf("it ran for more than %v", programLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// A separate process group keeps Ctrl-C from killing a boot loader's tool halfway; rackless handles it between two
	// steps.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		lines = lines[max(0, len(lines)-5):]
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.Join(lines, "; "))
	}
	return stdout.Bytes(), nil
}
