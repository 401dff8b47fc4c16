package change

import (
	"context"
	"fmt"
)

// An Undo holds what the journal and the machine say of an op that is to be undone.
type Undo struct {
	Before State // what was there before the op was first made
	// Made is what was read back after the op was made. It is empty if that is not recorded: the op was cut off before,
	// or the version of rackless that made it did not record it.
	Made State
	Now  State
	// Cut is set if Now may be neither Before nor Made without anybody else having changed it: the op, or its undo,
	// did not come to its end, or the machine was booted since.
	Cut bool
	// Left is set if ops that were undone before this one have left something, and none of them has failed: whoever
	// still uses what this op has made is somebody else.
	Left bool
}

// A Changed is something that is no longer as the op made it, because somebody else has changed it since. Undo leaves
// it as it is.
type Changed struct {
	What  string `json:"what"`  // "/proc/sys/vm/stat_interval", "governor of CPU 3"
	Found string `json:"found"` // as it is now
	Set   string `json:"set"`   // as the op made it
}

func (c Changed) String() string {
	return fmt.Sprintf("%s: found %s, rackless had set %s; left as it is", c.What, c.Found, c.Set)
}

// A Merger is an op that tells its own work from that of others. What they have changed since the op was made is
// theirs, and undo leaves it. An op that is no Merger is undone whatever is there.
type Merger interface {
	// Merge returns the state that undo leads to: what was before, but for what others have changed since. That is as
	// it is now, and listed. Merge changes nothing.
	Merge(ctx context.Context, s *System, u Undo) (want State, changed []Changed, err error)
}

// Whole is [Merger.Merge] of an op that is undone as a whole or not at all. ours says that the op may have made what is
// there now; changed says how else it is.
func (u Undo) Whole(op Op, ours bool, changed Changed) (State, []Changed, error) {
	if ours || u.Made != "" && u.Now == u.Made || isRestored(op, u.Before, u.Now) {
		return u.Before, nil, nil
	}
	return u.Now, []Changed{changed}, nil
}

// Part returns what is known of a part of an op, which part finds in a state. A state that is not recorded has none.
func (u Undo) Part(part func(State) (State, error)) (Undo, error) {
	p := Undo{Cut: u.Cut}
	for from, to := range map[*State]*State{&u.Before: &p.Before, &u.Made: &p.Made, &u.Now: &p.Now} {
		if from == &u.Made && u.Made == "" {
			continue
		}
		var err error
		if *to, err = part(*from); err != nil {
			return p, err
		}
	}
	return p, nil
}

// undo reads what is there of an entry that is to be undone.
func (e *Entry) undo(ctx context.Context, s *System, left bool) (Undo, error) {
	now, err := e.Op.Read(ctx, s)
	return Undo{Before: e.Before, Made: e.made, Now: now, Cut: !e.Done || e.boot != bootID(s), Left: left}, err
}

// bootID names this boot of the machine; "" if it does not say.
func bootID(s *System) string {
	id, err := s.Value("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // a machine of a test
	}
	return id
}
