package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/vm"
)

// downLimit bounds the end of a lab. Ending 16 nodes takes a fraction of a second.
const downLimit = 30 * time.Second

// Down ends a lab and removes everything of it but results. A lab that is not there is not an
// error; it returns whether one was.
func Down(ctx context.Context, d Dirs, name string) (bool, error) {
	unlock, err := d.lock(ctx, name, nil)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := os.Stat(d.lab(name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	limit := downLimit
	if s, err := d.loadState(name); err == nil && s.Placed() {
		limit = placedDownLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("lab %s was not down within %v", name, limit))
	defer cancel()
	return true, d.remove(ctx, name)
}

// remove ends every process of a lab, known to its state or not, and deletes its directory. The caller holds the lock.
//
// The processes are found by the lab's directory in their arguments and not only in the state,
// which a killed rackless may have left incomplete; an identity holds the start time, so that none
// that only has the number of one is ever signalled.
func (d Dirs) remove(ctx context.Context, name string) error {
	dir := d.lab(name)
	procs, err := (&qemu.Driver{}).Strays(dir)
	if err != nil {
		return err
	}
	if s, err := d.loadState(name); err == nil { // else what there is was found above
		if s.Placed() {
			if err := d.removePlaced(ctx, s); err != nil {
				return err
			}
			return os.RemoveAll(dir)
		}
		for _, n := range s.Nodes {
			procs = append(procs, n.Process)
		}
		if s.Daemon != nil {
			procs = append(procs, *s.Daemon)
		}
	}
	// All are told before any is waited for.
	var errs []error
	for _, p := range procs {
		if err := p.Signal(sigKill); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("end process %d: %w", p.PID, err))
		}
	}
	errs = append(errs, killDaemons(ctx, dir))
	for _, p := range procs {
		errs = append(errs, p.Wait(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// killDaemons ends the daemons of a lab, of which a killed rackless may have left one that no state knows.
func killDaemons(ctx context.Context, dir string) error {
	procs, err := vm.ProcessesUsing("", DaemonCommand+"\x00"+dir+"\x00")
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range procs {
		errs = append(errs, p.Kill(ctx))
	}
	return errors.Join(errs...)
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
