package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rack"
)

// The lock of the machine is a socket in Linux's abstract namespace, see unix(7), on which a study
// listens while it runs. All users see it, whatever directories they have; it has no file that
// another user could put a link in the place of, make unreadable or leave behind; it is gone with
// the process, however that ends; and the kernel tells whoever connects whose it is. Each network
// namespace has its own, so that a study in a container does not see one outside, as it would not
// with a file either, unless both had the directory. Any user can hold the name without a study, as
// any user can start a study: the refusal says who does.
const machineLock = "rackless-study"

// lockVariable names another lock. It is for tests, which would refuse each other.
const lockVariable = "RACKLESS_STUDY_LOCK"

// lockName is what a name of the lock looks like: a socket's takes 107 bytes.
var lockName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// A holder is the process of a study that runs.
type holder struct {
	pid int // 0 where this process cannot see it
	uid uint32
}

func (h *holder) String() string {
	who := "user " + strconv.FormatUint(uint64(h.uid), 10)
	if u, err := user.LookupId(strconv.FormatUint(uint64(h.uid), 10)); err == nil {
		who = "user " + u.Username
	}
	if h.pid == 0 { // of another PID namespace
		return "a process of " + who
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.pid))
	if err != nil || len(line) == 0 {
		return fmt.Sprintf("process %d of %s", h.pid, who)
	}
	// It is somebody else's text: what a terminal would obey is quoted.
	return fmt.Sprintf("process %d of %s: %.200q", h.pid, who,
		strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
}

// studyLockAddress is the address of the machine's lock.
func (a *app) studyLockAddress() (*net.UnixAddr, error) {
	name := cmp.Or(a.env(lockVariable), machineLock)
	if !lockName.MatchString(name) {
		return nil, usage(fmt.Errorf("%s %q: want letters, digits, dots and dashes, 100 at most", lockVariable, name))
	}
	return &net.UnixAddr{Net: "unix", Name: "@" + name}, nil
}

// studyHolder returns who runs a study on this machine; nil where nobody does.
func (a *app) studyHolder() (*holder, error) {
	at, err := a.studyLockAddress()
	if err != nil {
		return nil, err
	}
	c, err := net.DialUnix("unix", nil, at)
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
	return &holder{pid: int(cred.Pid), uid: cred.Uid}, nil
}

// lockMachine takes the lock of the machine, or says who has it.
func (a *app) lockMachine() (unlock func(), err error) {
	at, err := a.studyLockAddress()
	if err != nil {
		return nil, err
	}
	for range 3 { // its holder may end between the two looks
		var l *net.UnixListener
		if l, err = net.ListenUnix("unix", at); err == nil {
			go func() { // who asks is not left waiting
				for {
					c, err := l.Accept()
					if errors.Is(err, net.ErrClosed) {
						return
					}
					if err == nil {
						c.Close()
					}
				}
			}()
			return func() { l.Close() }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("lock this machine for a study: %w", err)
		}
		by, lookErr := a.studyHolder()
		if lookErr != nil {
			return nil, lookErr
		}
		if by != nil {
			return nil, fmt.Errorf("another study runs on this machine (%v), and two would measure each other; wait "+
				"for it, or end it", by)
		}
	}
	return nil, fmt.Errorf("lock this machine for a study: %w", err)
}

// lockStudies keeps two studies on one machine from measuring each other. The file in the directory
// of labs is locked too: rackless ui sees by it that the study is one of these labs.
func (a *app) lockStudies(d rack.Dirs) (unlock func(), err error) {
	free, err := a.lockMachine()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	if err := os.MkdirAll(d.Run, 0o700); err != nil {
		return nil, err
	}
	l := flock.New(studyLock(d))
	held, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fmt.Errorf("%s: another study runs on this machine, and two would measure each other; wait for "+
			"it, or end it", l.Path())
	}
	return func() { // the kernel takes both away in any case
		_ = l.Close()
		free()
	}, nil
}

// studyLock is the file that is locked while a study of labs in these directories runs.
func studyLock(d rack.Dirs) string { return filepath.Join(d.Run, "study.lock") }
