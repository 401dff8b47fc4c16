// Package lock keeps two studies on one machine from measuring each other.
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

// The lock of the machine is a socket in Linux's abstract namespace, see unix(7), on which a study
// listens while it runs. All users see it, whatever directories they have; it has no file that
// another user could put a link in the place of, make unreadable or leave behind; it is gone with
// the process, however that ends; and the kernel tells whoever connects whose it is. Each network
// namespace has its own, so that a study in a container does not see one outside, as it would not
// with a file either, unless both had the directory. Any user can hold the name without a study, as
// any user can start a study: the refusal says who does.
const machineName = "rackless-study"

// Variable is the environment variable that names another lock. It is for tests, which would refuse
// each other.
const Variable = "RACKLESS_STUDY_LOCK"

// goodName is what a name of the lock looks like: a socket's takes 107 bytes.
var goodName = lazyregexp.New(`^[a-zA-Z0-9._-]{1,100}$`)

// A Holder is the process of a study that runs.
type Holder struct {
	pid int // 0 where this process cannot see it
	uid uint32
}

// String names the process, its user and its command line.
func (h *Holder) String() string {
	who := "user " + fmt.Sprint(h.uid)
	if u, err := user.LookupId(fmt.Sprint(h.uid)); err == nil {
		who = "user " + u.Username
	}
	if h.pid == 0 { // of another PID namespace
		return "a process of " + who
	}
	line, err := commandLine(h.pid)
	if err != nil || len(line) == 0 {
		return fmt.Sprintf("process %d of %s", h.pid, who)
	}
	// The text belongs to another user, and may hold control characters.
	return fmt.Sprintf("process %d of %s: %.200q", h.pid, who, strings.Join(line, " "))
}

// commandLine returns the arguments of a process, none for a kernel thread.
func commandLine(pid int) ([]string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	return p.CmdLine()
}

// A Lock is the lock of this machine.
type Lock struct{ addr net.UnixAddr }

// FromEnv returns the lock of this machine, or the one that Variable names. An error is the caller's:
// the name is not one.
func FromEnv(getenv func(string) string) (Lock, error) {
	name := cmp.Or(getenv(Variable), machineName)
	if !goodName.MatchString(name) {
		return Lock{}, fmt.Errorf("%s %q: want letters, digits, dots and dashes, 100 at most", Variable, name)
	}
	return Lock{net.UnixAddr{Net: "unix", Name: "@" + name}}, nil
}

// Holder returns who runs a study on this machine; nil where nobody does.
func (l Lock) Holder() (*Holder, error) {
	// An abstract address, that of no file: it is free the moment its holder ends, however that ends.
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

// takeMachine takes the lock of the machine, or says who has it.
func (l Lock) takeMachine() (listener *net.UnixListener, err error) {
	// Its holder may end between the two looks. A child that it has just started may have the socket a while longer.
	for range 100 {
		if listener, err = net.ListenUnix("unix", &l.addr); err == nil {
			go func() { // who asks is not left waiting
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

// leaveMachine gives the lock of the machine back. A child of this process has the socket, too, from its fork until it
// runs its program: after the shutdown nobody can connect to that either.
func leaveMachine(listener *net.UnixListener) {
	if raw, err := listener.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	listener.Close()
}

// Take takes the lock for a study of labs in the directory run, or says who has it. A file in that
// directory is locked too: rackless ui sees by it that the study is one of these labs.
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
	return func() { // the kernel takes both away in any case
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
		_ = f.Close()
		leaveMachine(listener)
	}, nil
}

// file is locked while a study of labs in the directory run runs. The lock is that of an open file, see F_OFD_SETLK in
// fcntl(2): unlike one of flock(2), it can be looked at. To try a lock would be to take it from whoever wants it just
// then.
func file(run string) string { return filepath.Join(run, "study.lock") }

// HeldIn reports whether a study of labs in the directory run runs.
func HeldIn(run string) (bool, error) {
	f, err := os.Open(file(run))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK} // what stands against a reader is a writer
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type == unix.F_WRLCK, err
}
