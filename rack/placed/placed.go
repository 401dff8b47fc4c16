// Package placed is the driver "libvirt" of package rack: each node is a libvirt domain on this machine or on another,
// with the CPUs, memory and cards from a plan. There is no daemon and no switch: libvirt holds the nodes and shares
// their agents, and the nodes use the host's own NICs.
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

// DefaultURI is this machine's libvirt.
const DefaultURI = "qemu:///system"

func init() {
	rack.Register(rack.Driver{
		Name:  string(lab.DriverLibvirt),
		Where: "on this host's devices",
		// Each device reset takes seconds.
		DownLimit:  5 * time.Minute,
		NeedsPlace: true,
		Check:      supported,
		New:        func(r *rack.Rack) rack.Runtime { return &placedLab{Rack: r} },
	})
}

// supported refuses a shared /home and images of full nodes: a node on a host boots the built-in image or a user's
// disk.
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

type placedLab struct {
	*rack.Rack
	conn rack.Conn[libvirt.Conn] // to State.URI
}

var _ rack.Hosted = (*placedLab)(nil)

func (p *placedLab) libvirt(ctx context.Context) (*libvirt.Conn, error) {
	return p.conn.Open(func() (*libvirt.Conn, error) { return libvirt.Connect(ctx, p.State.URI) })
}

// Close ends libvirt's connection.
func (p *placedLab) Close() error { return p.conn.Close((*libvirt.Conn).Close) }

func (p *placedLab) domain(node string) string { return lab.VMName(p.Lab.Name, node) }

// NodeState translates the domain's state.
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

// Agent goes through libvirt, the only client of the agent's port.
func (p *placedLab) Agent(ctx context.Context, node string) (*guest.Agent, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return nil, err
	}
	return c.Agent(ctx, p.domain(node))
}

// Console returns an error that says how to use virsh, because libvirt holds the console, possibly on another machine.
func (p *placedLab) Console(_ context.Context, n *rack.Node) (net.Conn, error) {
	return nil, fmt.Errorf("node %s is a domain of libvirt: virsh -c %s console %s", n.Name, p.State.URI,
		p.domain(n.Name))
}

const libvirtLogs = "/var/log/libvirt/qemu"

// Logs returns libvirt's logs.
func (p *placedLab) Logs(node string) rack.Logs {
	return rack.Logs{QEMU: filepath.Join(libvirtLogs, p.domain(node)+".log"),
		Console: render.ConsolePath(libvirtLogs, p.Lab.Name, node)}
}

// Switch returns an error: NICs and network are the host's.
func (p *placedLab) Switch() (*fabric.Client, error) {
	return nil, fmt.Errorf("lab %s is on this host's own NICs: there is no switch of rackless between them", p.Lab.Name)
}

// SwitchState returns SwitchNone.
func (p *placedLab) SwitchState() rack.SwitchState { return rack.SwitchNone }

func placementFile(dir string) string { return filepath.Join(dir, "placement.json") }

// Placement returns the placement of the last Up.
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

// Domains reads the domains, with threads and memory from the kernel, except undefined ones.
func (p *placedLab) Domains(ctx context.Context) ([]checks.Domain, error) {
	c, err := p.libvirt(ctx)
	if err != nil {
		return nil, err
	}
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
	// An unreadable process is a finding, and must not stop the others.
	if p, err := inspect.ReadProcess(os.DirFS("/"), d.PID); err == nil {
		d.Process = p
	}
	return d, nil
}

// Down ends the domains. Nodes with a disk image are asked first; the others are only in memory.
func (p *placedLab) Down(ctx context.Context) error {
	c, err := p.libvirt(ctx)
	if err != nil {
		return err
	}
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
	// up's files for libvirt are removed with its last lab.
	unlock, err := rack.Lock(ctx, p.Dirs, imagesLock, nil)
	if err != nil {
		return err
	}
	defer unlock()
	return c.Uninstall(ctx)
}

// imagesLock is held while an image is given to libvirt, until its domains are defined, and while images without
// domains are removed. No lab has this name.
const imagesLock = "libvirt.images"
