package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/driver/libvirt"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// place adds to the verification of a running lab what can be said of the host that it is placed
// on, and of its domains.
func (v *verification) place(ctx context.Context, r *rack.Rack) error {
	p, err := r.Placement()
	if err != nil {
		return err
	}
	c, err := r.Libvirt(ctx)
	if err != nil {
		return err
	}
	v.plan = p.Plan
	if !c.Local() {
		v.unseen = fmt.Sprintf("the host, and where its kernel has the threads and memory of the virtual machines: "+
			"it is another machine (%s), of which only the nodes can be seen from here; "+
			"on it, rackless verify --plan says more", c.URI)
		return nil
	}
	v.host = func(ctx context.Context) (*topology.Host, error) { return inspect.Read(ctx, inspect.Live()) }
	v.running = func(ctx context.Context) (*facts.Running, error) { return facts.ReadRunning(ctx, os.DirFS("/")) }
	v.domains = func(ctx context.Context) ([]check.Domain, error) {
		// Pins are those of the definitions in force, as inspect reads those of all virtual machines.
		h, err := inspect.Read(ctx, inspect.Live())
		if err != nil {
			return nil, err
		}
		var all []check.Domain
		for _, n := range r.Lab.Nodes {
			d, err := domainOf(ctx, c, n.Name, render.DomainName(r.Lab.Name, n.Name))
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
	return nil
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
