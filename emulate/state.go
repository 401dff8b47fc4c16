package emulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// A State is what is recorded of a host in its directory, in state.json. It is written before anything is started.
type State struct {
	Version     int        `json:"version"` // of this format
	Name        string     `json:"name"`
	Profile     *Profile   `json:"profile"` // as it was scaled
	Keep        bool       `json:"keep"`
	Owner       vm.Process `json:"owner"` // who made it; a host that is not kept goes with its owner
	Boot        string     `json:"boot"`  // key of what it boots
	QEMU        string     `json:"qemu"`  // version
	Accel       string     `json:"accelerator"`
	AccelReason string     `json:"accelerator_reason,omitempty"` // why it is not kvm
	Made        time.Time  `json:"made"`
	// Ready is set once the host's agent has answered: false while it is made, and of one whose making was broken off.
	Ready bool `json:"ready"`

	// Of the last boot.
	Process    vm.Process `json:"process"`
	Booted     time.Time  `json:"booted"`
	Cloned     bool       `json:"cloned"`                // resumed from a template
	Template   string     `json:"template,omitempty"`    // key of the one that its disk lies on
	ColdReason string     `json:"cold_reason,omitempty"` // why not
	// Tools is the image of the second disk, with the program that is on it; "" for none.
	Tools   string   `json:"tools,omitempty"`
	Program vm.Stamp `json:"program,omitzero"`
}

const stateVersion = 1

// ErrNoHost is returned for a host that is not there.
var ErrNoHost = errors.New("no such host")

// Dir is the directory of all hosts.
func Dir(d rack.Dirs) string { return filepath.Join(d.Run, "hosts") }

func hostDir(d rack.Dirs, name string) string { return filepath.Join(Dir(d), name) }

func loadState(dir string) (State, error) {
	var s State
	path := filepath.Join(dir, "state.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	name := filepath.Base(dir)
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w; remove the host with: rackless emulate rm %s", path, err, name)
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("%s has version %d, this rackless knows %d; remove the host with: rackless emulate rm %s",
			path, s.Version, stateVersion, name)
	}
	return s, nil
}

// save writes the state so that a reader sees the old one or the new one, whatever happens in between.
func (h *Host) save() error {
	b, err := json.MarshalIndent(h.State, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(h.Dir, "state.json"), b, 0o600)
}

// ensureDir makes the directory of the hosts, for this user only, and refuses one that another user could have made.
func ensureDir(d rack.Dirs) error {
	for _, dir := range []string{d.Run, Dir(d)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("directory of emulated hosts: %w; set RACKLESS_RUN to one that can be written", err)
		}
		fi, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || ok && int(st.Uid) != os.Getuid() {
			return fmt.Errorf("directory of emulated hosts: %s is not a directory of this user's: remove it or set "+
				"RACKLESS_RUN", dir)
		}
	}
	return nil
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

// lock takes the lock of a host: one process at a time makes, boots or removes it, and who owns one
// that is not kept has it all the time. waiting is called once if another has it; an error of its
// ends the attempt.
func lock(ctx context.Context, d rack.Dirs, name string, waiting func() error) (unlock func(), err error) {
	if err := ensureDir(d); err != nil {
		return nil, err
	}
	path := hostDir(d, name) + ".lock"
	l := flock.New(path, flock.SetPermissions(0o600))
	for told := false; ; {
		ok, err := l.TryLock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case ok && sameFile(l, path):
			return func() {
				// while it is held: a waiter that opened it before sees that it is gone and opens
				// the next
				os.Remove(path)
				l.Close()
			}, nil
		case ok: // it was removed between opening and locking
			l.Close()
			l = flock.New(path, flock.SetPermissions(0o600))
			continue
		}
		if !told && waiting != nil {
			if err := waiting(); err != nil {
				return nil, err
			}
		}
		told = true
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("host %s: another rackless works on it: %w", name, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
		l.Close() // the file may be another by now
		l = flock.New(path, flock.SetPermissions(0o600))
	}
}

// sameFile reports whether the path still leads to the file that is locked.
func sameFile(l *flock.Flock, path string) bool {
	a, err := l.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Open finds a host by name. The error is ErrNoHost, with the names that there are, if it is not there.
func Open(d rack.Dirs, name string) (*Host, error) {
	if err := checkHostName(name); err != nil {
		return nil, err
	}
	s, err := loadState(hostDir(d, name))
	if errors.Is(err, os.ErrNotExist) {
		hint := "; start one with: rackless emulate --keep PROFILE"
		if names, err := names(d); err == nil && len(names) > 0 {
			hint = "; there are: " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("host %s: %w%s", name, ErrNoHost, hint)
	}
	if err != nil {
		return nil, err
	}
	return &Host{State: s, Dir: hostDir(d, name)}, nil
}

// names returns the names of all hosts that have a directory, sorted.
func names(d rack.Dirs) ([]string, error) {
	entries, err := os.ReadDir(Dir(d)) // sorted
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// List finds every host of this user, by name. Hosts that are being made or removed just now are
// left out; others that cannot be read are in the error, beside those that can.
func List(d rack.Dirs) ([]*Host, error) {
	all, err := names(d)
	if err != nil {
		return nil, err
	}
	var hosts []*Host
	var errs []error
	for _, name := range all {
		h, err := Open(d, name)
		switch {
		case err == nil:
			hosts = append(hosts, h)
		case !errors.Is(err, ErrNoHost):
			errs = append(errs, err)
		}
	}
	return hosts, errors.Join(errs...)
}

// Sweep removes what owners that were killed have left: their hosts were not to be kept. It returns the names.
func Sweep(ctx context.Context, d rack.Dirs) ([]string, error) {
	hosts, _ := List(d) // one that cannot be read must not keep others from starting; emulate ls tells of it
	hosts = slices.DeleteFunc(hosts, func(h *Host) bool { return h.Keep || h.Owner.Alive() })
	var gone []string
	for _, h := range hosts {
		if ok, err := Remove(ctx, d, h.Name); err != nil {
			return gone, err
		} else if ok {
			gone = append(gone, h.Name)
		}
	}
	return gone, nil
}
