package emulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/statedir"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm"
)

// A State is a host's state.json, written before anything is started.
type State struct {
	Version     int        `json:"version"` // of this format
	Name        string     `json:"name"`
	Profile     *Profile   `json:"profile"` // after scaling
	Keep        bool       `json:"keep"`
	Owner       vm.Process `json:"owner"`
	Boot        string     `json:"boot"` // key of the Boot
	QEMU        string     `json:"qemu"` // version
	Accel       string     `json:"accelerator"`
	AccelReason string     `json:"accelerator_reason,omitempty"` // why it is not kvm
	Made        time.Time  `json:"made"`
	// Ready stays false until the agent has answered.
	Ready bool `json:"ready"`

	// Fields of the last boot.
	Process    vm.Process `json:"process"`
	Booted     time.Time  `json:"booted"`
	Cloned     bool       `json:"cloned"`                // resumed from a template
	Template   string     `json:"template,omitempty"`    // below its disk
	ColdReason string     `json:"cold_reason,omitempty"` // why not cloned
	// Tools is the image of the second disk, or "", and Program the program on it.
	Tools   string   `json:"tools,omitempty"`
	Program vm.Stamp `json:"program,omitzero"`
}

const stateVersion = 1

// ErrNoHost says that a host does not exist.
var ErrNoHost = errors.New("no such host")

// Dir is the parent of the hosts' directories.
func Dir(d userdirs.Dirs) string { return filepath.Join(d.Run, "hosts") }

func hostDir(d userdirs.Dirs, name string) string { return filepath.Join(Dir(d), name) }

func loadState(dir string) (s State, err error) {
	err = statedir.Read(dir, "remove the host with: rackless emulate rm "+filepath.Base(dir), &s, &s.Version,
		stateVersion)
	return s, err
}

func (h *Host) save() error { return statedir.Write(h.Dir, h.State) }

// lock is needed to make, boot or remove a host; the owner of a host that is not kept holds it throughout. If another
// process has it, waiting is called once, and its error ends the attempt.
func lock(ctx context.Context, d userdirs.Dirs, name string, waiting func() error) (unlock func(), err error) {
	for _, dir := range []string{d.Run, Dir(d)} {
		if err := statedir.Own("emulated hosts", dir); err != nil {
			return nil, err
		}
	}
	return statedir.Lock(ctx, "host "+name, hostDir(d, name), func(string) error {
		if waiting == nil {
			return nil
		}
		return waiting()
	})
}

// Open finds a host by name. ErrNoHost comes with the existing names.
func Open(d userdirs.Dirs, name string) (*Host, error) {
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

func names(d userdirs.Dirs) ([]string, error) {
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

// List returns this user's hosts by name, without any that is being made or removed. The error reports unreadable ones
// beside the others.
func List(d userdirs.Dirs) ([]*Host, error) {
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

// Sweep removes and names hosts that were not kept and whose owners were killed.
func Sweep(ctx context.Context, d userdirs.Dirs) ([]string, error) {
	hosts, _ := List(d) // emulate ls reports an unreadable host
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
