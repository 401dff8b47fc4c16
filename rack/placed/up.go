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

type upRun struct {
	*rack.Rack
	opts     rack.Options
	progress *rack.Progress
	conn     *libvirt.Conn
	input    render.Input

	answered atomic.Int64 // of the first guest, in nanoseconds; 0 before
}

// Up implements rack.Runtime. Package libvirt leaves unchanged domains alone; each started guest gets its identity
// through its agent.
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

// define holds the lock of the images, or a `down` of the last other lab would remove an image that no domain boots
// yet.
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

// specs logs consoles in the directory of a system's libvirt; a user session has no place that other processes could
// find.
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

// accelerator tests this machine's KVM by a trial boot; for another machine, libvirt's capabilities decide.
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
	if binary == "" { // an old version suffices for the trial
		return err
	}
	// The cache may be on a read-only disk, and a reboot invalidates the result.
	d := &qemu.Driver{Binary: binary, Version: version, Image: img}
	s.Accel, s.Emulate, err = rack.Accelerator(u.opts.Accel, func() (bool, string, error) {
		if s.EmulatedHost { // KVM is known there, and a trial takes half a minute
			usable, reason := vm.OpensKVM()
			return usable, reason, nil
		}
		return d.ProbeKVM(ctx, u.Dirs.Run)
	})
	return err
}

func (u *upRun) ownImages() bool {
	return slices.ContainsFunc(u.State.Lab.Nodes, func(n lab.Node) bool { return n.Image != lab.DefaultImage })
}

// image is nil if neither nodes nor the trial of KVM boot it.
func (u *upRun) image(ctx context.Context) (*image.Image, error) {
	if u.ownImages() && !u.conn.Local() {
		return nil, nil
	}
	p := u.progress
	p.Begin("image")
	return image.Node.Ensure(ctx, image.Options{Cache: u.Dirs.Images(), Kernel: u.opts.Kernel, Progress: p.Say,
		Watch: p.Watch})
}

// record writes the intended state before anything is started, so that down finds everything, and removes nodes that
// the lab no longer has.
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

// startNodes works on all at once: they boot on separate CPUs.
func (u *upRun) startNodes(ctx context.Context, changes []libvirt.Change) error {
	var work []lab.Node
	// A node that was never configured is configured again.
	for i, n := range u.State.Lab.Nodes {
		if have, ok := u.State.Node(n.Name); changes[i].Action != libvirt.Keep || !ok || !have.Ready {
			work = append(work, n)
		}
	}
	return u.StartNodes(ctx, work, len(work), u.progress, u.configureNode)
}

// nodeLimit is long: a large guest with its memory in hugepages boots in a minute, and one emulated in an emulated host
// in ten.
const nodeLimit = 20 * time.Minute

// restartAfter is the time after which a silent guest of an emulated host is restarted: five times the usual boot time
// on an idle machine. restarts limits that: a guest that hangs in seven boots has another problem.
const (
	restartAfter = 8 * time.Minute
	restarts     = 6
)

// overdue compares with another guest on the same busy machine; other is 0 if no guest has answered.
func overdue(waited, other time.Duration) bool {
	return waited > restartAfter || other > 0 && waited > 2*other+30*time.Second
}

// awaitAgent restarts a guest of an emulated host's KVM that hangs during boot, which is rare: it gets an interrupt
// twice (docs/emulate.md).
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

func (u *upRun) standsStill(ctx context.Context, node string) error {
	console := ""
	if u.input.ConsoleDir != "" {
		console = render.ConsolePath(u.input.ConsoleDir, u.Lab.Name, node)
	}
	var old int64 // size of the earlier output
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

// lockedUp looks for the kernel's report of a hanging CPU, which it checks every few seconds (kernel/watchdog.c).
func lockedUp(console string, behind int64) bool {
	f, err := os.Open(console)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, behind, 1<<20))
	return err == nil && bytes.Contains(text, []byte("watchdog: BUG: soft lockup - CPU#"))
}

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
	// On another machine, or if /proc hides it, the node has no process here.
	if threads, err := u.conn.Threads(ctx, name); err == nil && threads.PID > 0 {
		if proc, err := vm.FindProcess(threads.PID); err == nil {
			node.Process = proc
		}
	}
	node.Ready = true
	return node, nil
}
