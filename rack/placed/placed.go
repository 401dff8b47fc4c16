// Package placed runs labs on the devices of a host: each node is a domain of libvirt, on this
// machine or on another, with the CPUs, memory and cards that a plan gives it. It registers the
// driver "libvirt" at package rack.
//
// libvirt holds the nodes and shares their agents, so that there is no daemon of rackless; and the
// nodes are on the host's own NICs, so that there is no switch of rackless either.
package placed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/libvirt"
)

// DefaultURI is the libvirt of this machine.
const DefaultURI = "qemu:///system"

func init() {
	rack.Register(rack.Driver{
		Name:  string(lab.DriverLibvirt),
		Where: "on this host's devices",
		// Hugepages are given back quickly; devices are reset, which takes seconds each.
		DownLimit:  5 * time.Minute,
		NeedsPlace: true,
		Check:      supported,
		New:        func(r *rack.Rack) rack.Runtime { return &placedLab{Rack: r} },
	})
}

// supported refuses a /home that nodes share, and the images of full nodes: a node on a host boots the built-in image
// or a disk of the user.
func supported(l *lab.Lab) error {
	if l.Home == lab.HomeShared {
		return fmt.Errorf("lab %s: home: shared is for emulated nodes; on a host, let the nodes mount a file server",
			l.Name)
	}
	for _, n := range l.Nodes {
		if n.Full() {
			return fmt.Errorf("lab %s: node %s asks for image %s, which driver libvirt cannot make yet: "+
				"give the path of a disk image, or leave image out", l.Name, n.Name, n.Image)
		}
	}
	return nil
}

// A placedLab is the life of one lab that is placed on a host.
type placedLab struct {
	*rack.Rack
	conn rack.Conn[libvirt.Conn] // to State.URI
}

var _ rack.Hosted = (*placedLab)(nil)

// libvirt returns the connection to the libvirt that has the lab's nodes, which Close ends.
func (p *placedLab) libvirt(ctx context.Context) (*libvirt.Conn, error) {
	return p.conn.Open(func() (*libvirt.Conn, error) { return libvirt.Connect(ctx, p.State.URI) })
}

// Close ends the connection to libvirt.
func (p *placedLab) Close() error { return p.conn.Close((*libvirt.Conn).Close) }

// domain returns the name of a node's domain.
func (p *placedLab) domain(node string) string { return lab.VMName(p.Lab.Name, node) }

// NodeState is what the node's domain is doing, in the words of package vm.
func (p *placedLab) NodeState(ctx context.Context, n *rack.Node) (vm.State, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return "", err
	}
	d, err := c.Get(ctx, p.domain(n.Name))
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

// Agent reaches a node's agent through libvirt, which holds the agent's port: it serves one client, so
// that nothing else can connect to it.
func (p *placedLab) Agent(ctx context.Context, node string) (*guest.Agent, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return nil, err
	}
	return c.Agent(ctx, p.domain(node))
}

// Console returns an error that says how to open the console: libvirt holds it, also on other machines,
// and virsh is the client for it.
func (p *placedLab) Console(_ context.Context, n *rack.Node) (net.Conn, error) {
	return nil, fmt.Errorf("node %s is a domain of libvirt: virsh -c %s console %s", n.Name, p.State.URI,
		p.domain(n.Name))
}

// libvirtLogs is where libvirt of a system keeps the logs of its domains, and where it may write.
const libvirtLogs = "/var/log/libvirt/qemu"

// Logs are where libvirt keeps them.
func (p *placedLab) Logs(node string) rack.Logs {
	return rack.Logs{QEMU: filepath.Join(libvirtLogs, p.domain(node)+".log"),
		Console: render.ConsolePath(libvirtLogs, p.Lab.Name, node)}
}

// Switch returns an error: the NICs are the host's, and what is between them is not rackless'.
func (p *placedLab) Switch() (*fabric.Client, error) {
	return nil, fmt.Errorf("lab %s is on this host's own NICs: there is no switch of rackless between them", p.Lab.Name)
}

// SwitchState is always SwitchNone.
func (p *placedLab) SwitchState() rack.SwitchState { return rack.SwitchNone }

func placementFile(dir string) string { return filepath.Join(dir, "placement.json") }

// Placement reads where the lab was placed when it was last brought up.
func (p *placedLab) Placement() (*rack.Placement, error) {
	path := placementFile(p.Dir)
	place := &rack.Placement{}
	if err := atomicfile.ReadJSON(path, place); err != nil {
		return nil, fmt.Errorf("where lab %s is placed: %w", p.Lab.Name, err)
	}
	if place.Host == nil || place.Plan == nil {
		return nil, fmt.Errorf("%s: no plan or no host in it", path)
	}
	place.Host.Complete()
	return place, nil
}

// Local reports whether the domains are on this machine.
func (p *placedLab) Local(ctx context.Context) (bool, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return false, err
	}
	return c.Local(), nil
}

// Domains reads the domains of the lab, with the threads and the memory that the kernel has of them.
// Domains that are not defined are left out: for the checks they do not exist.
func (p *placedLab) Domains(ctx context.Context) ([]checks.Domain, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return nil, err
	}
	// Pins are those of the definitions in force, as inspect reads those of all virtual machines.
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		return nil, err
	}
	var all []checks.Domain
	for _, n := range p.Lab.Nodes {
		d, err := domainOf(ctx, c, n.Name, p.domain(n.Name))
		if errors.Is(err, libvirt.ErrNoDomain) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range h.Tenants {
			if t := &h.Tenants[i]; t.Name == d.Name {
				d.Definition = t
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// domainOf reads one domain.
func domainOf(ctx context.Context, c *libvirt.Conn, node, name string) (checks.Domain, error) {
	d := checks.Domain{Node: node, Name: name}
	have, err := c.Get(ctx, name)
	if err != nil {
		return d, err
	}
	d.State = string(have.State)
	if !have.State.Active() {
		return d, nil
	}
	threads, err := c.Threads(ctx, name)
	if err != nil {
		return d, err
	}
	d.PID, d.VCPUs, d.IOThreads = threads.PID, threads.VCPUs, threads.IOThreads
	// A process that cannot be looked at is a finding, not the end of all others.
	if p, err := inspect.ReadProcess(os.DirFS("/"), d.PID); err == nil {
		d.Process = p
	}
	return d, nil
}

// Down ends the domains of the lab. Nodes of the built-in image are in memory alone, so that there
// is nothing to shut down cleanly; those of a disk image are asked first.
func (p *placedLab) Down(ctx context.Context) error {
	c, err := p.libvirt(ctx)
	if err != nil {
		return err
	}
	// A guest that writes to a disk of its own gets time to end; no more than a person waits.
	grace := 30 * time.Second
	if p.State.Image != "" {
		grace = 0
	}
	names := make([]string, len(p.State.Lab.Nodes))
	for i, n := range p.State.Lab.Nodes {
		names[i] = p.domain(n.Name)
	}
	if err := c.Down(ctx, names, grace); err != nil {
		return err
	}
	// What up has given libvirt goes with its last lab.
	unlock, err := rack.Lock(ctx, p.Dirs, imagesLock, nil)
	if err != nil {
		return err
	}
	defer unlock()
	return c.Uninstall(ctx)
}

// imagesLock is held by who installs an image at libvirt, until its domains are defined, and by who
// removes images that no domain boots. No lab has the name.
const imagesLock = "libvirt.images"
