package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

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

	// Place says where the lab goes on a host with its devices; nil emulates all of it.
	Place *Placement
	// Recreate ends nodes on a host that run and have changed, to start them anew.
	Recreate bool

	nodeLimit time.Duration // zero means the constant of this name; tests set a short one
}

// Up makes the lab run as described: nodes that run already as they should are left alone, so that
// a second Up changes nothing. If it fails, what it started is stopped again, and a lab that it
// made is removed.
func Up(ctx context.Context, d Dirs, l *lab.Lab, o Options) (r *Rack, err error) {
	p := &Progress{Report: o.Progress}
	defer func() { p.End(err) }()
	if o.Place == nil {
		if err := Supported(l); err != nil {
			return nil, err
		}
	}
	unlock, err := d.lock(ctx, l.Name, func(holder string) {
		p.Note("waiting for process %s, which works on lab %s", holder, l.Name)
	})
	if err != nil {
		return nil, err
	}
	defer unlock()

	old, err := d.loadState(l.Name)
	fresh := errors.Is(err, ErrNotRunning)
	if err != nil && !fresh {
		return nil, err
	}
	if o.Place != nil {
		return upPlaced(ctx, d, l, o, old, p)
	}
	if !fresh && old.Placed() {
		return nil, fmt.Errorf("lab %s runs on this host's devices: rackless down %s first", l.Name, l.Name)
	}
	u := &upper{dirs: d, lab: l, opts: o, progress: p, setups: make(map[string]*guest.Setup)}
	defer func() { err = errors.Join(err, u.closeSetups()) }()
	if !fresh {
		if err := old.settle(ctx); err != nil {
			return nil, err
		}
		u.changes = lab.Diff(old.Lab, l)
		if len(u.changes) == 0 && old.Ready && old.whole() {
			return newRack(d, old), nil
		}
		for _, c := range u.changes {
			p.Note("%s", c)
		}
	}
	if err := u.prepare(ctx, old); err != nil {
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

// settleLimit is far more than a process takes to end on any machine.
const settleLimit = time.Minute

// settle waits for the processes that are on their way out: until they are gone they count as
// alive, and would be left as they are.
func (s *State) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if s.Daemon != nil {
		if err := s.Daemon.Settle(ctx); err != nil {
			return err
		}
	}
	for _, n := range s.Nodes {
		if err := n.Process.Settle(ctx); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
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
	started []*qemu.Node            // by this Up
	setups  map[string]*guest.Setup // conversations with the nodes that were started, by name
}

// prepare makes ready what can be made without touching the lab: image, accelerator, templates.
func (u *upper) prepare(ctx context.Context, old *State) error {
	p := u.progress
	binary, version, err := qemu.Find()
	if err != nil {
		return err
	}
	if err := qemu.CheckVersion(version); err != nil {
		return err
	}
	if !u.opts.Overcommit {
		keep, _ := u.sort(old)
		start := slices.DeleteFunc(slices.Clone(u.lab.Nodes), func(n lab.Node) bool {
			return slices.ContainsFunc(keep, func(k *Node) bool { return k.Name == n.Name })
		})
		if err := fits(u.lab.Name, start); err != nil {
			return err
		}
	}
	p.Begin("image")
	img, err := guest.Ensure(ctx, guest.Options{Cache: u.dirs.images(), Kernel: u.opts.Kernel,
		Progress: func(s string) {
			p.Note("%s", s)
		}})
	if err != nil {
		return err
	}
	u.drv = &qemu.Driver{Binary: binary, Version: version, Image: img, Cache: u.dirs.templates(), Cold: u.opts.Cold}
	p.Begin("accelerator")
	u.drv.Accel, u.reason, err = accelerator(ctx, u.drv, u.opts.Accel, u.dirs.Cache)
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
func (u *upper) spec(n lab.Node) qemu.Spec {
	dir := u.dirs.lab(u.lab.Name)
	s := qemu.Spec{Lab: u.lab.Name, Name: n.Name, Dir: nodeDir(dir, n.Name), CPUs: n.CPUs, Memory: int64(n.Memory)}
	for i, nic := range n.NICs {
		s.NICs = append(s.NICs, qemu.NIC{MAC: nic.MAC, Socket: portPath(dir, n.Name, i).Path})
	}
	return s
}

// reconcile leads the lab from its old state, nil if there is none, to the one asked for. The state
// is saved before anything is started and after each node, so that whoever comes after a killed
// rackless knows what there may be.
func (u *upper) reconcile(ctx context.Context, old *State) (*Rack, error) {
	p := u.progress
	dir := u.dirs.lab(u.lab.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	u.state = &State{
		Version: stateVersion, Lab: u.lab, Driver: u.drv.Name(), Accel: u.drv.Accel, Emulate: u.reason,
		QEMU:  u.drv.Version,
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

// sort decides which nodes of the old state stay and which must go: those that the lab no longer
// has, that must be made anew, or that have died.
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

// stopStrays ends processes below the lab's directory that the state does not know: a rackless was
// killed between starting and noting them.
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
