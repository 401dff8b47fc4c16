package host

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Changed lists differences to the host of the plan, and new tenants on resources of the lab nodes. Changes by rackless
// itself (drivers, virtual functions, pages, isolation) and the lab's own nodes do not count.
func Changed(p *Prepared, now *topology.Host) []string {
	c := comparison{p: p, now: now}
	c.cores()
	c.memory()
	c.devices()
	c.tenants()
	return c.found
}

type comparison struct {
	p     *Prepared
	now   *topology.Host
	found []string
}

func (c *comparison) note(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *comparison) given() topology.CPUSet {
	return c.p.Plan.NodeCPUs()
}

func (c *comparison) cores() {
	given := c.given()
	for cpu := range given.All() {
		was, is := c.p.Host.Core(cpu), c.now.Core(cpu)
		switch {
		case was == nil:
		case is == nil:
			c.note("CPU %d is not online any more: echo 1 > /sys/devices/system/cpu/cpu%d/online", cpu, cpu)
		case !was.CPUs.Equal(is.CPUs):
			c.note("the core of CPU %d has CPUs %s, and had %s: SMT or the firmware's settings have changed", cpu,
				is.CPUs, was.CPUs)
		case was.NUMANode != nil && is.NUMANode != nil && *was.NUMANode != *is.NUMANode:
			c.note("CPU %d is on NUMA node %d, and was on %d: the firmware's settings (NPS, SNC) have changed", cpu,
				*is.NUMANode, *was.NUMANode)
		}
	}
}

func (c *comparison) memory() {
	var seen []int
	for i := range c.p.Plan.Nodes {
		for _, m := range c.p.Plan.Nodes[i].Memory {
			if slices.Contains(seen, m.NUMANode) {
				continue
			}
			seen = append(seen, m.NUMANode)
			was, is := c.p.Host.NUMANode(m.NUMANode), c.now.NUMANode(m.NUMANode)
			switch {
			case was == nil || was.MemoryBytes == nil:
			case is == nil || is.MemoryBytes == nil:
				c.note("NUMA node %d is not there any more", m.NUMANode)
			// The kernel takes a little more or less of it from version to version.
			case *is.MemoryBytes < *was.MemoryBytes-*was.MemoryBytes/20:
				c.note("NUMA node %d has %v of memory, and had %v", m.NUMANode, lab.Bytes(*is.MemoryBytes),
					lab.Bytes(*was.MemoryBytes))
			}
		}
	}
}

func functions(p *plan.Plan) []topology.PCIAddr {
	var all []topology.PCIAddr
	add := func(text string) {
		if a, err := topology.ParsePCIAddr(text); err == nil && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	for i := range p.Nodes {
		for _, card := range p.Nodes[i].Cards {
			add(card.ID)
			if card.Kind != plan.KindVF {
				for _, f := range card.Functions {
					add(f)
				}
			}
		}
	}
	return all
}

func (c *comparison) devices() {
	for _, a := range functions(c.p.Plan) {
		was, is := c.p.Host.Device(a), c.now.Device(a)
		if was == nil {
			continue
		}
		if is == nil {
			c.note("%s is not there any more: a card was taken out, or addresses have moved", a)
			continue
		}
		if id(was) != id(is) {
			c.note("%s is %s, and was %s: addresses have moved", a, id(is), id(was))
			continue
		}
		if was.NUMANode != nil && is.NUMANode != nil && *was.NUMANode != *is.NUMANode {
			c.note("%s is on NUMA node %d, and was on %d", a, *is.NUMANode, *was.NUMANode)
		}
		// Group numbers may change. Before the IOMMU is switched on there are no groups.
		if g, h := c.group(c.p.Host, was), c.group(c.now, is); g != nil && h != nil && !slices.Equal(g, h) {
			c.note("the IOMMU group of %s has %s, and had %s", a, words.Join(h, " "), words.Join(g, " "))
		}
	}
}

func id(d *topology.PCIDevice) string {
	if d.Vendor == nil || d.Device == nil {
		return "an unknown device"
	}
	return d.Vendor.String() + ":" + d.Device.String()
}

// group leaves out virtual functions, which come and go; it returns nil without a group.
func (c *comparison) group(h *topology.Host, d *topology.PCIDevice) []topology.PCIAddr {
	if d.IOMMUGroup == nil {
		return nil
	}
	virtual := map[topology.PCIAddr]bool{}
	for i := range h.PCI {
		virtual[h.PCI[i].Address] = h.PCI[i].PF != nil
	}
	for i := range h.IOMMU.Groups {
		if g := &h.IOMMU.Groups[i]; g.ID == *d.IOMMUGroup {
			return slices.DeleteFunc(slices.Clone(g.Devices), func(a topology.PCIAddr) bool { return virtual[a] })
		}
	}
	return nil
}

func (c *comparison) tenants() {
	own := lists.SetOf(c.p.Plan.Nodes, func(n plan.Node) string { return lab.VMName(c.p.Plan.Lab, n.Name) })
	given, devices := c.given(), functions(c.p.Plan)
	for i := range c.now.Tenants {
		t := &c.now.Tenants[i]
		if own[t.Name] || c.p.Lab.Tenants == lab.TenantsIgnore {
			continue
		}
		if both := t.Pinned().Intersect(given); !both.IsEmpty() {
			c.note("virtual machine %s is pinned to CPUs %s, which the plan gives to the lab", t.Name, both)
		}
		for _, d := range t.Devices {
			if slices.Contains(devices, d.PCI) {
				c.note("virtual machine %s holds %s, which the plan gives to the lab", t.Name, d.PCI)
			}
		}
	}
}
