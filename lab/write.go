package lab

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// YAML returns the lab as a lab file with every default written out and the reasons beside them. Parse gives the same
// Lab back. Addresses follow from the order of the nodes, so they are comments there, not keys.
func (l *Lab) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The lab %s with every default written out.\n", l.Name)
	fmt.Fprintf(&b, "name: %s\n", scalar(l.Name))
	fmt.Fprintf(&b, "driver: %s # %s\n", l.Driver, driverNote(l.Driver))
	fmt.Fprintf(&b, "workload: %s # placement and advice are weighted by it\n", l.Workload)
	if r := l.Reserve.flow(); r != "" {
		fmt.Fprintf(&b, "host: {reserve: %s}\n", r)
	}
	fmt.Fprintf(&b, "hugepages: %s # %s\n", word(string(l.Hugepages)), pagesNote(l.Hugepages))
	fmt.Fprintf(&b, "tenants: %s # %s\n", scalar(l.Tenants), tenantsNote(l.Tenants))
	fmt.Fprintf(&b, "fabric:\n")
	for _, line := range mtuNote(l.Fabric.MTU) {
		fmt.Fprintf(&b, "  # %s\n", line)
	}
	fmt.Fprintf(&b, "  mtu: %d\n", l.Fabric.MTU)
	fmt.Fprintf(&b, "  # The n-th node has the n-th address; eth1 is in the next subnet of this size, and so on.\n")
	fmt.Fprintf(&b, "  subnet: %s\n", l.Fabric.Subnet)
	for i, a := range l.Affinity {
		if i == 0 {
			fmt.Fprintf(&b, "affinity:\n")
		}
		fmt.Fprintf(&b, "  - %s\n", a.flow())
	}
	if len(l.Links) > 0 {
		fmt.Fprintf(&b, "links: [%s] # ports that reach each other\n", list(l.Links, flowLink))
	}
	if l.VSphere != nil {
		fmt.Fprintf(&b, "vsphere: %s\n", l.VSphere.flow())
	}
	if l.Slurm != nil {
		fmt.Fprintf(&b, "slurm: {controller: %s} # the node with slurmctld\n", scalar(l.Slurm.Controller))
	}
	if l.Home == HomeShared {
		fmt.Fprintf(&b, "home: %s # one /home for all nodes with a disk\n", l.Home)
	}
	// The settings that few labs have stand here once. Those that a node has otherwise stand beside it.
	fmt.Fprintf(&b, "defaults: {nic: %s, vfs: %d, smt: %s, guest_numa: %s} # of nodes without their own\n",
		DefaultNIC, DefaultVFs, DefaultSetting, DefaultSetting)
	fmt.Fprintf(&b, "nodes:\n")
	for _, n := range l.Nodes {
		fmt.Fprintf(&b, "  %s: {cpus: %s, memory: %s, image: %s, nics: %s, gpus: %s", scalar(n.Name), n.cpus(),
			n.memory(), scalar(n.Image), n.nics(), n.gpus())
		if n.NIC != DefaultNIC {
			fmt.Fprintf(&b, ", nic: %s", n.NIC)
		}
		if n.VFs > 0 {
			fmt.Fprintf(&b, ", vfs: %s", n.vfs())
		}
		if n.SMT != DefaultSetting {
			fmt.Fprintf(&b, ", smt: %s", word(string(n.SMT)))
		}
		if n.GuestNUMA != DefaultSetting {
			fmt.Fprintf(&b, ", guest_numa: %s", word(string(n.GuestNUMA)))
		}
		if len(n.Setup) > 0 {
			fmt.Fprintf(&b, ", setup: [%s]", list(n.Setup, Step.flow))
		}
		b.WriteByte('}')
		// One NIC fits beside the node, several get a line each.
		lead := words.Either(len(n.NICs) > 1, "\n    # ", " # ")
		for _, nic := range n.NICs {
			fmt.Fprintf(&b, "%s%s %s %s", lead, nic.Name, nic.Addr, nic.MAC)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// The values of a node's keys, as a lab file writes them.

func (n Node) cpus() string { return words.Either(n.AutoCPUs, string(Auto), strconv.Itoa(n.CPUs)) }

func (n Node) memory() string { return words.Either(n.AutoMemory, string(Auto), n.Memory.String()) }

func (n Node) gpus() string { return flowList(n.GPURequests, n.GPUs) }
func (n Node) nics() string { return flowList(n.NICRequests, len(n.NICs)-n.VFs) }
func (n Node) vfs() string  { return flowList(n.VFRequests, n.VFs) }

// flow writes what the host keeps as the value of reserve; "" if all of it is the planner's choice.
func (r Reserve) flow() string {
	var nodes []string
	for _, n := range r.NUMA {
		var cores *int
		if n.Cores > 0 {
			cores = &n.Cores
		}
		nodes = append(nodes, fmt.Sprintf("%d: {%s}", n.Node, strings.Join(kept(cores, n.Memory), ", ")))
	}
	keys := kept(r.Cores, r.Memory)
	if len(nodes) > 0 {
		keys = append(keys, "numa_nodes: {"+strings.Join(nodes, ", ")+"}")
	}
	return words.If(len(keys) != 0, "{"+strings.Join(keys, ", ")+"}")
}

func kept(cores *int, memory *Bytes) []string {
	var keys []string
	if cores != nil {
		keys = append(keys, fmt.Sprintf("cores: %d", *cores))
	}
	if memory != nil {
		keys = append(keys, fmt.Sprintf("memory: %s", *memory))
	}
	return keys
}

// flow writes an affinity as an entry of the list.
func (a Affinity) flow() string {
	text := "{nodes: [" + list(a.Nodes, scalar) + "]"
	text += words.If(a.NUMA != "", ", numa: "+string(a.NUMA))
	text += words.If(a.NIC != "", ", nic: "+string(a.NIC))
	return text + "}"
}

func flowLink(ports []string) string { return "[" + list(ports, scalar) + "]" }

func pagesNote(h Hugepages) string {
	switch h {
	case Hugepages1GiB, Hugepages2MiB:
		return "pages behind the memory of every node on a real host"
	case HugepagesOff:
		return "a real host backs the nodes with pages of the usual size"
	}
	return "on a real host 1GiB where it can and every node is whole GiB, else 2MiB"
}

func tenantsNote(tenants string) string {
	switch tenants {
	case TenantsRead:
		return "a real host's other virtual machines keep what they have"
	case TenantsIgnore:
		return "planned as if a real host had no other virtual machines"
	}
	return "lists the other virtual machines of a real host"
}

func driverNote(d Driver) string {
	switch d {
	case DriverQEMU:
		return "QEMU processes of rackless itself"
	case DriverLibvirt:
		return "libvirt domains"
	case DriverVSphere:
		return "virtual machines of an ESXi host"
	}
	return "decided when the lab comes up"
}

// mtuNote explains an MTU in terms of what it does to RDMA.
func mtuNote(mtu int) []string {
	payload := rdmaPayload(mtu)
	why := fmt.Sprintf("RDMA payloads are powers of two: with headers of up to %d bytes this MTU carries %d.",
		roceHeaders, payload)
	switch {
	case payload < 4096:
		return []string{why, fmt.Sprintf("The largest payload, 4096, needs %d; the default is %d.", 4096+roceHeaders,
			DefaultMTU)}
	case mtu > DefaultMTU:
		return []string{why, fmt.Sprintf("%d carries as much with smaller buffers.", DefaultMTU)}
	}
	return []string{why, "1500 would carry 1024, and 9000 no more than this."}
}

// scalar writes a text so that every reader of YAML takes it for a text: plain where that is safe, else quoted.
func scalar(s string) string {
	plain := s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	if plain {
		return word(s)
	}
	// Go's escapes in a quoted string are all known to YAML's double quotes (section 5.7).
	return strconv.Quote(s)
}

// word writes one of our own words, plain unless it is a truth value or null in YAML 1.1 or 1.2.
func word(s string) string {
	switch s {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	return s
}
