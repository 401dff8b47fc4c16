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
	XML  []byte // of render.Domains; comments are ignored
}

// UpOptions control Up.
type UpOptions struct {
	// Recreate allows Up to end running domains whose definition has changed, instead of a *ChangedError.
	Recreate bool
	// Progress, if set, is called one call at a time.
	Progress func(name string, a Action)
}

// An Action is Up's action on one domain.
type Action string

// Actions of Up.
const (
	Keep     Action = "keep"     // running as wanted
	Boot     Action = "start"    // defined as wanted
	Create   Action = "create"   // did not exist
	Redefine Action = "redefine" // not running; redefined and started
	Replace  Action = "replace"  // ended, redefined and started
)

// A Change is an Action with its reason.
type Change struct {
	Name   string
	Action Action
	// Diff has lines that begin with - or +; nil if nothing differs or the domain is new.
	Diff []string
}

// A ChangedError lists running domains that Up would end.
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

// Compare returns the changes that Up would make, in the order of specs, or ErrForeign.
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
	before []byte // in libvirt's form
	active bool   // was running
}

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
	// Also after a change of white space, so that the mark is exact.
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

// movedBy compares CPU and NUMA placement, which anybody may have changed with virsh, unseen by the mark. libvirt
// preserves the form of these elements.
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

const undoLimit = 5 * time.Minute

// Up makes all domains run as in specs, concurrently; it leaves alone domains that already do. It returns when they
// run, before their guests have booted. If one fails, all return to their earlier definition, and run if they ran
// before.
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
	// First, because running guests may hold unsaved work.
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
	// A running domain would only change at its next start.
	if s.Action != Boot {
		if err := c.define(ctx, s.Name, s.xml); err != nil {
			return err
		}
	}
	return c.Start(ctx, s.Name)
}

// undo works whatever part of the step was done.
func (c *Conn) undo(ctx context.Context, s step) error {
	if s.Action == Keep {
		return nil
	}
	var errs []error
	if !s.active || s.before != nil {
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

// Down removes domains of rackless that exist, or returns ErrForeign and changes nothing. Guests have grace to shut
// down; 0 loses nothing for a node that is only in memory.
func (c *Conn) Down(ctx context.Context, names []string, grace time.Duration) error {
	// A foreign domain stops everything.
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
