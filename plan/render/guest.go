package render

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// guestDir is where the files of a lab node are.
func guestDir(node string) string { return "guests/" + safeName(node) + "/" }

// guests returns what is set inside of the lab nodes: seeds for cloud-init, and the network's part
// of them for netplan and for NetworkManager. topologies are the files for NCCL.
func (v *view) guests(topologies []Artifact) []Artifact {
	var all []Artifact
	management := v.managementMACs()
	for i := range v.plan.Nodes {
		node := v.plan.Nodes[i].Name
		links := v.links(i)
		dir := guestDir(node)
		all = append(all,
			text(dir+"meta-data", v.metaData(node)),
			text(dir+"user-data", v.userData(i, links, topologies)),
			text(dir+"network-config", v.networkConfig(links, management[i])),
			Artifact{Path: dir + "60-rackless.yaml", Mode: 0o600,
				Data: []byte(v.header("For /etc/netplan of a node that is there already, without the management "+
					"interface: then netplan try. "+
					"netplan wants it to be readable by root only.") + "network:\n" + v.netplan(links, "", "  "))},
		)
		for _, l := range links {
			all = append(all, Artifact{Path: dir + l.ID + ".nmconnection", Mode: 0o600,
				Data: []byte(v.page("nmconnection", l))})
		}
	}
	return all
}

// A Seed is what cloud-init reads in a lab node, whatever starts it.
type Seed struct {
	MetaData, UserData, NetworkConfig string
	// ManagementMAC is the address of the interface that NetworkConfig configures by DHCP; "" where it has none.
	ManagementMAC string
}

// Seeds returns the seeds of the lab nodes in the order of the plan: those of [All], for systems that take them as
// values. domains says that these run the domains of [Domains]: only of those it is known where a guest sees its
// devices, as the files for NCCL say.
func Seeds(in Input, domains bool) ([]Seed, error) {
	v, err := newView(in)
	var topologies []Artifact
	if err == nil && domains {
		topologies, err = ncclTopologies(in)
	}
	if err != nil {
		return nil, fmt.Errorf("render seeds: %w", err)
	}
	seeds := make([]Seed, len(v.plan.Nodes))
	for i, mac := range v.managementMACs() {
		links := v.links(i)
		seeds[i] = Seed{MetaData: v.metaData(v.plan.Nodes[i].Name), NetworkConfig: v.networkConfig(links, mac),
			UserData: v.userData(i, links, topologies), ManagementMAC: mac}
	}
	return seeds, nil
}

// metaData returns what cloud-init is told about a node.
func (v *view) metaData(node string) string {
	return v.header("For cloud-init (NoCloud). Another instance-id makes it run once more.") +
		"instance-id: " + yamlQuote("rackless-"+v.plan.Lab+"-"+node) + "\nlocal-hostname: " + yamlQuote(node) + "\n"
}

// userData returns what cloud-init does in lab node i. It gets its file for NCCL, if there is one among topologies.
func (v *view) userData(i int, links []link, topologies []Artifact) string {
	node, nccl := v.plan.Nodes[i].Name, ""
	for _, t := range topologies {
		if t.Path == ncclPath(node) {
			nccl = string(t.Data)
		}
	}
	return v.page("user-data", struct {
		Node    string
		Several bool
		NCCL    string
	}{node, len(links) > 1, nccl})
}

// networkConfig returns what cloud-init configures of the network.
func (v *view) networkConfig(links []link, management string) string {
	return v.header("For cloud-init (NoCloud): network configuration, version 2.") + v.netplan(links, management, "")
}

// managementMACs returns the addresses of the management interfaces as the domains have them; ""
// where there can be no domain.
func (v *view) managementMACs() []string {
	macs := make([]string, len(v.plan.Nodes))
	m, err := newMachine(v.in)
	if err != nil {
		return macs
	}
	for i := range v.plan.Nodes {
		macs[i] = m.managementMAC(v.plan.Nodes[i].Name)
	}
	return macs
}

// A link is a port of a lab node as its own system finds it.
type link struct {
	ID     string // of the connection: rackless-eth0
	Addr   string // 10.0.0.1/24
	MTU    int
	MAC    string // by which it is found
	Driver string // by which it is found where MAC is not known: the only one with this driver
	Why    string // how it is found, and what to check
}

// Found reports whether there is a sure way to tell the port from others.
func (l link) Found() bool { return l.MAC != "" || l.Driver != "" }

// standInMAC begins the addresses that snapshots put in place of real ones. No vendor has it: the
// bit for "locally administered" is set.
const standInMAC = "02:00:00:"

// links returns the ports of lab node i.
//
// A virtual function and an emulated NIC have the MAC address of the plan. A NIC that is passed
// through as a whole keeps the one that is burned in, which the plan cannot change: it is taken
// from what the host says of the NIC, unless the host has it from elsewhere (a snapshot without
// identities, a bond).
func (v *view) links(i int) []link {
	var links []link
	used := map[string]int{} // functions of the node by driver
	for _, c := range v.plan.Nodes[i].Cards {
		if c.Kind == plan.KindNIC {
			for _, f := range c.Functions {
				used[v.guestDriver(f)]++
			}
		} else if c.Kind == plan.KindVF {
			used[v.guestDriver(c.ID)]++
		}
	}
	for _, p := range v.ports[i] {
		l := link{ID: "rackless-" + safeName(p.nic.Name), Addr: p.nic.Addr.String(), MTU: v.in.Lab.Fabric.MTU}
		switch {
		case p.card == nil:
			l.MAC, l.Why = cleanMAC(p.nic.MAC), "An emulated NIC, found by the MAC address of the plan."
		case p.card.Kind == plan.KindVF:
			l.MAC, l.Why = cleanMAC(p.nic.MAC), fmt.Sprintf("A virtual function of %s, found by the MAC address of "+
				"the plan, which the host gives it.", p.card.ID)
		default:
			l.MAC = v.burnedIn(p.card.ID)
			l.Why = fmt.Sprintf("NIC %s of the host, whole, found by its own MAC address: the plan cannot give it "+
				"another.", p.card.ID)
			if l.MAC != "" {
				break
			}
			why := fmt.Sprintf("NIC %s of the host, whole. It keeps its own MAC address, which the plan does not know",
				p.card.ID)
			if d := v.guestDriver(p.card.ID); d != "" && used[d] == 1 {
				l.Driver, l.Why = d, why+": it is found by its driver, as the only one of the node with it."
			} else {
				l.Why = why + ", and others have the same driver: fill in the address (ip -br link in the node), and " +
					"take the comment signs off."
			}
		}
		links = append(links, l)
	}
	return links
}

// burnedIn returns the MAC address of the first port of a NIC, "" where it is not known for sure. A wrong address is
// worse than none: the guest would wait for an interface that never comes, and leave the real one alone.
func (v *view) burnedIn(id string) string {
	nic := v.nics[id]
	if nic == nil {
		return ""
	}
	for _, p := range nic.Ports {
		if p.DevPort != nil && *p.DevPort != 0 {
			continue
		}
		b, ok := parseMAC(p.MAC)
		// Members of a bond all show the bond's address. Group addresses and zeros are nobody's.
		if !ok || p.Master != "" || b[0]&1 == 1 || b == [6]byte{} || strings.HasPrefix(p.MAC, standInMAC) {
			return ""
		}
		return strings.ToLower(p.MAC)
	}
	return ""
}

// guestDriver returns the driver that a NIC of the host has in a guest: the same as on the host, where a driver of
// networks has it. With vfio-pci, whose business is to keep it, vendor and class say which one it would be.
func (v *view) guestDriver(id string) string {
	if nic := v.nics[id]; nic != nil && isDriver(nic.Driver) {
		return nic.Driver
	}
	if a, err := topology.ParsePCIAddr(id); err == nil {
		for _, d := range v.driversOf(a) {
			return d
		}
	}
	return ""
}

// netplan returns a netplan document, version 2, indented. With a management address it has that
// interface as well, by DHCP.
func (v *view) netplan(links []link, management, indent string) string {
	return v.page("netplan", struct {
		Links              []link
		Management, Indent string
		Some               bool
	}{links, management, indent, management != "" || slices.ContainsFunc(links, link.Found)})
}

// packages are what a node needs for RDMA and for looking at itself; the same names in Debian,
// Ubuntu, Fedora and RHEL. One unknown name would make cloud-init install none.
func packages() []string {
	return []string{"ethtool", "infiniband-diags", "numactl", "pciutils", "perftest", "qemu-guest-agent", "rdma-core"}
}

// hostNames returns the lines of /etc/hosts: each node by its name, and its further ports by node and port.
func (v *view) hostNames() []string {
	var lines []string
	for i := range v.plan.Nodes {
		for k, p := range v.ports[i] {
			name := v.plan.Nodes[i].Name
			if k > 0 {
				name += "-" + p.nic.Name
			}
			lines = append(lines, p.nic.Addr.Addr().String()+" "+oneLine(name))
		}
	}
	return lines
}

//go:embed pages/rackless-gid.sh
var gidProgram []byte

// gidScript returns the program that finds GIDs.
func (v *view) gidScript() []byte {
	return slices.Concat([]byte("#!/bin/sh\n"), []byte(v.header("Finds the RoCE v2 GID of an address.")),
		gidProgram)
}

// yamlQuote returns s as a text in double quotes. Go's escapes are all known to YAML 1.2 (section
// 5.7); bytes that are no UTF-8 become spaces before.
func yamlQuote(s string) string { return strconv.Quote(oneLine(s)) }

// cleanMAC returns a MAC address in lower case, or zeros for what is none: the kernel then refuses
// it, and the script says so.
func cleanMAC(s string) string {
	if _, ok := parseMAC(s); !ok {
		return "00:00:00:00:00:00"
	}
	return strings.ToLower(s)
}

// parseMAC reads six bytes with colons.
func parseMAC(s string) (b [6]byte, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 6 {
		return b, false
	}
	for i, p := range parts {
		one, err := hex.DecodeString(p)
		if err != nil || len(one) != 1 {
			return b, false
		}
		b[i] = one[0]
	}
	return b, true
}
