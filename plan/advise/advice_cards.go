package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// cards moves NICs, and then GPUs, to the NUMA nodes of what they work with: into a free slot, or
// in exchange for the card in another. NICs come first because they are easier to move. Lab nodes
// whose devices cost most come first, since only [MaxAdviceSolves] changes are asked for.
func (a *advisor) cards() {
	if in := a.host.System.InVM; in != nil && *in {
		return // a virtual machine has no slots that a hand could reach
	}
	type want struct {
		device, node int
		near         int // the device to be near to, -1 for the cores
		cost         int64
	}
	var wants []want
	for i := range a.p.Requests {
		n := &a.base.Placement.Nodes[i]
		cost := int64(0)
		for _, t := range a.terms {
			if t.Node == a.p.Requests[i].Name && slices.Contains(placeTerms, t.Term) {
				cost += t.Cost
			}
		}
		if cost == 0 {
			continue
		}
		add := func(device, node, near int) {
			if home := a.p.Devices[device].NUMANode; home != nil && *home != node {
				wants = append(wants, want{device, node, near, cost})
			}
		}
		each := func(from, to []int) {
			for _, d := range from {
				for _, near := range to {
					if home := a.p.Devices[near].NUMANode; home != nil {
						add(d, *home, near)
					}
				}
			}
		}
		nics := nicsOf(n)
		each(nics, n.GPUs)
		each(n.GPUs, nics)
		each(n.GPUs, n.GPUs)
		for _, d := range placedDevices(n) {
			add(d, a.mainNode(n), -1)
		}
	}
	slices.SortStableFunc(wants, func(x, y want) int { return cmp.Compare(y.cost, x.cost) })
	for _, w := range wants {
		a.placesFor(w.device, w.node, w.near)
	}
}

// placeTerms are the terms that another slot can lower.
var placeTerms = []string{plan.TermGPUNICPath, plan.TermGPUNICMeasured, plan.TermGPUGPUPath, plan.TermDeviceNearest,
	plan.TermDeviceDistance}

// placesFor proposes the changes that bring a device to a NUMA node.
func (a *advisor) placesFor(device, node, near int) {
	d := &a.p.Devices[device]
	if !a.movable(device) {
		return
	}
	// To bring a NIC to a GPU and the GPU to the NIC is one thing.
	key := []string{cardKey(d.ID)}
	if near >= 0 {
		key = append(key, cardKey(a.p.Devices[near].ID))
		slices.Sort(key)
	}
	add := func(e Edit, what, note string) {
		known := slices.ContainsFunc(a.changes, func(c change) bool { return c.what == what })
		if q, ok := a.relocated(e); ok && !known {
			a.propose(q, what, note, strings.Join(key, " "))
		}
	}
	what := fmt.Sprintf("move %s to a slot of NUMA node %d", deviceName(d), node)
	move := Edit{Op: OpMove, Device: d.ID, Count: node}
	note := "the host does not show a free slot there"
	if port := a.freePort(d.ID, node, near); port != nil {
		move = Edit{Op: OpMoveBelow, Device: d.ID, Other: port.Address.String()}
		note = fmt.Sprintf("port %s has nothing below it", port.Address)
		if port.Link != nil && port.Link.MaxWidth != nil {
			note += fmt.Sprintf(" and %s", words.Count(*port.Link.MaxWidth, "lane"))
		}
	}
	add(move, what, note)
	for i := range a.p.Devices {
		o := &a.p.Devices[i]
		if o.NUMANode == nil || *o.NUMANode != node || cardKey(o.ID) == cardKey(d.ID) || !a.movable(i) {
			continue
		}
		add(Edit{Op: OpSwap, Device: d.ID, Other: o.ID}, fmt.Sprintf("swap the slots of %s and %s", deviceName(d),
			deviceName(o)), "")
	}
}

// movable reports whether a device is a card that a hand can move: not one that the host lives on,
// and not one that shares an IOMMU group with other cards, where the slot is what has to change.
func (a *advisor) movable(device int) bool {
	d := &a.p.Devices[device]
	if !d.Whole && d.VFs == 0 {
		return false
	}
	tied := func(o plan.Device) bool { return o.Bundle == d.Bundle && cardKey(o.ID) != cardKey(d.ID) }
	integrated := func(g topology.GPU) bool { return g.ID() == d.ID && g.Kind == topology.GPUIntegrated }
	if slices.ContainsFunc(a.p.Devices, tied) || slices.ContainsFunc(a.host.GPUs, integrated) {
		return false
	}
	c, err := Edit{Op: OpMove}.card(a.host, d.ID)
	return err == nil && !c.linked(a.host)
}

// freePort returns the free port of a NUMA node that is nearest to another device, nil if none is known to be free.
func (a *advisor) freePort(id string, node, near int) *topology.PCIDevice {
	c, err := Edit{Op: OpMove}.card(a.host, id)
	if err != nil || len(c.functions) == 0 {
		return nil
	}
	free := freePorts(a.host, node, c)
	if len(free) == 0 {
		return nil
	}
	if near >= 0 {
		if at, err := topology.ParsePCIAddr(a.p.Devices[near].ID); err == nil {
			tree := topology.NewTree(a.host)
			beside := func(port *topology.PCIDevice) bool {
				root := tree.RootOf(port.Address)
				return root != "" && root == tree.RootOf(at)
			}
			if k := slices.IndexFunc(free, beside); k >= 0 {
				return free[k]
			}
		}
	}
	return free[0]
}

// relocated is the problem with an edit of the host's slots made: NUMA nodes and paths of the cards
// that changed places. What was measured of them before is forgotten. NVLink stays: it joins the GPUs,
// not their slots. Building the whole problem anew would say the same, but may fail for reasons that
// have nothing to do with the move.
func (a *advisor) relocated(e Edit) (*plan.Problem, bool) {
	h, _, err := e.Apply(a.host, a.lab)
	if err != nil {
		return nil, false
	}
	moved := map[string]bool{cardKey(e.Device): true}
	if e.Op == OpSwap {
		moved[cardKey(e.Other)] = true
	}
	q := changed(a.p)
	home := map[string]*int{}
	for _, p := range partsOf(h) {
		home[p.id] = *p.node
	}
	for i := range q.Devices {
		if d := &q.Devices[i]; moved[cardKey(d.ID)] {
			d.NUMANode = home[d.ID]
		}
	}
	tree := topology.NewTree(h)
	for path := range lists.Refs(q.Paths) {
		x, y := &q.Devices[path.A], &q.Devices[path.B]
		if !moved[cardKey(x.ID)] && !moved[cardKey(y.ID)] || strings.HasPrefix(path.Class, "NV") {
			continue
		}
		path.LossPercent = nil
		path.SetClass(tree.Path(x.ID, y.ID).Class, x, y)
	}
	return q, true
}
