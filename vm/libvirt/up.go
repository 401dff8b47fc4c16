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

// A Spec is a domain as it is to be.
type Spec struct {
	Name string // lab.VMName
	XML  []byte // as render.Domains makes it; comments do not count
}

// UpOptions are how Up may go about it.
type UpOptions struct {
	// Recreate lets Up end running domains whose definition has changed. Without it such domains
	// are a *ChangedError, and nothing is touched.
	Recreate bool
	// Progress is told what is done to which domain, one call at a time; nil is allowed.
	Progress func(name string, a Action)
}

// An Action is what Up did, or would do, to a domain.
type Action string

// The actions of Up.
const (
	Keep     Action = "keep"     // it runs as it should
	Boot     Action = "start"    // it was defined as it should be, and is started
	Create   Action = "create"   // there was none
	Redefine Action = "redefine" // it did not run, is defined anew and started
	Replace  Action = "replace"  // it runs otherwise than it should: it is ended, defined anew and started
)

// A Change is what Up does to one domain, and why.
type Change struct {
	Name   string
	Action Action
	// Diff is what differs from the definition that there was, in lines that begin with - or +; nil
	// where nothing does or there was none.
	Diff []string
}

// A ChangedError says which running domains would have to be ended.
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

// Compare says what Up would do, in the order of specs. A domain of one of the names that is not
// rackless' is ErrForeign.
func (c *Conn) Compare(ctx context.Context, specs []Spec) ([]Change, error) {
	steps, err := c.steps(ctx, specs)
	if err != nil {
		return nil, err
	}
	return lists.Map(steps, func(s step) Change { return s.Change }), nil
}

// A step is what is to be done to one domain.
type step struct {
	Change
	xml    []byte // marked
	before []byte // the definition that there was, in libvirt's form
	active bool   // it ran
}

// unknownDiff stands for a difference that cannot be told.
var unknownDiff = []string{"it was not defined by rackless itself, so that what it was defined with is not known"}

// steps says what is to be done, and changes nothing.
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
	// Also one that differs in blanks alone is defined again: its mark says what it was defined with.
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

// movedBy returns how the place of a domain differs from what is wanted: with virsh anybody may
// have pinned it otherwise since, of which its mark says nothing. libvirt keeps the form of just
// these elements.
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

// undoLimit bounds undoing what an Up has done.
const undoLimit = 5 * time.Minute

// Up makes the domains exist and run as specs say, all at once; those that do already are left
// alone, so that a second Up changes nothing. It returns once they run, which is before their
// guests have booted. If one fails, all are led back to where they were: defined as before, and
// running if they ran.
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
	// Before anything is touched: guests that run may hold work that nobody has saved.
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

// apply does one step.
func (c *Conn) apply(ctx context.Context, s step) error {
	if s.Action == Replace {
		if err := c.Destroy(ctx, s.Name); err != nil {
			return err
		}
	}
	// Defined while it is off: a change of a running domain would take effect at its next start only.
	if s.Action != Boot {
		if err := c.define(ctx, s.Name, s.xml); err != nil {
			return err
		}
	}
	return c.Start(ctx, s.Name)
}

// undo leads one domain back to where it was before Up, however far its step went.
func (c *Conn) undo(ctx context.Context, s step) error {
	if s.Action == Keep {
		return nil
	}
	var errs []error
	if !s.active || s.before != nil { // it did not run, or not as it does now
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

// Down ends domains of rackless and makes libvirt forget them. Guests are given grace to end by
// themselves; with none they are ended at once, which costs a node that is in memory alone nothing.
// Domains that are not there are passed over. If one of them is not rackless', it is ErrForeign and
// nothing is touched.
func (c *Conn) Down(ctx context.Context, names []string, grace time.Duration) error {
	// All are looked at before one is ended: a foreign domain stops the whole.
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
		if errors.Is(err, ErrNoDomain) { // it was transient, and has ended
			return nil
		}
		if err != nil {
			return err
		}
		return c.Undefine(ctx, name)
	})
}
