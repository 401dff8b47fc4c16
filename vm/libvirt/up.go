package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/plan/render"
)

// A Spec is the wanted state of a domain.
type Spec struct {
	Name string // lab.VMName
	XML  []byte // as made by render.Domains; comments are ignored
}

// UpOptions control Up.
type UpOptions struct {
	// Recreate allows Up to end running domains whose definition has changed. Otherwise Up returns a *ChangedError
	// and changes nothing.
	Recreate bool
	// Progress is called with each action, one call at a time; may be nil.
	Progress func(name string, a Action)
}

// An Action is an action of Up on a domain.
type Action string

// Actions of Up.
const (
	Keep     Action = "keep"     // running as wanted
	Boot     Action = "start"    // defined as wanted, to be started
	Create   Action = "create"   // did not exist
	Redefine Action = "redefine" // not running; redefined and started
	Replace  Action = "replace"  // running with another definition; ended, redefined and started
)

// A Change is an action of Up on one domain, with the reason.
type Change struct {
	Name   string
	Action Action
	// Diff lists the differences from the existing definition, in lines that begin with - or +; nil if nothing
	// differs or the domain is new.
	Diff []string
}

// A ChangedError lists the running domains that would have to be ended.
type ChangedError struct{ Changes []Change }

func (e *ChangedError) Error() string {
	var b strings.Builder
	for i, c := range e.Changes {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "domain %s runs and has changed; to apply it the domain has to be ended:", c.Name)
		for _, line := range c.Diff {
			b.WriteString("\n  " + line)
		}
	}
	return b.String()
}

// Compare returns the changes that Up would make, in the order of specs. If a domain of that name is not rackless',
// the error is ErrForeign.
func (c *Conn) Compare(ctx context.Context, specs []Spec) ([]Change, error) {
	steps, err := c.steps(ctx, specs)
	if err != nil {
		return nil, err
	}
	return lists.Map(steps, func(s step) Change { return s.Change }), nil
}

type step struct {
	Change
	xml    []byte // with the mark
	before []byte // the earlier definition, in libvirt's form
	active bool   // was running
}

// unknownDiff stands for differences from an unknown definition.
var unknownDiff = []string{"it was not defined by rackless itself, so that what it was defined with is not known"}

func (c *Conn) steps(ctx context.Context, specs []Spec) ([]step, error) {
	var steps []step
	for i, s := range specs {
		if slices.ContainsFunc(specs[:i], func(o Spec) bool { return o.Name == s.Name }) {
			return nil, fmt.Errorf("domain %s is wanted twice", s.Name)
		}
		st, err := c.step(ctx, s)
		if err != nil {
			return nil, err
		}
		steps = append(steps, st)
	}
	return steps, nil
}

func (c *Conn) step(ctx context.Context, s Spec) (step, error) {
	st := step{Change: Change{Name: s.Name, Action: Create}}
	wrong := func(err error) (step, error) { return st, fmt.Errorf("domain %s: %w", s.Name, err) }
	var err error
	if st.xml, err = mark(s.Name, s.XML); err != nil {
		return wrong(err)
	}
	d, err := c.own(ctx, s.Name)
	if errors.Is(err, ErrNoDomain) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	plain, err := stripComments(s.XML)
	if err != nil {
		return wrong(err)
	}
	now, err := c.xml(ctx, d.ref, api.DomainXMLInactive)
	if err != nil {
		return st, err
	}
	switch {
	case d.Node.Defined == nil:
		st.Diff = unknownDiff
	case !bytes.Equal(plain, d.Node.Defined):
		st.Diff = diffLines(d.Node.Defined, plain)
	default:
		if st.Diff, err = movedBy(now, plain); err != nil {
			return wrong(err)
		}
	}
	// A domain that differs only in white space is defined again too, so that its mark is exact.
	same := bytes.Equal(plain, d.Node.Defined) && len(st.Diff) == 0
	if !same {
		st.before = now
	}
	switch st.active = d.State.Active(); {
	case same && st.active:
		st.Action = Keep
	case same:
		st.Action = Boot
	case st.active:
		st.Action = Replace
	default:
		st.Action = Redefine
	}
	return st, nil
}

// movedBy returns the differences in a domain's CPU and NUMA placement. Anybody may have changed it with virsh, which
// the mark does not show. libvirt preserves the form of these elements.
func movedBy(now, wanted []byte) ([]string, error) {
	var places [2][]byte
	for i, text := range [][]byte{now, wanted} {
		var d libvirtxml.Domain
		err := d.Unmarshal(string(text))
		if err == nil {
			places[i], err = render.XML(&libvirtxml.Domain{CPUTune: d.CPUTune, NUMATune: d.NUMATune})
		}
		if err != nil {
			return nil, err
		}
	}
	return diffLines(places[0], places[1]), nil
}

// undoLimit limits the undoing of an Up.
const undoLimit = 5 * time.Minute

// Up makes all domains exist and run as in specs, concurrently; a domain that already does is left alone, so a second
// Up changes nothing. It returns when they run, before their guests have booted. If one fails, all return to their
// earlier definition, and run if they ran before.
func (c *Conn) Up(ctx context.Context, specs []Spec, o UpOptions) ([]Change, error) {
	steps, err := c.steps(ctx, specs)
	if err != nil {
		return nil, err
	}
	var changes, running []Change
	for _, s := range steps {
		changes = append(changes, s.Change)
		if s.Action == Replace {
			running = append(running, s.Change)
		}
	}
	// Checked before any change, because running guests may hold unsaved work.
	if len(running) > 0 && !o.Recreate {
		return nil, &ChangedError{running}
	}
	var mu sync.Mutex
	progress := func(s step) {
		mu.Lock()
		defer mu.Unlock()
		if o.Progress != nil {
			o.Progress(s.Name, s.Action)
		}
	}
	err = parallel.Each(steps, func(s step) error {
		if s.Action == Keep {
			return nil
		}
		progress(s)
		return c.apply(ctx, s)
	})
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		for _, s := range steps {
			err = errors.Join(err, c.undo(ctx, s))
		}
		return nil, err
	}
	return changes, nil
}

func (c *Conn) apply(ctx context.Context, s step) error {
	if s.Action == Replace {
		if err := c.Destroy(ctx, s.Name); err != nil {
			return err
		}
	}
	// Defined while it is off, because a running domain would only change at its next start.
	if s.Action != Boot {
		if err := c.define(ctx, s.Name, s.xml); err != nil {
			return err
		}
	}
	return c.Start(ctx, s.Name)
}

// undo returns one domain to its state before Up, whatever part of its step was done.
func (c *Conn) undo(ctx context.Context, s step) error {
	if s.Action == Keep {
		return nil
	}
	var errs []error
	if !s.active || s.before != nil { // it was off, or ran with another definition
		if err := c.Destroy(ctx, s.Name); !errors.Is(err, ErrNoDomain) {
			errs = append(errs, err)
		}
	}
	switch {
	case s.Action == Create:
		errs = append(errs, c.Undefine(ctx, s.Name))
	case s.before != nil:
		errs = append(errs, c.define(ctx, s.Name, s.before))
		if s.active {
			errs = append(errs, c.Start(ctx, s.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lead domain %s back to where it was: %w", s.Name, err)
	}
	return nil
}

// Down ends domains of rackless and removes them from libvirt. Guests have grace to shut down; with 0 they end at
// once, which loses nothing for a node that is only in memory. Missing domains are skipped. If a domain is not
// rackless', the error is ErrForeign and nothing changes.
func (c *Conn) Down(ctx context.Context, names []string, grace time.Duration) error {
	// All are checked before one is ended: a foreign domain stops everything.
	var there []string
	for _, name := range names {
		_, err := c.own(ctx, name)
		if errors.Is(err, ErrNoDomain) {
			continue
		}
		if err != nil {
			return err
		}
		there = append(there, name)
	}
	return parallel.Each(there, func(name string) error {
		var err error
		if grace > 0 {
			err = c.Shutdown(ctx, name, grace)
		} else {
			err = c.Destroy(ctx, name)
		}
		if errors.Is(err, ErrNoDomain) { // transient, and ended
			return nil
		}
		if err != nil {
			return err
		}
		return c.Undefine(ctx, name)
	})
}
