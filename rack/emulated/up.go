package emulated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/ssh"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qemu"
)

// Up implements rack.Runtime: it compares the lab that runs with the one that is asked for, prepares
// what new nodes start from, and then does the difference. If that fails, a lab that was there keeps
// the nodes that it had.
func (r *emulatedLab) Up(ctx context.Context, old *rack.State, o rack.Options, p *rack.Progress) (err error) {
	u := &upRun{Rack: r.Rack, opts: o, progress: p, setups: make(map[string]*guest.Setup)}
	defer func() { err = errors.Join(err, u.closeSetups()) }()
	if arch(r.Lab) == runtime.GOARCH { // as if the file left it out
		u.change(func(l *lab.Lab) { l.Arch = "" })
	}
	// Before the labs are compared: it decides what the NICs are.
	if err := u.chooseEmulator(ctx, old); err != nil {
		return err
	}
	if old != nil {
		if err := settle(ctx, old); err != nil {
			return err
		}
		u.before, u.changes = old.Lab, lab.Diff(old.Lab, r.Lab)
		if len(u.changes) == 0 && old.Ready && whole(old) {
			r.State = old
			return nil
		}
		for _, c := range u.changes {
			p.Note("%s", c)
		}
	}
	if err := u.prepare(ctx, old); err != nil {
		return err
	}
	err = u.reconcile(ctx, old)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; free space there, or set RACKLESS_RUN to a directory with more", err)
	}
	if err != nil && old != nil {
		// The caller may have been interrupted; cleaning up must go on all the same.
		err = errors.Join(err, u.undo(context.WithoutCancel(ctx)))
	}
	return err
}

// settleLimit is far more than a process takes to end on any machine.
const settleLimit = time.Minute

// settle waits for the processes that are ending: until they are gone they count as
// alive, and would be left as they are.
func settle(ctx context.Context, s *rack.State) error {
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
func whole(s *rack.State) bool {
	if s.Daemon == nil || !s.Daemon.Alive() || len(s.Nodes) != len(s.Lab.Nodes) {
		return false
	}
	return !slices.ContainsFunc(s.Nodes, func(n *rack.Node) bool {
		return !n.Ready || !n.Process.Alive() || lostAdapters(s, n)
	})
}

// An upRun is one run of Up. Rack.Lab is the lab that is asked for.
type upRun struct {
	*rack.Rack
	opts     rack.Options
	progress *rack.Progress
	before   *lab.Lab     // that ran, or nil
	changes  []lab.Change // between the lab that ran and the one that is asked for

	emulator    vm.Emulator
	emulatorErr error // why there is none
	qemu        *qemu.Driver
	images      map[string]*image.Image // by their names in the lab file
	keys        *guest.Keys             // for ssh; nil in a lab without full nodes
	home        qemu.Home               // of all full nodes, where they share one

	mu      sync.Mutex
	started []vm.Process            // of nodes, by this Up
	setups  map[string]*guest.Setup // conversations with the nodes that were started, by name
}

func hasConnectX(l *lab.Lab) bool { return slices.ContainsFunc(l.Nodes, lab.Node.ConnectX) }

// setNICs gives each node of the lab the NICs that model returns. The lab that is kept says so: it is compared with the
// next one, and shown by ls.
func (u *upRun) setNICs(model func(lab.Node) lab.NICModel) {
	u.change(func(l *lab.Lab) {
		for i, n := range l.Nodes {
			l.Nodes[i].NIC = model(n)
		}
	})
}

// change changes the lab that is asked for.
func (u *upRun) change(do func(*lab.Lab)) {
	l := *u.Lab
	l.Nodes = slices.Clone(l.Nodes)
	do(&l)
	u.Lab, u.State.Lab = &l, &l
}

// arch is the architecture of the lab's nodes, as Go names it.
func arch(l *lab.Lab) string { return cmp.Or(string(l.Arch), runtime.GOARCH) }

// decideNICs decides what the NICs are of nodes that leave it open. Those that run have theirs.
func (u *upRun) decideNICs(old *rack.State) {
	running := make(map[string]lab.NICModel)
	if old != nil {
		for _, n := range old.Lab.Nodes {
			running[n.Name] = cmp.Or(n.NIC, lab.NICVirtio) // a state of a version without adapters
		}
	}
	u.setNICs(func(n lab.Node) lab.NICModel {
		if n.NIC != lab.NICAuto {
			return n.NIC
		}
		return cmp.Or(running[n.Name], lab.NICConnectX4Lx)
	})
}

// chooseEmulator decides what the NICs of the lab's nodes are, and finds their QEMU. For ConnectX adapters that is the
// installed one where it can, else one in the cache. Where neither can be had, the nodes have virtio NICs, and why is
// said.
func (u *upRun) chooseEmulator(ctx context.Context, old *rack.State) error {
	u.decideNICs(old)
	var begin sync.Once
	u.emulator, u.emulatorErr = image.FindQEMU(ctx, image.Options{Cache: u.Dirs.Images(), Progress: func(step string) {
		begin.Do(func() { u.progress.Begin("QEMU") })
		u.progress.Say(step)
	}}, arch(u.Lab), hasConnectX(u.Lab))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e := &u.emulator; u.emulatorErr != nil && hasConnectX(u.Lab) {
		why := u.emulatorErr
		if e.Path, e.Version, u.emulatorErr = vm.FindFor(arch(u.Lab)); u.emulatorErr != nil {
			u.emulatorErr = why
			return nil
		}
		u.progress.Note("the nodes have virtio NICs with soft RoCE in place of a ConnectX: %v", why)
		u.setNICs(func(lab.Node) lab.NICModel { return lab.NICVirtio })
	}
	return nil
}

// prepare makes what nodes start from: image, accelerator, templates. It comes before any change of
// the lab, since it takes longest and fails most often: for want of memory, of a network to fetch
// packages from, or of a QEMU. A lab that runs is then as it was.
func (u *upRun) prepare(ctx context.Context, old *rack.State) error {
	p := u.progress
	if u.emulatorErr != nil {
		return u.emulatorErr
	}
	// Only nodes that are to be started count: those that run have their memory.
	if !u.opts.Overcommit {
		keep, _ := u.sort(old)
		start := slices.DeleteFunc(slices.Clone(u.Lab.Nodes), func(n lab.Node) bool {
			return slices.ContainsFunc(keep, func(k *rack.Node) bool { return k.Name == n.Name })
		})
		if err := fits(u.Lab.Name, start); err != nil {
			return err
		}
	}
	if err := u.ensureImages(ctx); err != nil {
		return err
	}
	if u.Lab.Home == lab.HomeShared {
		if err := u.ensureHome(); err != nil {
			return err
		}
	}
	img, e := u.images[lab.DefaultImage], u.emulator
	u.qemu = &qemu.Driver{Binary: e.Path, Version: e.Version, Lead: e.Lead, Image: img, Cache: u.Dirs.Templates(),
		Cold: u.opts.Cold}
	p.Begin("accelerator")
	s := u.State
	var err error
	s.Accel, s.Emulate, err = rack.Accelerator(u.opts.Accel, func() (bool, string, error) {
		if u.Lab.Arch != "" {
			return false, fmt.Sprintf("nodes of %s are emulated on a machine of %s", u.Lab.Arch, runtime.GOARCH), nil
		}
		return u.qemu.ProbeKVM(ctx, u.Dirs.Cache)
	})
	if err != nil {
		return err
	}
	u.qemu.Accel = s.Accel
	first := u.images[u.Lab.Nodes[0].Image]
	s.QEMU, s.Image, s.Kernel, s.Package = e.Version, first.Key, first.KernelVer, first.Packages
	s.Images = nil
	for _, n := range u.Lab.Nodes {
		if k := u.images[n.Image].Key; k != first.Key && !slices.Contains(s.Images, k) {
			s.Images = append(s.Images, k)
		}
	}
	p.Begin("template")
	for _, n := range u.Lab.Nodes {
		if err := u.qemu.Prepare(ctx, u.spec(n), p.Say); err != nil {
			return err
		}
	}
	p.End(nil)
	return nil
}

// ensureImages makes the images of all nodes. The built-in one is always there: it is what tells whether KVM works.
func (u *upRun) ensureImages(ctx context.Context) error {
	p := u.progress
	o := image.Options{Cache: u.Dirs.Images(), Kernel: u.opts.Kernel, Progress: p.Say, Watch: p.Watch}
	u.images = make(map[string]*image.Image)
	p.Begin("image")
	var err error
	if u.images[lab.DefaultImage], err = image.NodeOf(arch(u.Lab)).Ensure(ctx, o); err != nil {
		return err
	}
	for _, n := range u.Lab.Nodes {
		if u.images[n.Image] != nil {
			continue
		}
		if u.opts.Kernel != "" {
			return fmt.Errorf("node %s: --kernel is for image %s, and not for %s, which has its own", n.Name,
				lab.DefaultImage, n.Image)
		}
		p.Begin("image " + n.Image)
		kind := image.Full(n.Image)
		if n.OwnImage() {
			kind = image.Own(n.Image)
		}
		if u.images[n.Image], err = kind.Ensure(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// spec is the machine that a node of the lab becomes.
func (u *upRun) spec(n lab.Node) qemu.Spec {
	s := qemu.Spec{Lab: u.Lab.Name, Name: n.Name, Dir: u.NodeDir(n.Name), CPUs: n.CPUs, Memory: int64(n.Memory),
		Adapters: n.ConnectX()}
	if n.HasDisk() {
		s.Image = u.images[n.Image]
	}
	if u.Lab.HomeOf(n) == lab.HomeShared {
		s.Home = u.home
	}
	for i, nic := range n.NICs {
		made := qemu.NIC{MAC: nic.MAC, Socket: portOf(u.Dir, n.Name, i).Path}
		if n.ConnectX() {
			made = qemu.NIC{MAC: nic.MAC, Adapter: adapterSocket(u.Dir, n.Name, i), Model: string(n.NIC)}
		}
		s.NICs = append(s.NICs, made)
	}
	return s
}

// reconcile does the difference between the lab's old state, nil if there is none, and the one
// that is asked for. The state is saved before anything is started and after each node, so that
// the next rackless knows what there may be if this one is killed.
func (u *upRun) reconcile(ctx context.Context, old *rack.State) error {
	p := u.progress
	if err := os.MkdirAll(u.Dir, 0o700); err != nil {
		return err
	}
	keep, drop := u.sort(old)
	u.State.Nodes = keep
	if old != nil {
		u.State.Daemon = old.Daemon
	}
	if err := u.Save(); err != nil {
		return err
	}
	// The state no longer has them: if this process is killed here, the next Up ends them as strays.
	if len(drop) > 0 {
		p.Begin("stop nodes")
		for _, n := range drop {
			if n.Process.Alive() && lostAdapters(old, n) {
				p.Note("node %s has lost its ConnectX, as the lab's daemon ended: it is started again", n.Name)
			}
			if err := n.Process.Kill(ctx); err != nil {
				return err
			}
		}
	}
	// The state was saved: a process that runs and is not in it belongs to no node.
	if err := u.stopStrays(ctx); err != nil {
		return err
	}
	// A node that is recreated must not find the sockets and logs of the one before.
	for _, n := range drop {
		if err := os.RemoveAll(u.NodeDir(n.Name)); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(u.Lab.Nodes, lab.Node.HasDisk) {
		var err error
		if u.keys, err = ssh.EnsureKeys(u.Dir); err != nil {
			return err
		}
	}
	p.Begin("switch")
	if err := u.ensureDaemon(ctx); err != nil {
		return err
	}
	if err := u.startNodes(ctx); err != nil {
		return err
	}
	u.State.Ready = true
	if err := u.Save(); err != nil {
		return err
	}
	p.End(nil)
	return nil
}

// sort decides which nodes of the old state stay and which must go: those that the lab no longer
// has, that must be recreated, or that have died.
func (u *upRun) sort(old *rack.State) (keep, drop []*rack.Node) {
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
		wanted := slices.ContainsFunc(u.Lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })
		if wanted && !recreate[n.Name] && n.Process.Alive() && !lostAdapters(old, n) {
			keep = append(keep, n)
		} else {
			drop = append(drop, n)
		}
	}
	return keep, drop
}

// stopStrays ends processes below the lab's directory that the state does not know: a rackless was
// killed between starting and noting them.
func (u *upRun) stopStrays(ctx context.Context) error {
	all, err := vm.Strays(u.Dir)
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.ContainsFunc(u.State.Nodes, func(n *rack.Node) bool { return n.Process == p }) {
			continue
		}
		u.progress.Note("stopping process %d, left by a rackless that was killed", p.PID)
		if err := p.Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ensureDaemon starts the lab's daemon, or gives the running one the ports of the lab as it is asked
// for. A running one is not restarted: the links of all nodes would go down with the switch, and
// with them what their users do.
func (u *upRun) ensureDaemon(ctx context.Context) error {
	want := ports(u.Dir, u.Lab)
	if u.State.Daemon == nil || !u.State.Daemon.Alive() {
		if err := killDaemons(ctx, u.Dir); err != nil {
			return err
		}
		p, err := startDaemon(ctx, u.Dir)
		if err != nil {
			return err
		}
		u.State.Daemon = p
		return u.Save()
	}
	sw, err := u.Switch()
	if err != nil {
		return err
	}
	have, err := sw.Counters(ctx)
	if err != nil {
		return err
	}
	// Nodes that are started find their ports. The port of a NIC that became another model is another one.
	same := func(h fabric.PortCounters, w fabric.Port) bool { return h.Name == w.Name && h.Rate == w.Rate }
	for _, h := range have.Ports {
		if !slices.ContainsFunc(want, func(w fabric.Port) bool { return same(h, w) }) {
			if err := sw.RemovePort(ctx, h.Name); err != nil {
				return err
			}
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(have.Ports, func(h fabric.PortCounters) bool { return same(h, w) }) {
			if err := sw.AddPort(ctx, w); err != nil {
				return err
			}
		}
	}
	if !hasConnectX(u.Lab) && (u.before == nil || !hasConnectX(u.before)) {
		return nil
	}
	_, err = ask(ctx, u.Dir, request{Adapters: true}) // the state may have other adapters
	return err
}

// undoLimit bounds the end of the nodes that a failed Up has started, which takes a fraction of a second.
const undoLimit = 30 * time.Second

// undo stops the nodes that this Up has started; the others run on. Nodes that were dropped stay
// so: they had died, or had to be recreated.
func (u *upRun) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	errs := lists.Map(u.started, func(n vm.Process) error { return n.Kill(ctx) })
	u.State.Nodes = slices.DeleteFunc(u.State.Nodes, func(n *rack.Node) bool {
		return slices.Contains(u.started, n.Process)
	})
	return errors.Join(append(errs, u.Save())...)
}
