package emulated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/ssh"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/serve"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qemu"
)

// Up implements rack.Runtime. It prepares new nodes before it changes the running lab, which keeps its nodes on
// failure.
func (r *emulatedLab) Up(ctx context.Context, old *rack.State, o rack.Options, p *rack.Progress) (err error) {
	u := &upRun{Rack: r.Rack, opts: o, progress: p, setups: make(map[string]*guest.Setup)}
	defer func() { err = errors.Join(err, u.closeSetups()) }()
	if arch(r.Lab) == runtime.GOARCH { // as if omitted
		u.change(func(l *lab.Lab) { l.Arch = "" })
	}
	// It decides the NIC models.
	if err := u.chooseEmulator(ctx, old); err != nil {
		return err
	}
	if old != nil {
		if err := settle(ctx, old); err != nil {
			return err
		}
		if u.lost, err = findLost(ctx, r.Dir, old); err != nil {
			return err
		}
		u.before, u.changes = old.Lab, lab.Diff(old.Lab, r.Lab)
		if len(u.changes) == 0 && old.Ready && whole(old, u.lost) {
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
	u.noteProfiles()
	u.noteKernels()
	err = u.reconcile(ctx, old)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; free space there, or set RACKLESS_RUN to a directory with more", err)
	}
	if err != nil && old != nil {
		// The caller's context may be canceled, but cleaning up must go on.
		err = errors.Join(err, u.undo(context.WithoutCancel(ctx)))
	}
	return err
}

const settleLimit = time.Minute

// settle waits for ending processes, which would count as alive, and be kept.
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

func whole(s *rack.State, lost map[string]string) bool {
	if s.Daemon == nil || !s.Daemon.Alive() || len(s.Nodes) != len(s.Lab.Nodes) {
		return false
	}
	return !slices.ContainsFunc(s.Nodes, func(n *rack.Node) bool {
		return !n.Ready || !n.Process.Alive() || lost[n.Name] != ""
	})
}

// An upRun is one run of Up. Rack.Lab is the requested lab.
type upRun struct {
	*rack.Rack
	opts     rack.Options
	progress *rack.Progress
	before   *lab.Lab          // the running lab, or nil
	changes  []lab.Change      // to the requested lab
	lost     map[string]string // running nodes, with the reason

	emulator    vm.Emulator
	emulatorErr error // why emulator is not set
	qemu        *qemu.Driver
	images      map[string]*image.Image // by the lab file's name
	keys        *guest.Keys             // nil without full nodes
	home        qemu.Home

	mu      sync.Mutex
	started []vm.Process            // nodes started by this Up
	setups  map[string]*guest.Setup // of started nodes
}

func hasConnectX(l *lab.Lab) bool { return slices.ContainsFunc(l.Nodes, lab.Node.ConnectX) }

// setNICs sets the models in the stored lab, for the comparison with the next lab, and for ls.
func (u *upRun) setNICs(model func(lab.Node) lab.NICModel) {
	u.change(func(l *lab.Lab) {
		for i, n := range l.Nodes {
			l.Nodes[i].NIC = model(n)
		}
	})
}

func (u *upRun) change(do func(*lab.Lab)) {
	l := *u.Lab
	l.Nodes = slices.Clone(l.Nodes)
	do(&l)
	u.Lab, u.State.Lab = &l, &l
}

func arch(l *lab.Lab) string { return cmp.Or(string(l.Arch), runtime.GOARCH) }

// decideNICs fills in open NIC models. Running nodes keep theirs.
func (u *upRun) decideNICs(old *rack.State) {
	running := make(map[string]lab.NICModel)
	if old != nil {
		for _, n := range old.Lab.Nodes {
			running[n.Name] = cmp.Or(n.NIC, lab.NICVirtio) // of a version without adapters
		}
	}
	u.setNICs(func(n lab.Node) lab.NICModel {
		if n.NIC != lab.NICAuto {
			return n.NIC
		}
		return cmp.Or(running[n.Name], lab.NICConnectX4Lx)
	})
}

// chooseEmulator chooses NIC models and a QEMU for them: for ConnectX adapters the installed one if capable, or else
// one in the cache. Without either it reports why, and nodes get virtio NICs.
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
		if u.Lab.HasGPUs() {
			return fmt.Errorf("lab %s: its GPUs need a ConnectX beside them: %w", u.Lab.Name, why)
		}
		if slices.ContainsFunc(u.Lab.Nodes, func(n lab.Node) bool { return n.NUMANodes() > 0 }) {
			return fmt.Errorf("lab %s: its NICs in NUMA nodes are ConnectX: %w", u.Lab.Name, why)
		}
		u.progress.Note("the nodes have virtio NICs with soft RoCE instead of a ConnectX: %v", why)
		u.setNICs(func(lab.Node) lab.NICModel { return lab.NICVirtio })
	}
	return nil
}

// prepare runs before any change of a running lab, because it takes longest and fails most often, for lack of memory,
// of a network for packages, or of a QEMU.
func (u *upRun) prepare(ctx context.Context, old *rack.State) error {
	p := u.progress
	if u.emulatorErr != nil {
		return u.emulatorErr
	}
	// Running nodes have their memory.
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

// ensureImages always makes the built-in one, which shows whether KVM works.
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

// noteProfiles reports modelled rates, because measurements show them.
func (u *upRun) noteProfiles() {
	profiles := lists.Map(u.Lab.Nodes, func(n lab.Node) lab.ProfileName { return n.Profile })
	slices.Sort(profiles)
	for _, name := range slices.Compact(profiles) {
		if p, ok := lab.ProfileOf(name); ok {
			u.progress.Note("profile %s: rates between NICs and GPUs are modelled: %s", name, p.RateText())
		}
	}
}

// noteKernels says which kernel the nodes with GPUs for vfio-pci have, as it is not that of their release.
func (u *upRun) noteKernels() {
	for _, n := range u.Lab.Nodes {
		if img := u.images[n.Image]; n.HasVFIO() && img != nil {
			u.progress.Note("image %s: kernel %s, of the backports of Debian, with an IOMMU (%s)", n.Image,
				img.KernelVer, strings.TrimSpace(image.IOMMUArg))
			return
		}
	}
}

func (u *upRun) spec(n lab.Node) qemu.Spec {
	s := qemu.Spec{Lab: u.Lab.Name, Name: n.Name, Dir: u.NodeDir(n.Name), CPUs: n.CPUs, Memory: int64(n.Memory),
		Adapters: n.ConnectX(), GPUs: gpusOf(u.Dir, n), NUMANodes: n.NUMANodes()}
	if n.HasDisk() {
		s.Image = u.images[n.Image]
	}
	if u.Lab.HomeOf(n) == lab.HomeShared {
		s.Home = u.home
	}
	for i, nic := range n.NICs {
		made := qemu.NIC{MAC: nic.MAC, Socket: portOf(u.Dir, n.Name, i).Path}
		if n.ConnectX() {
			made = qemu.NIC{MAC: nic.MAC, Adapter: adapterSocket(u.Dir, n.Name, i), Model: string(n.NIC),
				NUMA: n.NUMANodeOf(i)}
		}
		s.NICs = append(s.NICs, made)
	}
	return s
}

// reconcile applies the difference between the lab's old state, or nil, and the requested one. It saves the state
// before anything is started and after each node, so that the next rackless knows which processes may exist if this one
// is killed.
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
	// If this process is killed here, the next Up ends them as strays.
	if len(drop) > 0 {
		p.Begin("stop nodes")
		for _, n := range drop {
			if why := u.lost[n.Name]; why != "" && n.Process.Alive() {
				p.Note("node %s has lost its ConnectX or a GPU, as %s: it is started again", n.Name, why)
			}
			if err := n.Process.Kill(ctx); err != nil {
				return err
			}
		}
	}
	// The state was saved, so other processes belong to no node.
	if err := u.stopStrays(ctx); err != nil {
		return err
	}
	// A recreated node must not find old sockets and logs.
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
	moved := slices.ContainsFunc(u.changes, func(c lab.Change) bool { return c.Key == lab.KeyTopology })
	if moved && u.State.Daemon != nil {
		if err := u.State.Daemon.Kill(ctx); err != nil { // its switches are others, and no node runs
			return err
		}
	}
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

// sort drops nodes that the lab no longer has, that must be recreated, or that have died.
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
		if wanted && !recreate[n.Name] && n.Process.Alive() && u.lost[n.Name] == "" {
			keep = append(keep, n)
		} else {
			drop = append(drop, n)
		}
	}
	return keep, drop
}

// stopStrays ends processes that a rackless, killed meanwhile, has started but not recorded.
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

// ensureDaemon does not restart a running daemon, which gets the requested ports: the links of all nodes would go down
// with the switch.
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
	// Nodes that are started find their ports. If a NIC gets another model or address, its port changes. The daemon of
	// an older rackless knows no address.
	same := func(h fabric.PortCounters, w fabric.Port) bool {
		return h.Name == w.Name && h.Rate == w.Rate && (h.MAC == w.MAC || h.MAC == "") &&
			(h.Switch == "" || h.Switch == fabric.LeafName(w.Leaf))
	}
	for _, h := range have.Ports {
		if h.Peer != "" || strings.HasPrefix(h.Name, serve.OutsidePort) { // between switches; of rackless nic serve
			continue
		}
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

// undoLimit is for stopping nodes, a fraction of a second.
const undoLimit = 30 * time.Second

// undo stops the nodes that this Up has started. Dropped nodes are not restored: they had died or had to be recreated.
func (u *upRun) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	errs := lists.Map(u.started, func(n vm.Process) error { return n.Kill(ctx) })
	u.State.Nodes = slices.DeleteFunc(u.State.Nodes, func(n *rack.Node) bool {
		return slices.Contains(u.started, n.Process)
	})
	return errors.Join(append(errs, u.Save())...)
}
