package change

import (
	"context"
	"fmt"
)

// An Undo holds the states of an op that is to be undone.
type Undo struct {
	Before State
	// Made is the state that was read back after the op was done. It is empty if the op was cut off before, or if an
	// older version of rackless did not record it.
	Made State
	Now  State
	// Cut is set if the op or its undo was cut off, or the machine was booted since: Now may then differ without a
	// change by others.
	Cut bool
	// Left is set if ops that were undone before this one have left changes of others, and none has failed. Any
	// remaining use of this op's result is then by somebody else.
	Left bool
}

// A Changed is a change that somebody else made after the op. Undo leaves it.
type Changed struct {
	What  string `json:"what"` // "/proc/sys/vm/stat_interval", "governor of CPU 3"
	Found string `json:"found"`
	Set   string `json:"set"`
}

func (c Changed) String() string {
	return fmt.Sprintf("%s: found %s, rackless had set %s; left as it is", c.What, c.Found, c.Set)
}

// A Merger is an op that leaves later changes by others on undo.
type Merger interface {
	// Merge returns the state that undo leads to, and the changes by others that stay. It changes nothing.
	Merge(ctx context.Context, s *System, u Undo) (want State, changed []Changed, err error)
}

// Whole implements [Merger.Merge] for an op that is undone as a whole or not at all. ours means that the op may have
// made the present state; otherwise changed describes the difference.
func (u Undo) Whole(op Op, ours bool, changed Changed) (State, []Changed, error) {
	if ours || u.Made != "" && u.Now == u.Made || isRestored(op, u.Before, u.Now) {
		return u.Before, nil, nil
	}
	return u.Now, []Changed{changed}, nil
}

// Part returns an Undo for the part of an op that part extracts. An empty Made stays empty.
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

func (e *Entry) undo(ctx context.Context, s *System, left bool) (Undo, error) {
	now, err := e.Op.Read(ctx, s)
	return Undo{Before: e.Before, Made: e.made, Now: now, Cut: !e.Done || e.boot != bootID(s), Left: left}, err
}

func bootID(s *System) string {
	id, err := s.Value("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // a test machine
	}
	return id
}
