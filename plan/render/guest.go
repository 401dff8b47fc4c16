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

func guestDir(node string) string { return "guests/" + safeName(node) + "/" }

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

// A Seed is the input of cloud-init, on any hypervisor.
type Seed struct {
	MetaData, UserData, NetworkConfig string
	// ManagementMAC is configured by DHCP, unless "".
	ManagementMAC string
}

// Seeds are the same as in [All]. domains: the nodes run as the domains of [Domains]; only then the guest addresses in
// the files for NCCL are known.
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

func (v *view) metaData(node string) string {
	return v.header("For cloud-init (NoCloud). Another instance-id makes it run once more.") +
		"instance-id: " + yamlQuote("rackless-"+v.plan.Lab+"-"+node) + "\nlocal-hostname: " + yamlQuote(node) + "\n"
}

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

func (v *view) networkConfig(links []link, management string) string {
	return v.header("For cloud-init (NoCloud): network configuration, version 2.") + v.netplan(links, management, "")
}

// managementMACs has "" for nodes that cannot have a domain.
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

type link struct {
	ID     string // of the connection: rackless-eth0
	Addr   string // 10.0.0.1/24
	MTU    int
	MAC    string // address that identifies the port
	Driver string // if MAC is unknown: no other port has this driver
	Why    string
}

// Found reports whether the port can be distinguished from others.
func (l link) Found() bool { return l.MAC != "" || l.Driver != "" }

// Snapshots substitute addresses with standInMAC for real ones. It belongs to no vendor.
const standInMAC = "02:00:00:"

// links have the plan's MAC addresses for virtual functions and emulated NICs. A NIC that is passed through as a whole
// keeps its burned-in address, known from the host's data unless that may be another address (in a snapshot without
// identities, or for a bond).
func (v *view) links(i int) []link {
	var links []link
	used := map[string]int{} // by driver
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

// burnedIn returns "" if the address is uncertain: with a wrong one the guest would wait for an interface that never
// appears, and ignore the real one.
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
		// All members of a bond show the bond's address.
		if !ok || p.Master != "" || b[0]&1 == 1 || b == [6]byte{} || strings.HasPrefix(p.MAC, standInMAC) {
			return ""
		}
		return strings.ToLower(p.MAC)
	}
	return ""
}

// guestDriver returns the host's driver. vfio-pci only reserves the NIC, so vendor and class then determine the driver.
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

// netplan also configures the interface with the management address by DHCP.
func (v *view) netplan(links []link, management, indent string) string {
	return v.page("netplan", struct {
		Links              []link
		Management, Indent string
		Some               bool
	}{links, management, indent, management != "" || slices.ContainsFunc(links, link.Found)})
}

// packages have the same names in Debian, Ubuntu, Fedora and RHEL. One unknown name would make cloud-init install
// nothing.
func packages() []string {
	return []string{"ethtool", "infiniband-diags", "numactl", "pciutils", "perftest", "qemu-guest-agent", "rdma-core"}
}

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

func (v *view) gidScript() []byte {
	return slices.Concat([]byte("#!/bin/sh\n"), []byte(v.header("Finds the RoCE v2 GID of an address.")),
		gidProgram)
}

// yamlQuote relies on YAML 1.2 (section 5.7), which supports all of Go's escapes. oneLine replaces bytes that are not
// UTF-8.
func yamlQuote(s string) string { return strconv.Quote(oneLine(s)) }

// cleanMAC returns lower case, or zeros if it is invalid: the kernel refuses zeros, and the script reports it.
func cleanMAC(s string) string {
	if _, ok := parseMAC(s); !ok {
		return "00:00:00:00:00:00"
	}
	return strings.ToLower(s)
}

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
