package verify

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/driver/libvirt"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// OfLab is a running lab. Of one that is placed on this host, the host and its virtual machines are
// checked against the plan too. r must stay open while the target is used.
func OfLab(ctx context.Context, r *rack.Rack) (*Target, error) {
	if !r.State.Placed() {
		return &Target{Lab: r.Lab, Nodes: r}, nil
	}
	p, err := r.Placement()
	if err != nil {
		return nil, err
	}
	c, err := r.Libvirt(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Local() {
		return &Target{Plan: p.Plan, Lab: r.Lab, Nodes: r, Unseen: fmt.Sprintf("the host, and where its kernel "+
			"has the threads and memory of the virtual machines: it is another machine (%s), of which only the "+
			"nodes can be seen from here; on it, rackless verify --plan says more", c.URI)}, nil
	}
	t := OfHost(p.Plan)
	t.Lab, t.Nodes = r.Lab, r
	t.Domains = func(ctx context.Context) ([]check.Domain, error) { return readDomains(ctx, c, r.Lab) }
	return t, nil
}

// readDomains reads the virtual machines of a lab on this host. Those that are not defined are left out.
func readDomains(ctx context.Context, c *libvirt.Conn, l *lab.Lab) ([]check.Domain, error) {
	// Pins are those of the definitions in force, as inspect reads those of all virtual machines.
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		return nil, err
	}
	var all []check.Domain
	for _, n := range l.Nodes {
		d, err := domainOf(ctx, c, n.Name, render.DomainName(l.Name, n.Name))
		if errors.Is(err, libvirt.ErrNoDomain) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range h.Tenants {
			if t := &h.Tenants[i]; t.Name == d.Name {
				d.Pins = pinsOf(t)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// domainOf reads one domain.
func domainOf(ctx context.Context, c *libvirt.Conn, node, name string) (check.Domain, error) {
	d := check.Domain{Node: node, Name: name}
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
	if p, err := facts.ReadProcess(os.DirFS("/"), d.PID); err == nil {
		d.Process = p
	}
	return d, nil
}

func pinsOf(t *topology.Tenant) *check.Pins {
	p := &check.Pins{VCPUs: map[int]topology.CPUSet{}, Emulator: t.EmulatorCPUs, IOThreads: t.IOThreadCPUs,
		MemoryMode: t.MemoryMode, MemoryNodes: t.MemoryNodes}
	for _, pin := range t.Pins {
		p.VCPUs[pin.VCPU] = pin.CPUs
	}
	return p
}
