package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rackless/rackless/host/change"
)

// Up is a network device that is set up.
type Up struct {
	Netdev string `json:"netdev"`
}

const kindUp = "netdev-up"

// States of a network device.
const (
	stateUp   change.State = "up"
	stateDown change.State = "down"
	stateNone change.State = "none" // there is no such device
)

// flagUp is IFF_UP of include/uapi/linux/if.h.
const flagUp = 1

// Kind implements change.Op.
func (u *Up) Kind() string { return kindUp }

// Subject implements change.Op.
func (u *Up) Subject() string { return u.Netdev }

func (u *Up) flags(s *change.System) (uint64, error) { return s.Number(netFile(u.Netdev, "flags")) }

// Read implements change.Op.
func (u *Up) Read(_ context.Context, s *change.System) (change.State, error) {
	flags, err := u.flags(s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stateNone, nil
	case err != nil:
		return "", err
	case flags&flagUp != 0:
		return stateUp, nil
	}
	return stateDown, nil
}

// Done implements change.Op.
func (u *Up) Done(state change.State) bool { return state == stateUp }

// Do implements change.Op.
func (u *Up) Do(_ context.Context, s *change.System) error { return u.set(s, true) }

// Restore implements change.Op. A device that is gone, or was not there, stays as it is.
func (u *Up) Restore(ctx context.Context, s *change.System, before change.State) error {
	now, err := u.Read(ctx, s)
	if err != nil || now == before || now == stateNone || before == stateNone {
		return err
	}
	return u.set(s, before == stateUp)
}

// Restored implements change.Restorer: a device that has gone since needs nothing.
func (u *Up) Restored(before, now change.State) bool { return before == now || now == stateNone }

// Merge implements change.Merger. A device that somebody else has set down again stays down.
func (u *Up) Merge(_ context.Context, _ *change.System, undo change.Undo) (change.State, []change.Changed, error) {
	return undo.Whole(u, undo.Cut, change.Changed{What: "port " + u.Netdev, Found: string(undo.Now),
		Set: string(stateUp)})
}

func (u *Up) set(s *change.System, up bool) error {
	// Read again, because only one of the flags is ours.
	flags, err := u.flags(s)
	if err != nil {
		return err
	}
	if flags &^= flagUp; up {
		flags |= flagUp
	}
	return s.WriteValue(netFile(u.Netdev, "flags"), fmt.Sprintf("%#x", flags))
}

// Shell implements change.Manual.
func (u *Up) Shell() []string { return []string{"ip link set dev " + u.Netdev + " up"} }
