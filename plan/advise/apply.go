package advise

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// Apply returns host and lab with the edit made. Both are copies that share nothing with h and l,
// which stay as they are. Whether the changed lab still fits is for build.Problem and the search to
// say. An error is an [*EditError].
func (e Edit) Apply(h *topology.Host, l *lab.Lab) (*topology.Host, *lab.Lab, error) {
	h, l = deepCopy(h), deepCopy(l)
	var err error
	switch e.Op {
	case OpSwap, OpMove, OpMoveBelow, OpWithout:
		err = e.applyToHost(h)
	case OpWithoutTenants:
		h.Tenants = nil
		l.Tenants = lab.TenantsIgnore // those of a file too
	case OpAddNode:
		err = e.addNode(l)
	case OpRemoveNode:
		err = e.removeNode(l)
	case OpReserve:
		l.Reserve.Cores = new(e.Count)
	case OpWorkload:
		l.Workload = e.Workload
	case OpHugepages:
		l.Hugepages = e.Hugepages
	case OpCPUs, OpMemory, OpSMT, OpGuestNUMA:
		err = e.eachNode(l)
	default:
		err = e.fail("", "is no edit", editForms)
	}
	if err != nil {
		return nil, nil, err
	}
	return h, l, nil
}

func (e Edit) fail(part, why, fix string) error {
	return &EditError{In: e.String(), Part: part, Why: why, Fix: fix}
}

// find returns the index of a lab node.
func (e Edit) find(l *lab.Lab, name string) (int, error) {
	i := slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == name })
	if i < 0 {
		names := l.NodeNames()
		return 0, e.fail(name, "the lab has no such node", "its nodes: "+someText(names))
	}
	return i, nil
}

// eachNode changes one lab node, or all of them. A size that is 0 stands for auto; the number that the
// node had stays behind it, as in a file that says auto beside it.
func (e Edit) eachNode(l *lab.Lab) error {
	nodes := l.Nodes
	if e.Node != "" {
		i, err := e.find(l, e.Node)
		if err != nil {
			return err
		}
		nodes = nodes[i : i+1]
	}
	for n := range lists.Refs(nodes) {
		switch e.Op {
		case OpCPUs:
			n.AutoCPUs, n.CPUs = e.Count == 0, cmp.Or(e.Count, n.CPUs)
		case OpMemory:
			n.AutoMemory, n.Memory = e.Memory == 0, cmp.Or(e.Memory, n.Memory)
		case OpSMT:
			n.SMT = e.Setting
		case OpGuestNUMA:
			n.GuestNUMA = e.Setting
		}
	}
	return nil
}

// addNode appends a copy of a lab node with addresses of its own.
func (e Edit) addNode(l *lab.Lab) error {
	if slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return n.Name == e.Node }) {
		return e.fail(e.Node, "the lab has a node of this name", "use another name")
	}
	if len(l.Nodes) == 0 || len(l.Nodes) >= lab.MaxNodes {
		return e.fail(e.Node, fmt.Sprintf("the lab has %d nodes", len(l.Nodes)),
			fmt.Sprintf("a lab has 1 to %d", lab.MaxNodes))
	}
	from := len(l.Nodes) - 1
	if e.Like != "" {
		var err error
		if from, err = e.find(l, e.Like); err != nil {
			return err
		}
	}
	n := deepCopy(l.Nodes[from])
	n.Name = e.Node
	used := lists.SetOf(lists.Flat(l.Nodes, func(n lab.Node) []lab.NIC { return n.NICs }),
		func(n lab.NIC) string { return n.MAC })
	for k := range n.NICs {
		nic := &n.NICs[k]
		nic.MAC = lab.FreeMAC(l.Name, n.Name, k, used)
		addr, ok := freeAddr(l, k, nic.Addr)
		if !ok {
			return e.fail(e.Node, fmt.Sprintf("subnet %s has no address left for it", nic.Addr.Masked()),
				"use a larger fabric.subnet")
		}
		nic.Addr = addr
	}
	l.Nodes = append(l.Nodes, n)
	return nil
}

// freeAddr returns the address after the highest that NICs number k of the lab have, in the subnet of like.
func freeAddr(l *lab.Lab, k int, like netip.Prefix) (netip.Prefix, bool) {
	last := like.Addr()
	for i := range l.Nodes {
		if nics := l.Nodes[i].NICs; k < len(nics) && like.Contains(nics[k].Addr.Addr()) &&
			last.Less(nics[k].Addr.Addr()) {
			last = nics[k].Addr.Addr()
		}
	}
	next := last.Next()
	// The highest address of a subnet is for broadcast.
	if !next.IsValid() || !like.Contains(next) || !like.Contains(next.Next()) {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(next, like.Bits()), true
}

// removeNode takes a lab node out of the lab and of its affinities. The others keep their addresses.
func (e Edit) removeNode(l *lab.Lab) error {
	i, err := e.find(l, e.Node)
	if err != nil {
		return err
	}
	if len(l.Nodes) == 1 {
		return e.fail(e.Node, "is the only node of the lab", "")
	}
	l.Nodes = slices.Delete(l.Nodes, i, i+1)
	for i := range l.Affinity {
		l.Affinity[i].Nodes = slices.DeleteFunc(l.Affinity[i].Nodes, func(name string) bool { return name == e.Node })
	}
	l.Affinity = slices.DeleteFunc(l.Affinity, func(a lab.Affinity) bool { return len(a.Nodes) < 2 })
	if len(l.Affinity) == 0 {
		l.Affinity = nil
	}
	return nil
}

// applyToHost changes the host.
func (e Edit) applyToHost(h *topology.Host) error {
	a, err := e.card(h, e.Device)
	if err != nil {
		return err
	}
	switch e.Op {
	case OpSwap:
		b, err := e.card(h, e.Other)
		if err != nil {
			return err
		}
		return e.swap(h, a, b)
	case OpMove:
		ids := lists.Map(h.NUMANodes, func(n topology.NUMANode) string { return strconv.Itoa(n.ID) })
		if to := strconv.Itoa(e.Count); !slices.Contains(ids, to) {
			return e.fail(to, "the host has no such NUMA node", "its NUMA nodes: "+strings.Join(ids, ", "))
		}
		return e.moveTo(h, a)
	case OpMoveBelow:
		return e.moveBelow(h, a)
	}
	return e.remove(h, a)
}
