package placed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/libvirt"
	"github.com/rackless/rackless/vm/qemu"
)

// An upRun is one run of Up.
type upRun struct {
	*rack.Rack
	opts     rack.Options
	progress *rack.Progress
	conn     *libvirt.Conn
	input    render.Input

	answered atomic.Int64 // nanoseconds that the first guest took to answer; 0: none has
}

// Up implements rack.Runtime. The plan is rendered as domains, which package libvirt compares with
// those that are there: it starts what is missing and changes nothing that is as planned. Then each
// guest that was started is told through its agent who it is.
func (p *placedLab) Up(ctx context.Context, old *rack.State, o rack.Options, progress *rack.Progress) error {
	progress.Begin("libvirt")
	p.State.URI = o.Place.URI
	conn, err := p.libvirt(ctx)
	if err != nil {
		return err
	}
	u := &upRun{Rack: p.Rack, opts: o, progress: progress, conn: conn}
	changes, err := u.define(ctx, old)
	if err != nil {
		return err
	}
	for _, c := range changes {
		for _, line := range c.Diff {
			progress.Note("%s: %s", c.Name, line)
		}
	}
	progress.Count(len(changes), len(changes))
	if err := u.startNodes(ctx, changes); err != nil {
		return err
	}
	u.State.Ready = true
	if err := u.Save(); err != nil {
		return err
	}
	progress.End(nil)
	return nil
}

// define makes the domains run. It holds the lock of the images meanwhile: an image that no domain
// boots yet would be removed by a `down` of the last other lab.
func (u *upRun) define(ctx context.Context, old *rack.State) ([]libvirt.Change, error) {
	unlock, err := rack.Lock(ctx, u.Dirs, imagesLock, nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	specs, err := u.specs(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.record(old); err != nil {
		return nil, err
	}
	u.progress.Begin("domains")
	u.progress.Count(0, len(specs))
	return u.conn.Up(ctx, specs, libvirt.UpOptions{Recreate: u.opts.Recreate,
		Progress: func(name string, a libvirt.Action) { u.progress.Note("%s: %s", name, a) }})
}

// specs renders the domains, and gives libvirt the image that they boot from. The console of a node
// is logged where a system's libvirt may write; that of a user's session has no such place that
// others could find again.
func (u *upRun) specs(ctx context.Context) ([]libvirt.Spec, error) {
	s := u.State
	s.QEMU, s.EmulatedHost = u.conn.Caps.QEMU, u.opts.Place.Host.System.Vendor == topology.VendorEmulated
	img, err := u.image(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.accelerator(ctx, img); err != nil {
		return nil, err
	}
	u.input = render.Input{
		Plan: u.opts.Place.Plan, Lab: u.State.Lab, Host: u.opts.Place.Host, Emulated: u.State.Accel == "tcg",
		Made: fmt.Sprintf("Made by rackless up for lab %s.", u.Lab.Name),
	}
	if u.conn.Local() && strings.HasSuffix(u.opts.Place.URI, "/system") {
		u.input.ConsoleDir = libvirtLogs
	}
	if u.ownImages() {
		err = u.seeds(ctx)
	} else {
		u.State.Image, u.State.Kernel, u.State.Package = img.Key, img.KernelVer, img.Packages
		u.input.Boot, err = u.conn.Install(ctx, img)
	}
	if err != nil {
		return nil, err
	}
	artifacts, err := render.Domains(u.input)
	if err != nil {
		return nil, err
	}
	specs := make([]libvirt.Spec, len(artifacts))
	for i, a := range artifacts {
		specs[i] = libvirt.Spec{Name: lab.VMName(u.Lab.Name, u.State.Lab.Nodes[i].Name), XML: a.Data}
	}
	return specs, nil
}

// seeds gives libvirt a disk for each node, by which cloud-init makes the user's system the node of the plan.
func (u *upRun) seeds(ctx context.Context) error {
	u.progress.Begin("seeds")
	common, err := image.Seeds.Ensure(ctx, image.Options{Cache: u.Dirs.Images(), Progress: u.progress.Say,
		Watch: u.progress.Watch})
	if err != nil {
		return err
	}
	seeds, err := render.Seeds(u.input, true)
	if err == nil {
		err = os.MkdirAll(u.Dir, 0o700)
	}
	u.input.Seeds = make(map[string]string)
	for i, s := range seeds {
		node := u.input.Plan.Nodes[i].Name
		name := lab.VMName(u.Lab.Name, node) + "-seed.iso"
		file := filepath.Join(u.Dir, name)
		if err == nil {
			err = common.WriteSeed(file, map[string][]byte{"meta-data": []byte(s.MetaData),
				"network-config": []byte(s.NetworkConfig), "user-data": []byte(s.UserData)})
		}
		if err == nil {
			u.input.Seeds[node], err = u.conn.InstallSeed(ctx, name, file)
		}
	}
	return err
}

// accelerator decides what executes the nodes. Of this machine's KVM a boot tells whether it works,
// of another machine's only libvirt.
func (u *upRun) accelerator(ctx context.Context, img *image.Image) (err error) {
	s := u.State
	if !u.conn.Local() {
		s.Accel = "kvm"
		if !u.conn.Caps.KVM || u.opts.Accel == "tcg" {
			s.Accel, s.Emulate = "tcg", cmp.Or(map[bool]string{true: "asked for"}[u.opts.Accel == "tcg"],
				"libvirt at "+u.opts.Place.URI+" offers no KVM")
		}
		return nil
	}
	u.progress.Begin("accelerator")
	binary, version, err := vm.Find()
	if binary == "" { // one that is too old for emulated nodes is good for the trial
		return err
	}
	// Kept with the labs that run: the cache may be on a disk that cannot be written, and a boot forgets what was
	// found in either.
	d := &qemu.Driver{Binary: binary, Version: version, Image: img}
	s.Accel, s.Emulate, err = rack.Accelerator(u.opts.Accel, func() (bool, string, error) {
		if s.EmulatedHost { // its KVM is known, where it has one, and a trial boot there takes half a minute
			usable, reason := vm.OpensKVM()
			return usable, reason, nil
		}
		return d.ProbeKVM(ctx, u.Dirs.Run)
	})
	return err
}

// ownImages reports whether nodes boot disks of the user.
func (u *upRun) ownImages() bool {
	return slices.ContainsFunc(u.State.Lab.Nodes, func(n lab.Node) bool { return n.Image != lab.DefaultImage })
}

// image returns the built-in image, which nodes boot, or the trial of KVM; nil where neither does.
func (u *upRun) image(ctx context.Context) (*image.Image, error) {
	// Neither a node nor a trial of this machine's KVM would boot it.
	if u.ownImages() && !u.conn.Local() {
		return nil, nil
	}
	p := u.progress
	p.Begin("image")
	return image.Node.Ensure(ctx, image.Options{Cache: u.Dirs.Images(), Kernel: u.opts.Kernel, Progress: p.Say,
		Watch: p.Watch})
}

// record writes what there is going to be before anything is started, so that down finds it whatever
// happens. Nodes that the lab no longer has are forgotten.
func (u *upRun) record(old *rack.State) error {
	if err := os.MkdirAll(u.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(placementFile(u.Dir), u.opts.Place); err != nil {
		return err
	}
	if old != nil {
		u.State.Nodes = slices.DeleteFunc(old.Nodes, func(n *rack.Node) bool {
			return !slices.ContainsFunc(u.State.Lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })
		})
	}
	return u.Save()
}

// startNodes waits for the guests that have been started, and tells each who it is. All at once: they
// boot on CPUs of their own.
func (u *upRun) startNodes(ctx context.Context, changes []libvirt.Change) error {
	var work []lab.Node
	// A node that was never configured is told again, although its domain is as planned.
	for i, n := range u.State.Lab.Nodes {
		if have, ok := u.State.Node(n.Name); changes[i].Action != libvirt.Keep || !ok || !have.Ready {
			work = append(work, n)
		}
	}
	return u.StartNodes(ctx, work, len(work), u.progress, u.configureNode)
}

// nodeLimit bounds the time until a node that was started has been configured: a large guest with
// all of its memory in hugepages boots in a minute, and one that is emulated in an emulated host in
// ten.
const nodeLimit = 20 * time.Minute

// restartAfter is when a guest of an emulated host that does not answer is started again: five times as long as guests
// there take on a machine that does nothing else. One that takes far longer than another node of its lab stands still,
// too (overdue). restarts is how often: what stands still in seven boots has another reason.
const (
	restartAfter = 8 * time.Minute
	restarts     = 6
)

// overdue reports whether a guest has been waited for too long, where another one, on the same busy machine, took that
// long to answer; 0 where none has answered.
func overdue(waited, other time.Duration) bool {
	return waited > restartAfter || other > 0 && waited > 2*other+30*time.Second
}

// awaitAgent waits for the guest of a domain that was started. A guest under an emulated host's KVM that gets an
// interrupt twice can stand still in its boot (docs/emulate.md). Since its ends of interrupts are exits this is rare,
// and not impossible: it is then started again, at once where its console says so.
func (u *upRun) awaitAgent(ctx context.Context, node, domain string) (*guest.Agent, error) {
	if !u.State.EmulatedHost || u.State.Accel != "kvm" {
		return u.conn.AwaitAgent(ctx, domain)
	}
	for range restarts {
		began := time.Now()
		patient, stop := context.WithCancelCause(ctx)
		go func() { stop(u.standsStill(patient, node)) }()
		agent, err := u.conn.AwaitAgent(patient, domain)
		still := context.Cause(patient) // before it is stopped
		stop(nil)
		if err == nil {
			u.answered.CompareAndSwap(0, int64(time.Since(began)))
		}
		if err == nil || ctx.Err() != nil || still == nil {
			return agent, err
		}
		u.progress.Note("%s %v: it is restarted (%v)", node, still, err)
		if err := u.conn.Restart(ctx, domain); err != nil {
			return nil, err
		}
	}
	return u.conn.AwaitAgent(ctx, domain)
}

// standsStill waits until a guest has not answered for too long, or its console reports a lockup, and returns which.
func (u *upRun) standsStill(ctx context.Context, node string) error {
	console := ""
	if u.input.ConsoleDir != "" {
		console = render.ConsolePath(u.input.ConsoleDir, u.Lab.Name, node)
	}
	var old int64 // what it said before
	if fi, err := os.Stat(console); err == nil {
		old = fi.Size()
	}
	began := time.Now()
	for wait.For(ctx, 5*time.Second) == nil {
		if lockedUp(console, old) {
			return errors.New("has CPUs that stand still, as its console says")
		}
		waited, other := time.Since(began).Round(time.Second), time.Duration(u.answered.Load())
		if overdue(waited, other) {
			return fmt.Errorf("has not answered for %v", waited)
		}
	}
	return nil
}

// lockedUp reports whether the kernel wrote into its console, behind the first bytes, that a CPU stands still: it looks
// for that itself, every few seconds (kernel/watchdog.c).
func lockedUp(console string, behind int64) bool {
	f, err := os.Open(console)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, behind, 1<<20))
	return err == nil && bytes.Contains(text, []byte("watchdog: BUG: soft lockup - CPU#"))
}

// configureNode waits for the guest of a node and tells it who it is.
func (u *upRun) configureNode(ctx context.Context, n lab.Node) (*rack.Node, error) {
	limit := cmp.Or(u.opts.NodeLimit, nodeLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("node %s did not answer within %v", n.Name, limit))
	defer cancel()
	name := lab.VMName(u.Lab.Name, n.Name)
	node := &rack.Node{Name: n.Name, MachineID: guest.NewMachineID(), Accelerator: u.State.Accel,
		Started: time.Now().UTC(), ColdReason: "nodes on a host boot"}
	ports, err := render.Ports(u.input, n.Name)
	if err != nil {
		return nil, err
	}
	id := guest.Identity{Name: n.Name, MachineID: node.MachineID, MTU: u.Lab.Fabric.MTU, Hosts: u.Lab.HostNames()}
	for _, port := range ports {
		nic := guest.NIC{Device: port.Name, Path: port.Path, MAC: port.MAC, Addr: port.Addr}
		if port.OwnMAC {
			nic.MAC = ""
		}
		id.NICs = append(id.NICs, nic)
	}
	agent, err := u.awaitAgent(ctx, n.Name, name)
	if err != nil {
		tail := ""
		if u.input.ConsoleDir != "" {
			tail = rack.ConsoleTail(render.ConsolePath(u.input.ConsoleDir, u.Lab.Name, n.Name))
		}
		return nil, fmt.Errorf("node %s: %w%s", n.Name, err, tail)
	}
	node.Facts, err = agent.Configure(ctx, id)
	if err = errors.Join(err, agent.Close()); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := u.AwaitGIDs(ctx, n, node, time.Second); err != nil {
		return nil, err
	}
	// On another machine, and where /proc hides the processes of others, the node has no process here.
	if threads, err := u.conn.Threads(ctx, name); err == nil && threads.PID > 0 {
		if proc, err := vm.FindProcess(threads.PID); err == nil {
			node.Process = proc
		}
	}
	node.Ready = true
	return node, nil
}
