package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/lab"
)

// Down ends a lab and removes everything of it but results. A lab that is not there is not an
// error; it returns whether one was.
func Down(ctx context.Context, d Dirs, name string) (bool, error) {
	unlock, err := Lock(ctx, d, name, nil)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := os.Stat(d.Lab(name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return true, remove(ctx, d, name)
}

// remove ends what belongs to a lab and deletes its directory. The caller holds the lock.
//
// A state that cannot be read is one that a killed rackless did not write, or that is damaged. Then
// what there may be are processes of the default driver, which finds them without a state.
func remove(ctx context.Context, d Dirs, name string) error {
	s, err := loadState(d, name)
	if err != nil {
		s = &State{Lab: &lab.Lab{Name: name}, Driver: string(lab.DriverQEMU)}
	}
	r, err := newRack(d, s)
	if err != nil {
		return err
	}
	// The limit is of the whole end: a hanging libvirt must not hold the lock for ever.
	limit := r.driver.DownLimit
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("lab %s was not down within %v", name, limit))
	defer cancel()
	if err := errors.Join(r.runtime.Down(ctx), r.Close()); err != nil {
		return err
	}
	trace.Changes("remove %s", r.Dir)
	return os.RemoveAll(r.Dir)
}

// DownAll ends every lab, and returns the names of those that were there.
func DownAll(ctx context.Context, d Dirs) ([]string, error) {
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	// A lab may be nothing but a lock as yet: one that comes up just now, or that was killed so
	// early. Down waits for the one, and removes the lock of the other.
	entries, err := os.ReadDir(d.Run)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".lock"); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var gone []string
	var errs []error
	for _, n := range names {
		ok, err := Down(ctx, d, n)
		if ok && err == nil {
			gone = append(gone, n)
		}
		errs = append(errs, err)
	}
	if err := os.Remove(d.Run); err != nil && !errors.Is(err, os.ErrNotExist) {
		if left, readErr := os.ReadDir(d.Run); readErr == nil && len(left) == 0 {
			errs = append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}
