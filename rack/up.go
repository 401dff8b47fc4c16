package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/driver"
	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/lab"
)

// Options of Up. The zero value does what most want.
type Options struct {
	Accel      string // "auto" or "", "kvm", "tcg"
	Kernel     string // kernel image for the built-in image; "" means Debian's
	Cold       bool   // boot every node instead of cloning a template
	Overcommit bool   // start even if the nodes' memory adds up to more than is available
	Progress   func(Event)

	nodeLimit time.Duration // zero means the constant of this name; tests set a short one
}

// An Event is one thing that happened in a longer operation.
type Event struct {
	Step  string // what is being done, e.g. "start nodes"
	Note  string // something worth saying on the way
	Done  int    // of Total, where the step counts
	Total int
	End   bool          // the step is over
	Err   error         // why it failed, with End
	Took  time.Duration // with End
}

// A Progress turns a sequence of steps into events. Report may be nil.
type Progress struct {
	Report func(Event)

	step  string
	began time.Time
}

// Begin ends the step before, if one is open, and begins the next.
func (p *Progress) Begin(step string) {
	p.End(nil)
	p.step, p.began = step, time.Now()
	p.emit(Event{Step: step})
}

// Note says something worth saying on the way.
func (p *Progress) Note(format string, args ...any) {
	p.emit(Event{Step: p.step, Note: fmt.Sprintf(format, args...)})
}

// Count tells how much of the step is done.
func (p *Progress) Count(done, total int) {
	p.emit(Event{Step: p.step, Done: done, Total: total})
}

// End ends the step that is open, if one is.
func (p *Progress) End(err error) {
	if p.step != "" {
		p.emit(Event{Step: p.step, End: true, Err: err, Took: time.Since(p.began)})
		p.step = ""
	}
}

func (p *Progress) emit(e Event) {
	if p.Report != nil {
		p.Report(e)
	}
}

// Up makes the lab run as described: nodes that run already as they should are left alone, so that a second Up changes nothing.
// If it fails, what it started is stopped again, and a lab that it made is removed.
func Up(ctx context.Context, d Dirs, l *lab.Lab, o Options) (r *Rack, err error) {
	p := &Progress{Report: o.Progress}
	defer func() { p.End(err) }()
	if err := supported(l); err != nil {
		return nil, err
	}
	unlock, err := d.lock(ctx, l.Name, func(holder string) { p.Note("waiting for process %s, which works on lab %s", holder, l.Name) })
	if err != nil {
		return nil, err
	}
	defer unlock()

	old, err := d.loadState(l.Name)
	fresh := errors.Is(err, ErrNotRunning)
	if err != nil && !fresh {
		return nil, err
	}
	u := &upper{dirs: d, lab: l, opts: o, progress: p, setups: make(map[string]*guest.Setup)}
	defer func() { err = errors.Join(err, u.closeSetups()) }()
	if !fresh {
		u.changes = lab.Diff(old.Lab, l)
		if len(u.changes) == 0 && old.Ready && old.whole() {
			return newRack(d, old), nil
		}
		for _, c := range u.changes {
			p.Note("%s", c)
		}
	}
	if err := u.prepare(ctx); err != nil {
		return nil, err
	}
	if r, err = u.reconcile(ctx, old); err != nil {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = fmt.Errorf("%w; free space there, or set RACKLESS_RUN to a directory with more", err)
		}
		// The caller may have been interrupted; cleaning up must go on all the same.
		return nil, errors.Join(err, u.undo(context.WithoutCancel(ctx), fresh))
	}
	return r, nil
}

// supported refuses what this version's drivers cannot do, before anything is touched.
func supported(l *lab.Lab) error {
	if l.Driver == lab.DriverLibvirt {
		return fmt.Errorf("lab %s: driver libvirt is not in this version: use auto or qemu", l.Name)
	}
	for _, n := range l.Nodes {
		if n.GPUs > 0 {
			return fmt.Errorf("lab %s: node %s asks for %d GPUs, which driver qemu cannot give: set gpus: 0", l.Name, n.Name, n.GPUs)
		}
		if n.Image != lab.DefaultImage {
			return fmt.Errorf("lab %s: node %s asks for image %q: this version has only %s", l.Name, n.Name, n.Image, lab.DefaultImage)
		}
	}
	return nil
}

// whole reports whether every process of the lab is there.
func (s *State) whole() bool {
	if s.Daemon == nil || !s.Daemon.Alive() || len(s.Nodes) != len(s.Lab.Nodes) {
		return false
	}
	return !slices.ContainsFunc(s.Nodes, func(n *Node) bool { return !n.Ready || !n.Process.Alive() })
}

// upper is one run of Up.
type upper struct {
	dirs     Dirs
	lab      *lab.Lab
	opts     Options
	progress *Progress
	changes  []lab.Change

	drv    *qemu.Driver
	reason string // why the accelerator is not kvm
	state  *State

	mu      sync.Mutex
	started []*driver.Node          // by this Up
	setups  map[string]*guest.Setup // conversations with the nodes that were started, by name
}

// prepare makes ready what can be made without touching the lab: image, accelerator, templates.
func (u *upper) prepare(ctx context.Context) error {
	p := u.progress
	binary, version, err := qemu.Find()
	if err != nil {
		return err
	}
	if err := qemu.CheckVersion(version); err != nil {
		return err
	}
	if !u.opts.Overcommit {
		if err := fits(u.lab); err != nil {
			return err
		}
	}
	p.Begin("image")
	img, err := guest.Ensure(ctx, guest.Options{Cache: u.dirs.images(), Kernel: u.opts.Kernel, Progress: func(s string) { p.Note("%s", s) }})
	if err != nil {
		return err
	}
	u.drv = &qemu.Driver{Binary: binary, Version: version, Image: img, Cache: u.dirs.templates(), Cold: u.opts.Cold}
	p.Begin("accelerator")
	u.drv.Accel, u.reason, err = accelerator(ctx, u.drv, u.opts.Accel, u.dirs)
	if err != nil {
		return err
	}
	p.Begin("template")
	for _, n := range u.lab.Nodes {
		if err := u.drv.Prepare(ctx, u.spec(n), func(s string) { p.Note("%s", s) }); err != nil {
			return err
		}
	}
	p.End(nil)
	return nil
}

// spec is the machine that a node of the lab becomes.
func (u *upper) spec(n lab.Node) driver.Spec {
	dir := u.dirs.lab(u.lab.Name)
	s := driver.Spec{Lab: u.lab.Name, Name: n.Name, Dir: nodeDir(dir, n.Name), CPUs: n.CPUs, Memory: int64(n.Memory)}
	for i, nic := range n.NICs {
		s.NICs = append(s.NICs, driver.NIC{MAC: nic.MAC, Socket: portPath(dir, n.Name, i).Path})
	}
	return s
}

// reconcile leads the lab from its old state, nil if there is none, to the one asked for. The state is saved before anything is started and
// after each node, so that whoever comes after a killed rackless knows what there may be.
func (u *upper) reconcile(ctx context.Context, old *State) (*Rack, error) {
	p := u.progress
	dir := u.dirs.lab(u.lab.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	u.state = &State{
		Version: stateVersion, Lab: u.lab, Driver: u.drv.Name(), Accel: u.drv.Accel, Emulate: u.reason, QEMU: u.drv.Version,
		Image: u.drv.Image.Key, Kernel: u.drv.Image.KernelVer, Package: u.drv.Image.Packages, Created: time.Now().UTC(),
	}
	if old != nil {
		u.state.Created, u.state.Daemon = old.Created, old.Daemon
	}
	keep, drop := u.sort(old)
	u.state.Nodes = keep
	if err := u.dirs.save(u.state); err != nil {
		return nil, err
	}
	if len(drop) > 0 {
		p.Begin("stop nodes")
		for _, n := range drop {
			if err := u.drv.Stop(ctx, &n.Node); err != nil {
				return nil, err
			}
		}
	}
	if err := u.stopStrays(ctx); err != nil {
		return nil, err
	}
	for _, n := range drop {
		if err := os.RemoveAll(nodeDir(dir, n.Name)); err != nil {
			return nil, err
		}
	}
	p.Begin("switch")
	if err := u.ensureDaemon(ctx, old); err != nil {
		return nil, err
	}
	r := newRack(u.dirs, u.state)
	if err := u.startNodes(ctx, r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	u.state.Ready = true
	if err := u.dirs.save(u.state); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p.End(nil)
	return r, nil
}

// sort decides which nodes of the old state stay and which must go: those that the lab no longer has, that must be made anew, or that have died.
func (u *upper) sort(old *State) (keep, drop []*Node) {
	if old == nil {
		return nil, nil
	}
	recreate := make(map[string]bool)
	for _, c := range u.changes {
		switch {
		case c.Effect == lab.Rebuild:
			return nil, old.Nodes
		case c.Effect == lab.Recreate:
			recreate[c.Node] = true
		}
	}
	for _, n := range old.Nodes {
		wanted := slices.ContainsFunc(u.lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })
		if wanted && !recreate[n.Name] && n.Process.Alive() {
			keep = append(keep, n)
		} else {
			drop = append(drop, n)
		}
	}
	return keep, drop
}

// stopStrays ends processes below the lab's directory that the state does not know: a rackless was killed between starting and noting them.
func (u *upper) stopStrays(ctx context.Context) error {
	all, err := u.drv.Strays(u.dirs.lab(u.lab.Name))
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.ContainsFunc(u.state.Nodes, func(n *Node) bool { return n.Process == p }) {
			continue
		}
		u.progress.Note("stopping process %d, left by a rackless that was killed", p.PID)
		if err := p.Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ensureDaemon starts the lab's daemon, or gives the running one the ports that it lacks.
func (u *upper) ensureDaemon(ctx context.Context, old *State) error {
	dir := u.dirs.lab(u.lab.Name)
	want := ports(dir, u.lab)
	if u.state.Daemon == nil || !u.state.Daemon.Alive() {
		if err := killDaemons(ctx, dir); err != nil {
			return err
		}
		p, err := startDaemon(ctx, dir)
		if err != nil {
			return err
		}
		u.state.Daemon = p
		return u.dirs.save(u.state)
	}
	sw, err := newRack(u.dirs, u.state).Switch()
	if err != nil {
		return err
	}
	have, err := sw.Counters(ctx)
	if err != nil {
		return err
	}
	for _, w := range want {
		if !slices.ContainsFunc(have.Ports, func(h fabric.PortCounters) bool { return h.Name == w.Name }) {
			if err := sw.AddPort(ctx, w); err != nil {
				return err
			}
		}
	}
	for _, h := range have.Ports {
		if !slices.ContainsFunc(want, func(w fabric.Port) bool { return h.Name == w.Name }) {
			if err := sw.RemovePort(ctx, h.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// startNodes starts the nodes that are missing and configures all that need it.
func (u *upper) startNodes(ctx context.Context, r *Rack) error {
	byName := make(map[string]*Node)
	for _, n := range u.state.Nodes {
		byName[n.Name] = n
	}
	live := slices.ContainsFunc(u.changes, func(c lab.Change) bool { return c.Effect == lab.Live })
	var work []lab.Node
	for _, n := range u.lab.Nodes {
		if have := byName[n.Name]; have == nil || !have.Ready || live {
			work = append(work, n)
		}
	}
	u.progress.Begin("nodes")
	u.progress.Count(0, len(work))
	done := 0
	err := each(ctx, work, u.workers(), func(ctx context.Context, n lab.Node) error {
		node, err := u.bring(ctx, r, n, byName[n.Name])
		u.mu.Lock()
		defer u.mu.Unlock()
		if err != nil {
			return err
		}
		u.state.put(node)
		done++
		u.progress.Count(done, len(work))
		return u.dirs.save(u.state)
	})
	u.state.order()
	if err != nil || len(work) == 0 {
		return err
	}
	return u.reach(ctx, r)
}

// reach checks that one node and all others answer each other at the full MTU: on one switch, that shows every node's way in and out. The
// full mesh is for verify, since under emulation every node that pings for the first time takes a quarter of a second of CPU time.
func (u *upper) reach(ctx context.Context, r *Rack) error {
	if len(u.lab.Nodes) < 2 {
		return nil
	}
	u.progress.Begin("reach")
	for _, n := range u.lab.Nodes {
		setup := u.setups[n.Name]
		if setup == nil {
			continue
		}
		peers := check.Peers(u.lab, n.Name)
		answered, err := setup.Reach(ctx, check.PingPayload(u.lab), peers)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if len(answered) < len(peers) {
			return fmt.Errorf("node %s reaches %d of its %d peers at MTU %d; see rackless fabric %s", n.Name, len(answered), len(peers), u.lab.Fabric.MTU, u.lab.Name)
		}
		return nil
	}
	// No node was started: settings of running ones have changed.
	if f := check.ReachFrom(ctx, u.lab, 0, r); f.Status != check.OK {
		return fmt.Errorf("node %s: %s of its peers answer; %s", f.Subject, f.Have, f.Fix)
	}
	return nil
}

// workers is how many nodes come up at once. Under TCG a node that comes up keeps a core busy, and more of them than cores only wait for each
// other; a few more hide the waits.
func (u *upper) workers() int { return 2 * runtime.NumCPU() }

// nodeLimit bounds the time until a node that was started has been configured. By hand a clone takes 0.5 s, a boot 5 s; the machine may
// be shared and slow.
const nodeLimit = 240 * time.Second

// bring starts a node unless it runs, and configures it.
func (u *upper) bring(ctx context.Context, r *Rack, n lab.Node, have *Node) (*Node, error) {
	limit := u.opts.nodeLimit
	if limit == 0 {
		limit = nodeLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("node %s did not answer within %v", n.Name, limit))
	defer cancel()
	node := &Node{MachineID: guest.NewMachineID()}
	if have != nil {
		node.Node, node.MachineID = have.Node, have.MachineID
	} else {
		r.forget(n.Name)
		spec := u.spec(n)
		spec.Attached = func(ctx context.Context) error {
			_, err := r.agent(ctx, n.Name) // makes the daemon connect to the agent's port
			return err
		}
		made, err := u.drv.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		u.mu.Lock()
		u.started = append(u.started, made)
		u.setups[n.Name] = guest.NewSetup(made.Setup)
		u.mu.Unlock()
		node.Node = *made
	}
	id := guest.Identity{Name: n.Name, MachineID: node.MachineID, MTU: u.lab.Fabric.MTU}
	for _, nic := range n.NICs {
		id.NICs = append(id.NICs, guest.NIC{Device: nic.Name, MAC: nic.MAC, Addr: nic.Addr})
	}
	err := watch(ctx, &node.Node, func(ctx context.Context) (err error) {
		if setup := u.setup(n.Name); setup != nil {
			node.Facts, err = setup.Configure(ctx, id)
			return err
		}
		agent, err := r.agent(ctx, n.Name)
		if err != nil {
			return err
		}
		node.Facts, err = agent.Configure(ctx, id)
		return err
	})
	if err == nil {
		err = u.awaitGIDs(ctx, r, n, node)
	}
	if err != nil {
		// A node that this up has started goes with its logs.
		return nil, fmt.Errorf("%w%s", err, logTail(node.Log))
	}
	node.Ready = true
	return node, nil
}

// awaitGIDs reads the facts again until every address has its RoCE v2 GID: the kernel enters them in its own time.
func (u *upper) awaitGIDs(ctx context.Context, r *Rack, n lab.Node, node *Node) error {
	for {
		missing := ""
		for i, nic := range n.NICs {
			d := node.Facts.RDMA[fmt.Sprintf("rxe%d", i)]
			if d == nil {
				return fmt.Errorf("node %s has no RDMA device rxe%d", n.Name, i)
			}
			if _, ok := d.RoCEv2Index(nic.Addr.Addr()); !ok {
				missing = nic.Addr.Addr().String()
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s: no RoCE v2 GID for %s appeared: %w", n.Name, missing, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
		var err error
		if node.Facts, err = r.Facts(ctx, n.Name); err != nil {
			return err
		}
	}
}

// logTail returns the last lines of a node's console for an error message, or nothing.
func logTail(path string) string {
	b, err := os.ReadFile(path)
	text := strings.TrimSpace(string(b))
	if err != nil || text == "" {
		return ""
	}
	const few = 5
	lines := strings.Split(text, "\n")
	return "; its console ended:\n  " + strings.Join(lines[max(0, len(lines)-few):], "\n  ")
}

func (u *upper) setup(node string) *guest.Setup {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.setups[node]
}

func (u *upper) closeSetups() error {
	var errs []error
	for _, s := range u.setups {
		if err := s.Close(); !errors.Is(err, net.ErrClosed) { // closed by the end of a context
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// watch calls f, and breaks it off at once if the node's process ends meanwhile.
func watch(ctx context.Context, n *driver.Node, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if n.Process.Wait(ctx) == nil {
			cancel(fmt.Errorf("node %s: its process %d has ended", n.Name, n.Process.PID))
		}
	}()
	if err := f(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// put adds a node or takes the place of the one with its name.
func (s *State) put(n *Node) {
	for i, have := range s.Nodes {
		if have.Name == n.Name {
			s.Nodes[i] = n
			return
		}
	}
	s.Nodes = append(s.Nodes, n)
}

// order sorts the nodes as in the lab.
func (s *State) order() {
	place := make(map[string]int)
	for i, n := range s.Lab.Nodes {
		place[n.Name] = i
	}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return place[a.Name] - place[b.Name] })
}

// undo stops what this Up has started. A lab that it made is removed; one that was there keeps the nodes that it had.
func (u *upper) undo(ctx context.Context, fresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	if fresh {
		return u.dirs.remove(ctx, u.lab.Name)
	}
	var errs []error
	for _, n := range u.started {
		errs = append(errs, u.drv.Stop(ctx, n))
		u.state.Nodes = slices.DeleteFunc(u.state.Nodes, func(have *Node) bool { return have.Name == n.Name })
	}
	return errors.Join(append(errs, u.dirs.save(u.state))...)
}

// each calls f for every item, at most limit at once. The first error ends the others' context and is returned once all have ended.
func each[T any](ctx context.Context, items []T, limit int, f func(context.Context, T) error) error {
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
