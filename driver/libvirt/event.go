package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// An Event is a change in the life of a domain, any domain.
type Event struct {
	Time   time.Time
	Domain string // name
	// "Defined", "Undefined", "Started", "Suspended", "Resumed", "Stopped", "Shutdown",
	// "PMSuspended", "Crashed"
	What   string
	Detail string // "Booted", "Destroyed" ...
}

// Events calls f for each event from now on, one at a time, until ctx ends, which is no error, or libvirt does.
func (c *Conn) Events(ctx context.Context, f func(Event)) error {
	cmd := c.command(ctx, "event", "--event", "lifecycle", "--loop", "--timestamp")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var wrong error
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		e, ok, err := parseEvent(sc.Text())
		if err != nil {
			wrong = errors.Join(err, cmd.Cancel())
			break
		}
		if ok {
			f(e)
		}
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil
	case wrong != nil:
		err = wrong
	case sc.Err() != nil:
		err = sc.Err()
	case errorText(complaint.Bytes()) != "":
		err = errors.New(errorText(complaint.Bytes()))
	case err == nil: // it says at its end how many there were
		err = errors.New("virsh ended")
	}
	return fmt.Errorf("events of libvirt at %s: %w", c.URI, err)
}

// eventTime is the form of virsh's timestamps.
const eventTime = "2006-01-02 15:04:05.999-0700"

// parseEvent reads a line of "virsh event --event lifecycle --timestamp":
//
//	2026-11-22 10:01:00.537+0000: event 'lifecycle' for domain 't.vm00': Suspended Paused
//
// ok is false for other lines: virsh says in words that the loop has ended. A domain's name may
// hold what follows it; it ends at the last place where it can.
func parseEvent(line string) (e Event, ok bool, err error) {
	stamp, rest, found := strings.Cut(line, ": event 'lifecycle' for domain '")
	if !found {
		return Event{}, false, nil
	}
	i := strings.LastIndex(rest, "': ")
	if i < 0 {
		return Event{}, false, fmt.Errorf("virsh event: %.120q: want a domain and what happened to it", line)
	}
	e.Domain = rest[:i]
	e.What, e.Detail, _ = strings.Cut(rest[i+len("': "):], " ")
	if e.Time, err = time.Parse(eventTime, stamp); err != nil {
		return Event{}, false, fmt.Errorf("virsh event: %w", err)
	}
	return e, true, nil
}
