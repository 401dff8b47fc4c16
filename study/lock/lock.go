// Package lock prevents two studies on one machine from disturbing each other.
package lock

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// machineName is an abstract Unix socket, see unix(7), on which a study listens. All users see it, it has no file that
// another user could replace or leave behind, and the kernel identifies the holder.
//
// Each network namespace has its own, so a study in a container does not see one outside. Any user can hold the name
// without a study; the error names the holder.
const machineName = "rackless-study"

// Variable is the environment variable that names another lock, for tests, which would block each other.
const Variable = "RACKLESS_STUDY_LOCK"

// goodName has a limit because a socket's name has at most 107 bytes.
var goodName = lazyregexp.New(`^[a-zA-Z0-9._-]{1,100}$`)

// A Holder is the process of a running study.
type Holder struct {
	pid int // 0 if not visible
	uid uint32
}

// String returns the process, its user and its command line.
func (h *Holder) String() string {
	who := "user " + fmt.Sprint(h.uid)
	if u, err := user.LookupId(fmt.Sprint(h.uid)); err == nil {
		who = "user " + u.Username
	}
	if h.pid == 0 { // in another PID namespace
		return "a process of " + who
	}
	line, err := commandLine(h.pid)
	if err != nil || len(line) == 0 {
		return fmt.Sprintf("process %d of %s", h.pid, who)
	}
	// Another user's command line may contain control characters.
	return fmt.Sprintf("process %d of %s: %.200q", h.pid, who, strings.Join(line, " "))
}

func commandLine(pid int) ([]string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	return p.CmdLine()
}

// A Lock is the lock of this machine.
type Lock struct{ addr net.UnixAddr }

// FromEnv returns the lock of this machine, or the one named by Variable.
func FromEnv(getenv func(string) string) (Lock, error) {
	name := cmp.Or(getenv(Variable), machineName)
	if !goodName().MatchString(name) {
		return Lock{}, fmt.Errorf("%s %q: want letters, digits, dots and dashes, 100 at most", Variable, name)
	}
	return Lock{net.UnixAddr{Net: "unix", Name: "@" + name}}, nil
}

// Holder returns the process that runs a study, or nil.
func (l Lock) Holder() (*Holder, error) {
	// An abstract address is free as soon as its holder ends.
	c, err := net.DialUnix("unix", nil, &l.addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("see whether a study runs: %w", err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, fmt.Errorf("see who runs a study: %w", credErr)
	}
	return &Holder{pid: int(cred.Pid), uid: cred.Uid}, nil
}

func (l Lock) takeMachine() (listener *net.UnixListener, err error) {
	// The holder may end before Holder, and a forked child may keep the socket a little longer.
	for range 100 {
		if listener, err = net.ListenUnix("unix", &l.addr); err == nil {
			go func() { // so that Holder returns at once
				for {
					c, err := listener.Accept()
					if errors.Is(err, net.ErrClosed) {
						return
					}
					if err == nil {
						c.Close()
					}
				}
			}()
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("lock this machine for a study: %w", err)
		}
		by, lookErr := l.Holder()
		if lookErr != nil {
			return nil, lookErr
		}
		if by != nil {
			return nil, fmt.Errorf("another study runs on this machine (%v), and two would measure each other; wait "+
				"for it, or end it", by)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("lock this machine for a study: %w", err)
}

// leaveMachine shuts the socket down before closing it, because a forked child shares it until exec.
func leaveMachine(listener *net.UnixListener) {
	if raw, err := listener.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	listener.Close()
}

// Take acquires the lock for a study of labs in the directory run. It also locks a file there, which tells rackless ui
// that the study is about one of these labs.
func (l Lock) Take(run string) (unlock func(), err error) {
	listener, err := l.takeMachine()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leaveMachine(listener)
		}
	}()
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file(run), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		f.Close()
		if errors.Is(err, syscall.EAGAIN) {
			err = errors.New("another study runs on this machine, and two would measure each other; wait for it, or " +
				"end it")
		}
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return func() { // the kernel releases both at exit
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
		_ = f.Close()
		leaveMachine(listener)
	}, nil
}

// file is locked by an open file description lock, see F_OFD_SETLK in fcntl(2), which can be queried without acquiring
// it, unlike a flock(2) lock.
func file(run string) string { return filepath.Join(run, "study.lock") }

// HeldIn reports whether a study of labs in the directory run is running.
func HeldIn(run string) (bool, error) {
	f, err := os.Open(file(run))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK} // conflicts with the writer's
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type == unix.F_WRLCK, err
}
