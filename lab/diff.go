package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// An Effect is the cost of a change to a running lab.
type Effect string

// From cheapest to most expensive.
const (
	Live     Effect = "live"     // applied while the nodes run
	Recreate Effect = "recreate" // the others keep running
	Rebuild  Effect = "rebuild"
)

// KeyTopology is the key of a change of the switches.
const KeyTopology = "fabric.topology"

// A Change is between two labs.
type Change struct {
	Node   string `json:"node,omitempty"` // "" if it concerns the lab
	Key    string `json:"key"`            // of the lab file, or "node", "address" or "mac"
	Old    string `json:"old,omitempty"`  // "" if a node is added
	New    string `json:"new,omitempty"`  // "" if a node is removed
	Effect Effect `json:"effect"`
}

// String returns "vm00: memory 256MiB -> 1GiB (recreate)".
func (c Change) String() string {
	subject := cmp.Or(c.Node, "lab")
	switch {
	case c.Key == "node" && c.Old == "":
		return fmt.Sprintf("%s: added with %s (%s)", subject, c.New, c.Effect)
	case c.Key == "node" && c.New == "":
		return fmt.Sprintf("%s: removed (%s)", subject, c.Effect)
	}
	return fmt.Sprintf("%s: %s %s -> %s (%s)", subject, c.Key, c.Old, c.New, c.Effect)
}

// Diff has the lab's own keys first, then removed nodes in the old order, then changed and added nodes in the new
// order. It returns nil for equal labs.
func Diff(from, to *Lab) []Change {
	var all []Change
	add := func(node, key, was, is string, effect Effect) {
		if was != is {
			all = append(all, Change{node, key, was, is, effect})
		}
	}
	add("", "name", from.Name, to.Name, Rebuild)
	add("", "driver", string(from.Driver), string(to.Driver), Rebuild)
	add("", "arch", cmp.Or(string(from.Arch), "of this machine"), cmp.Or(string(to.Arch), "of this machine"), Rebuild)
	add("", "workload", string(from.Workload), string(to.Workload), Live)
	// Labs recorded before these keys existed have the defaults.
	add("", "host.reserve", orNone(from.Reserve.flow()), orNone(to.Reserve.flow()), Recreate)
	add("", "hugepages", string(cmp.Or(from.Hugepages, DefaultHugepages)),
		string(cmp.Or(to.Hugepages, DefaultHugepages)), Recreate)
	add("", "tenants", cmp.Or(from.Tenants, DefaultTenants), cmp.Or(to.Tenants, DefaultTenants), Recreate)
	add("", "affinity", orNone(list(from.Affinity, flow)), orNone(list(to.Affinity, flow)), Recreate)
	add("", "links", orNone(list(from.Links, flowLink)), orNone(list(to.Links, flowLink)), Recreate)
	if from.VSphere != nil && to.VSphere != nil {
		add("", "vsphere.host", from.VSphere.Host, to.VSphere.Host, Recreate)
	}
	add("", "vsphere", orNone(flow(from.VSphere.anywhere())), orNone(flow(to.VSphere.anywhere())), Rebuild)
	add("", "slurm.controller", from.controller(), to.controller(), Live)
	add("", "fabric.mtu", strconv.Itoa(from.Fabric.MTU), strconv.Itoa(to.Fabric.MTU), Live)
	add("", "fabric.subnet", from.Fabric.Subnet.String(), to.Fabric.Subnet.String(), Live)
	add("", KeyTopology, from.Fabric.switches(), to.Fabric.switches(), Rebuild)

	// A renamed node is removed and added.
	before, after := byName(from.Nodes), byName(to.Nodes)
	for _, n := range from.Nodes {
		if _, stays := after[n.Name]; !stays {
			add(n.Name, "node", summary(n), "", Live)
		}
	}
	for _, n := range to.Nodes {
		o, known := before[n.Name]
		if !known {
			add(n.Name, "node", "", summary(n), Live)
			continue
		}
		add(n.Name, "profile", orNone(string(o.Profile)), orNone(string(n.Profile)), Recreate)
		add(n.Name, "cpus", o.cpus(), n.cpus(), Recreate)
		add(n.Name, "memory", o.memory(), n.memory(), Recreate)
		add(n.Name, "image", o.Image, n.Image, Recreate)
		add(n.Name, "home", string(from.HomeOf(o)), string(to.HomeOf(n)), Recreate)
		add(n.Name, "nics", o.nics(), n.nics(), Recreate)
		if n.NIC != NICAuto { // NICAuto keeps a running node's model
			add(n.Name, "nic", string(cmp.Or(o.NIC, NICVirtio)), string(cmp.Or(n.NIC, NICVirtio)), Recreate)
		}
		if from.Fabric.Topology == to.Fabric.Topology { // otherwise the lab is rebuilt anyway
			add(n.Name, "leaf", o.leaf(), n.leaf(), Recreate)
		}
		add(n.Name, "gpus", o.gpus(), n.gpus(), Recreate)
		add(n.Name, "vfs", o.vfs(), n.vfs(), Recreate)
		add(n.Name, "smt", string(cmp.Or(o.SMT, DefaultSetting)), string(cmp.Or(n.SMT, DefaultSetting)), Recreate)
		add(n.Name, "guest_numa", string(cmp.Or(o.GuestNUMA, DefaultSetting)),
			string(cmp.Or(n.GuestNUMA, DefaultSetting)), Recreate)
		add(n.Name, "setup", orNone(list(o.Setup, Step.flow)), orNone(list(n.Setup, Step.flow)), Live)
		// Added and removed NICs are part of "nics".
		stay := min(len(o.NICs), len(n.NICs))
		if from.Name == to.Name { // otherwise every MAC differs, and the lab is rebuilt anyway
			add(n.Name, "mac", list(o.NICs[:stay], macOf), list(n.NICs[:stay], macOf), Recreate)
		}
		add(n.Name, "address", list(o.NICs[:stay], addrOf), list(n.NICs[:stay], addrOf), Live)
	}
	return all
}

// Dearest returns the most expensive effect, or "" for an empty list.
func Dearest(changes []Change) Effect {
	order := []Effect{"", Live, Recreate, Rebuild}
	worst := lists.Max(changes, func(c Change) int { return slices.Index(order, c.Effect) })
	return order[worst]
}

func byName(nodes []Node) map[string]Node {
	return lists.By(nodes, func(n Node) string { return n.Name })
}

func summary(n Node) string {
	s := fmt.Sprintf("cpus %s, memory %s, image %s, nics %s", n.cpus(), n.memory(), n.Image, n.nics())
	if n.GPUs > 0 {
		s += ", gpus " + n.gpus()
	}
	if n.VFs > 0 {
		s += ", vfs " + n.vfs()
	}
	return s
}

// orNone is needed because an empty value in a Change means an added or removed node.
func orNone(s string) string { return cmp.Or(s, "none") }

func macOf(n NIC) string  { return n.MAC }
func addrOf(n NIC) string { return n.Addr.String() }

func list[T any](all []T, text func(T) string) string {
	return strings.Join(lists.Map(all, text), ", ")
}
