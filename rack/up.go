package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/vm"
)

// Options of Up. The zero value suits most users.
type Options struct {
	Accel      string // "auto" or "", "kvm", "tcg"
	Kernel     string // for the built-in image; "" means Debian's
	Cold       bool   // boot every node instead of cloning a template
	Overcommit bool   // start even if the nodes' memory exceeds the available memory
	Progress   func(Event)

	// Place places the nodes, for labs on a host.
	Place *Placement
	// Recreate restarts running nodes on a host that have changed.
	Recreate bool

	// NodeLimit is for the start of a node. 0 means the driver's default.
	NodeLimit time.Duration
}

// A Placement places a lab on a host. It is stored, because the host may later be prepared for another lab, or be
// another machine.
type Placement struct {
	URI  string         `json:"uri"` // of libvirt or vCenter
	Plan *plan.Plan     `json:"plan"`
	Host *topology.Host `json:"host"` // host of the plan
}

// An UnfinishedError is a task for the user before Up can continue. Results so far are kept.
type UnfinishedError struct{ Do string }

func (e *UnfinishedError) Error() string { return e.Do }

// An UndoneError means that the lab did not run before, and nothing is left of it.
type UndoneError struct{ error }

// Unwrap returns the reason.
func (e *UndoneError) Unwrap() error { return e.error }

// Up makes the lab run as described, and leaves nodes that already do so alone. If Up fails, it stops everything that
// it started, and removes a lab that it made.
func Up(ctx context.Context, d Dirs, l *lab.Lab, o Options) (r *Rack, err error) {
	p := &Progress{Report: o.Progress}
	defer func() { p.End(err) }()
	s := &State{Version: stateVersion, Lab: l, Driver: DriverOf(l), Created: time.Now().UTC()}
	if r, err = newRack(d, s); err != nil {
		return nil, err
	}
	if err := Check(l); err != nil {
		return nil, err
	}
	if r.driver.NeedsPlace && o.Place == nil {
		return nil, fmt.Errorf("lab %s goes on a host: plan it there first", l.Name)
	}
	// A refused lab need not wait.
	unlock, err := Lock(ctx, d, l.Name, func(holder string) {
		p.Note("waiting for process %s, which works on lab %s", holder, l.Name)
	})
	if err != nil {
		return nil, err
	}
	defer unlock()

	old, err := loadState(d, l.Name)
	switch fresh := errors.Is(err, ErrNotRunning); {
	case err != nil && !fresh:
		return nil, err
	case fresh:
		old = nil
	// Only the old driver can end its nodes.
	case old.Driver != s.Driver:
		other, err := driverNamed(l.Name, old.Driver)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("lab %s runs %s: rackless down %s first", l.Name, other.Where, l.Name)
	default:
		s.Created = old.Created
	}
	if err = r.runtime.Up(ctx, old, o, p); err == nil {
		r.Lab = r.State.seen()
		// A lab with failing steps stays, so that its user can see why.
		if err = r.SetUp(ctx, p); err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return r, nil
	}
	_, stays := errors.AsType[*UnfinishedError](err)
	err = errors.Join(err, r.Close())
	if old == nil && !stays {
		// The caller's context may be canceled, but cleaning up must go on.
		left := remove(context.WithoutCancel(ctx), d, l.Name)
		if left == nil {
			return nil, &UndoneError{err}
		}
		err = errors.Join(err, left)
	}
	return nil, err
}

// StartNodes calls start for each node, at most limit at once, and saves each result, for the next rackless if this one
// is killed. The first error cancels the other calls and is returned when all have ended.
func (r *Rack) StartNodes(ctx context.Context, nodes []lab.Node, limit int, p *Progress,
	start func(context.Context, lab.Node) (*Node, error)) error {
	p.Begin("nodes")
	p.Count(0, len(nodes))
	var mu sync.Mutex
	done := 0
	err := Each(ctx, nodes, limit, func(ctx context.Context, n lab.Node) error {
		node, err := start(ctx, n)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.State.put(node)
		done++
		p.Count(done, len(nodes))
		return r.Save()
	})
	r.State.order()
	return err
}

// AwaitGIDs reads a node's facts until each address has a RoCE v2 GID: the kernel adds them asynchronously, on a card
// not before its link is up. pause is the time between two reads.
func (r *Rack) AwaitGIDs(ctx context.Context, n lab.Node, node *Node, pause time.Duration) error {
	for {
		missing := ""
		for _, nic := range n.NICs {
			if _, _, ok := node.Facts.RoCEv2(nic.Addr.Addr()); !ok {
				missing = nic.Addr.Addr().String()
			}
		}
		if missing == "" {
			return nil
		}
		if err := wait.For(ctx, pause); err != nil {
			return fmt.Errorf("node %s: no RoCE v2 GID for %s appeared: is its link up? %w", n.Name, missing, err)
		}
		var err error
		if node.Facts, err = r.Facts(ctx, n.Name); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
}

// ConsoleTail returns the last lines of a console log for an error message, or "". The log is removed with a node that
// could not be started.
func ConsoleTail(path string) string {
	lines := vm.EndOf(path, 5)
	if lines == nil {
		return ""
	}
	return "; its console ended:\n  " + strings.Join(lines, "\n  ")
}

// Each calls f for every item, at most limit at once. The first error cancels the other calls and is returned when all
// have ended.
func Each[T any](ctx context.Context, items []T, limit int, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	tokens := make(chan struct{}, limit)
	for _, it := range items {
		select {
		case tokens <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-tokens }()
			if err := f(ctx, it); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// A Difference is the JSON of lab diff, see docs/json.md.
type Difference struct {
	Lab     string       `json:"lab"`
	Running bool         `json:"running"`
	Changes []lab.Change `json:"changes"`          // to the file
	Repairs []string     `json:"repairs"`          // restarts not due to changes of the file
	Effect  lab.Effect   `json:"effect,omitempty"` // the greatest: "live", "recreate" or "rebuild"
}

// Compare compares with the running lab of that name. Without one there are no changes.
func Compare(ctx context.Context, d Dirs, l *lab.Lab) (Difference, error) {
	out := Difference{Lab: l.Name, Changes: []lab.Change{}, Repairs: []string{}}
	r, err := Open(d, l.Name)
	if errors.Is(err, ErrNotRunning) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Running = true
	out.Changes = append(out.Changes, lab.Diff(r.State.Lab, l)...)
	out.Effect = lab.Dearest(out.Changes)
	// No difference to the file, but up would restart it.
	if r.SwitchState() == SwitchDead {
		out.Repairs = append(out.Repairs, "switch: not running")
	}
	for _, st := range r.Status(ctx) {
		switch {
		case st.Err != nil:
			return out, fmt.Errorf("node %s: %w", st.Lab.Name, st.Err)
		case st.State == vm.Dead || st.State == Starting || st.State == NoAdapter:
			out.Repairs = append(out.Repairs, fmt.Sprintf("%s: %s", st.Lab.Name, st.State))
		}
	}
	return out, nil
}

// Text has one change per line, for a lab with this number of nodes.
func (d Difference) Text(nodes int) string {
	if !d.Running {
		return fmt.Sprintf("lab %s is not running: up would start %s\n", d.Lab, words.Count(nodes, "node"))
	}
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintln(&b, c)
	}
	for _, r := range d.Repairs {
		fmt.Fprintf(&b, "%s (up starts it again)\n", r)
	}
	if b.Len() == 0 {
		return fmt.Sprintf("lab %s is as the file says: up would change nothing\n", d.Lab)
	}
	return b.String()
}

// Down ends a lab and removes everything of it except results. It reports whether the lab existed; a missing lab is not
// an error. kept are called for each setting that is left, because somebody has changed it since.
func Down(ctx context.Context, d Dirs, name string, kept ...func(what string)) (bool, error) {
	unlock, err := Lock(ctx, d, name, nil)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := os.Stat(d.Lab(name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return true, remove(ctx, d, name, kept...)
}

// remove needs the lock. If the state is unreadable, because it is damaged or a killed rackless did not write it, the
// default driver finds its processes without it.
func remove(ctx context.Context, d Dirs, name string, kept ...func(what string)) error {
	s, err := loadState(d, name)
	if err != nil {
		s = &State{Lab: &lab.Lab{Name: name}, Driver: string(lab.DriverQEMU)}
	}
	r, err := newRack(d, s)
	if err != nil {
		return err
	}
	// A hanging libvirt must not hold the lock forever.
	limit := r.driver.DownLimit
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("lab %s was not down within %v", name, limit))
	defer cancel()
	if err := errors.Join(r.runtime.Down(ctx), r.Close()); err != nil {
		return err
	}
	if k, ok := r.runtime.(Keeper); ok {
		for _, what := range k.Kept() {
			for _, say := range kept {
				say(what)
			}
		}
	}
	trace.Changes("remove %s", r.Dir)
	return os.RemoveAll(r.Dir)
}

// DownAll ends every lab, and returns the names of the existing ones. kept are as for Down.
func DownAll(ctx context.Context, d Dirs, kept ...func(what string)) ([]string, error) {
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	// A lab may be only a lock: one that is just starting, or that was killed so early. Down waits for the former, and
	// removes the lock of the latter.
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
		ok, err := Down(ctx, d, n, kept...)
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
