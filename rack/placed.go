package rack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/driver/libvirt"
	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
	"github.com/rackless/rackless/vm"
)

// DefaultURI is the libvirt of this machine.
const DefaultURI = "qemu:///system"

// A Placement is where the nodes of a lab go on a host, as domains of libvirt. It is kept with the lab.
type Placement struct {
	URI  string         `json:"uri"` // of libvirt
	Plan *plan.Plan     `json:"plan"`
	Host *topology.Host `json:"host"` // that the plan was made for
}

// libvirtLogs is where libvirt of a system keeps the logs of its domains, and where it may write.
const libvirtLogs = "/var/log/libvirt/qemu"

// Logs returns the files with what QEMU said of a node that is placed on this host, and with what
// the node's console printed.
func (r *Rack) Logs(node string) (qemu, console string) {
	return filepath.Join(libvirtLogs, render.DomainName(r.Lab.Name, node)+".log"), render.ConsolePath(libvirtLogs,
		r.Lab.Name, node)
}

// driverLibvirt is what State.Driver says of labs that are placed on a host.
const driverLibvirt = "libvirt"

// Placed reports whether the nodes are domains of libvirt on a host, with its devices; else they
// are emulated and on a switch of the lab's own.
func (s *State) Placed() bool { return s.Driver == driverLibvirt }

func placementFile(dir string) string { return filepath.Join(dir, "placement.json") }

// Placement returns where the lab's nodes are; an error for a lab that is not placed on a host.
func (r *Rack) Placement() (*Placement, error) {
	data, err := os.ReadFile(placementFile(r.Dir))
	if err != nil {
		return nil, fmt.Errorf("where lab %s is placed: %w", r.Lab.Name, err)
	}
	p := &Placement{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", placementFile(r.Dir), err)
	}
	if p.Host == nil || p.Plan == nil {
		return nil, fmt.Errorf("%s: no plan or no host in it", placementFile(r.Dir))
	}
	p.Host.Complete()
	return p, nil
}

// Libvirt returns the connection to the libvirt that has the lab's nodes, which Close ends.
func (r *Rack) Libvirt(ctx context.Context) (*libvirt.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.libvirt(ctx)
}

func (r *Rack) libvirt(ctx context.Context) (*libvirt.Conn, error) {
	if r.virt != nil {
		return r.virt, nil
	}
	c, err := libvirt.Connect(ctx, r.State.URI)
	if err != nil {
		return nil, err
	}
	r.virt = c
	return c, nil
}

// A placer is one run of Up for a lab that is placed on a host.
type placer struct {
	dirs     Dirs
	lab      *lab.Lab
	opts     Options
	progress *Progress
	place    *Placement
	conn     *libvirt.Conn
	state    *State
	input    render.Input
}

// upPlaced leads a lab to what its plan says, as domains of libvirt. The caller holds the lab's lock.
func upPlaced(ctx context.Context, d Dirs, l *lab.Lab, opts Options, old *State, p *Progress) (r *Rack, err error) {
	if old != nil && !old.Placed() {
		return nil, fmt.Errorf("lab %s runs emulated: rackless down %s first", l.Name, l.Name)
	}
	u := &placer{dirs: d, lab: l, opts: opts, progress: p, place: opts.Place}
	r, err = u.up(ctx, old)
	if err != nil && r != nil {
		err = errors.Join(err, r.Close())
	}
	if err != nil && old == nil {
		// The caller may have been interrupted; cleaning up must go on all the same.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), placedDownLimit)
		defer cancel()
		err = errors.Join(err, d.remove(undo, l.Name))
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (u *placer) up(ctx context.Context, old *State) (r *Rack, err error) {
	p := u.progress
	p.Begin("libvirt")
	if u.conn, err = libvirt.Connect(ctx, u.place.URI); err != nil {
		return nil, err
	}
	unlock, err := u.dirs.lock(ctx, imagesLock, nil)
	if err != nil {
		return nil, errors.Join(err, u.conn.Close())
	}
	defer func() { unlock() }()
	specs, err := u.specs(ctx)
	if err != nil {
		return nil, errors.Join(err, u.conn.Close())
	}
	dir := u.dirs.lab(u.lab.Name)
	if err := u.save(dir, old); err != nil {
		return nil, errors.Join(err, u.conn.Close())
	}
	r = newRack(u.dirs, u.state)
	r.virt = u.conn
	p.Begin("domains")
	p.Count(0, len(specs))
	changes, err := u.conn.Up(ctx, specs, libvirt.UpOptions{Recreate: u.opts.Recreate,
		Progress: func(name string, a libvirt.Action) {
			p.Note("%s: %s", name, a)
		}})
	if err != nil {
		return r, err
	}
	unlock()
	unlock = func() {}
	for _, c := range changes {
		for _, line := range c.Diff {
			p.Note("%s: %s", c.Name, line)
		}
	}
	p.Count(len(specs), len(specs))
	if err := u.configure(ctx, r, changes, old); err != nil {
		return r, err
	}
	u.state.Ready = true
	if err := u.dirs.save(u.state); err != nil {
		return r, err
	}
	p.End(nil)
	// The addresses that cards have burned in are known only now.
	r.Lab = u.state.seen()
	return r, nil
}

// specs makes the domains, and what they boot from.
func (u *placer) specs(ctx context.Context) ([]libvirt.Spec, error) {
	u.state = &State{
		Version: stateVersion, Lab: u.lab, Driver: driverLibvirt, URI: u.place.URI, QEMU: u.conn.Caps.QEMU,
		Created:      time.Now().UTC(),
		EmulatedHost: u.place.Host.System.Vendor == topology.VendorEmulated,
	}
	img, err := u.image(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.accelerator(ctx, img); err != nil {
		return nil, err
	}
	u.input = render.Input{
		Plan: u.place.Plan, Lab: u.lab, Host: u.place.Host, Emulated: u.state.Accel == "tcg",
		Made: fmt.Sprintf("Made by rackless up for lab %s.", u.lab.Name),
	}
	if u.conn.Local() && strings.HasSuffix(u.place.URI, "/system") {
		u.input.ConsoleDir = libvirtLogs
	}
	if !u.ownImages() {
		u.state.Image, u.state.Kernel, u.state.Package = img.Key, img.KernelVer, img.Packages
		if u.input.Boot, err = u.conn.Install(ctx, img); err != nil {
			return nil, err
		}
	}
	artifacts, err := render.Domains(u.input)
	if err != nil {
		return nil, err
	}
	specs := make([]libvirt.Spec, len(artifacts))
	for i, a := range artifacts {
		specs[i] = libvirt.Spec{Name: render.DomainName(u.lab.Name, u.lab.Nodes[i].Name), XML: a.Data}
	}
	return specs, nil
}

// accelerator decides what executes the nodes. Of this machine's KVM a boot tells whether it works,
// of another machine's only libvirt.
func (u *placer) accelerator(ctx context.Context, img *guest.Image) (err error) {
	s := u.state
	if !u.conn.Local() {
		s.Accel = "kvm"
		if !u.conn.Caps.KVM || u.opts.Accel == "tcg" {
			s.Accel, s.Emulate = "tcg", cmp.Or(map[bool]string{true: "asked for"}[u.opts.Accel == "tcg"],
				"libvirt at "+u.place.URI+" offers no KVM")
		}
		return nil
	}
	u.progress.Begin("accelerator")
	binary, version, err := qemu.Find()
	if err != nil {
		return err
	}
	if err := u.dirs.ensureRun(); err != nil {
		return err
	}
	// Kept with the labs that run: the cache of an emulated host is on a disk that cannot be
	// written, and a boot forgets what was found in either.
	d := &qemu.Driver{Binary: binary, Version: version, Image: img, EmulatedHost: s.EmulatedHost}
	s.Accel, s.Emulate, err = accelerator(ctx, d, u.opts.Accel, u.dirs.Run)
	return err
}

// ownImages reports whether nodes boot disks of the user.
func (u *placer) ownImages() bool {
	return slices.ContainsFunc(u.lab.Nodes, func(n lab.Node) bool { return n.Image != lab.DefaultImage })
}

// image returns the built-in image, which nodes boot, or the trial of KVM; nil where neither does.
func (u *placer) image(ctx context.Context) (*guest.Image, error) {
	if u.ownImages() && !u.conn.Local() {
		return nil, nil
	}
	p := u.progress
	p.Begin("image")
	return guest.Ensure(ctx, guest.Options{Cache: u.dirs.images(), Kernel: u.opts.Kernel, Progress: func(s string) {
		p.Note("%s", s)
	}})
}

// save writes what there is going to be before anything is started, so that down finds it whatever happens.
func (u *placer) save(dir string, old *State) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(u.place)
	if err != nil {
		return err
	}
	if err := os.WriteFile(placementFile(dir), data, 0o600); err != nil {
		return err
	}
	if old != nil {
		u.state.Created = old.Created
		u.state.Nodes = slices.DeleteFunc(old.Nodes, func(n *Node) bool {
			return !slices.ContainsFunc(u.lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })
		})
	}
	return u.dirs.save(u.state)
}

// configure waits for the guests that have been started, and tells each who it is.
func (u *placer) configure(ctx context.Context, r *Rack, changes []libvirt.Change, old *State) error {
	var work []lab.Node
	for i, n := range u.lab.Nodes {
		have, ok := u.state.node(n.Name)
		if changes[i].Action != libvirt.Keep || !ok || !have.Ready {
			work = append(work, n)
		}
	}
	u.progress.Begin("nodes")
	u.progress.Count(0, len(work))
	done := 0
	results := make([]*Node, len(u.lab.Nodes))
	err := each(ctx, work, len(work), func(ctx context.Context, n lab.Node) error {
		node, err := u.bring(ctx, r, n)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		results[slices.IndexFunc(u.lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })] = node
		done++
		u.progress.Count(done, len(work))
		return nil
	})
	for _, node := range results {
		if node != nil {
			u.state.put(node)
		}
	}
	u.state.order()
	return errors.Join(err, u.dirs.save(u.state))
}

// placedLimit bounds the time until a node that was started has been configured: a large guest with
// all of its memory in hugepages boots in a minute, and one that is emulated in an emulated host in
// ten.
const placedLimit = 20 * time.Minute

// placedDownLimit bounds the end of a lab on a host. Hugepages are given back quickly; devices are
// reset, which takes seconds each.
const placedDownLimit = 5 * time.Minute

// restartAfter is when a guest of an emulated host that does not answer is started anew, once: five
// times as long as guests there take on a machine that does nothing else.
const restartAfter = 8 * time.Minute

// awaitAgent waits for the guest of a domain that was started. QEMU can lose interrupts of an
// emulated host, and a guest under that host's KVM was seen to stand still in its boot
// (docs/performance.md): it is started anew.
func (u *placer) awaitAgent(ctx context.Context, node, domain string) (*guest.Agent, error) {
	if !u.state.EmulatedHost || u.state.Accel != "kvm" {
		return u.conn.AwaitAgent(ctx, domain)
	}
	patient, cancel := context.WithTimeout(ctx, restartAfter)
	defer cancel()
	agent, err := u.conn.AwaitAgent(patient, domain)
	if err == nil || ctx.Err() != nil || patient.Err() == nil {
		return agent, err
	}
	u.progress.Note("%s has not answered for %v: it is started anew (%v)", node, restartAfter, err)
	if err := u.conn.Restart(ctx, domain); err != nil {
		return nil, err
	}
	return u.conn.AwaitAgent(ctx, domain)
}

func (u *placer) bring(ctx context.Context, r *Rack, n lab.Node) (*Node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, placedLimit, fmt.Errorf("node %s did not answer within %v", n.Name,
		placedLimit))
	defer cancel()
	name := render.DomainName(u.lab.Name, n.Name)
	node := &Node{MachineID: guest.NewMachineID(), Node: qemu.Node{Name: n.Name, Accelerator: u.state.Accel,
		Started: time.Now().UTC(), ColdReason: "nodes on a host boot"}}
	ports, err := render.Ports(u.input, n.Name)
	if err != nil {
		return nil, err
	}
	id := guest.Identity{Name: n.Name, MachineID: node.MachineID, MTU: u.lab.Fabric.MTU}
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
			tail = logTail(render.ConsolePath(u.input.ConsoleDir, u.lab.Name, n.Name))
		}
		return nil, fmt.Errorf("node %s: %w%s", n.Name, err, tail)
	}
	node.Facts, err = agent.Configure(ctx, id)
	if err = errors.Join(err, agent.Close()); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := u.awaitGIDs(ctx, r, n, node); err != nil {
		return nil, err
	}
	if threads, err := u.conn.Threads(ctx, name); err == nil && threads.PID > 0 {
		if proc, err := vm.FindProcess(threads.PID); err == nil {
			node.Process = proc
		}
	}
	node.Ready = true
	return node, nil
}

// awaitGIDs waits until each address has its RoCE v2 GID, on whichever RDMA device the NIC has.
func (u *placer) awaitGIDs(ctx context.Context, r *Rack, n lab.Node, node *Node) error {
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s: no RoCE v2 GID for %s appeared: is its link up? %w", n.Name, missing,
				context.Cause(ctx))
		case <-time.After(time.Second):
		}
		var err error
		if node.Facts, err = r.Facts(ctx, n.Name); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
}

// seen returns the lab with the addresses that its NICs have: those of cards that are passed
// through are burned in, and no file says them.
func (s *State) seen() *lab.Lab {
	if !s.Placed() {
		return s.Lab
	}
	l := *s.Lab
	l.Nodes = slices.Clone(l.Nodes)
	for i := range l.Nodes {
		n := &l.Nodes[i]
		node, ok := s.node(n.Name)
		if !ok || node.Facts == nil {
			continue
		}
		n.NICs = slices.Clone(n.NICs)
		for k := range n.NICs {
			if dev := node.Facts.Net[n.NICs[k].Name]; dev != nil && dev.MAC != "" {
				n.NICs[k].MAC = dev.MAC
			}
		}
	}
	return &l
}

// domains returns the names of the lab's domains.
func (s *State) domains() []string {
	names := make([]string, len(s.Lab.Nodes))
	for i, n := range s.Lab.Nodes {
		names[i] = render.DomainName(s.Lab.Name, n.Name)
	}
	return names
}

// removePlaced ends the domains of a lab. Its nodes are in memory alone, so that there is nothing
// to shut down cleanly; those of a disk image are asked first.
func (d Dirs) removePlaced(ctx context.Context, s *State) error {
	c, err := libvirt.Connect(ctx, s.URI)
	if err != nil {
		return err
	}
	grace := 30 * time.Second
	if s.Image != "" {
		grace = 0
	}
	err = c.Down(ctx, s.domains(), grace)
	if err == nil && s.Image != "" {
		err = d.removeImages(ctx, c)
	}
	return errors.Join(err, c.Close())
}

// imagesLock is held by who installs an image at libvirt, until its domains are defined, and by who
// removes images that no domain boots. No lab has the name.
const imagesLock = "libvirt.images"

// removeImages removes what up has given libvirt, if this was the last lab.
func (d Dirs) removeImages(ctx context.Context, c *libvirt.Conn) error {
	unlock, err := d.lock(ctx, imagesLock, nil)
	if err != nil {
		return err
	}
	defer unlock()
	return c.Uninstall(ctx)
}

// placedState is what a domain of libvirt is doing, in this package's words.
func placedState(ctx context.Context, c *libvirt.Conn, name string) (vm.State, error) {
	d, err := c.Get(ctx, name)
	switch {
	case errors.Is(err, libvirt.ErrNoDomain):
		return vm.Dead, nil
	case err != nil:
		return "", err
	case !d.State.Active():
		return vm.Dead, nil
	case d.State == libvirt.Paused || d.State == libvirt.PMSuspended:
		return vm.Paused, nil
	}
	return vm.Running, nil
}
