package render

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// guestDir is where the files of a lab node are.
func guestDir(node string) string { return "guests/" + safeName(node) + "/" }

// guests returns what is set inside of the lab nodes: seeds for cloud-init, and the network's part
// of them for netplan and for NetworkManager.
func (v *view) guests() []Artifact {
	var all []Artifact
	management := v.managementMACs()
	for i := range v.plan.Nodes {
		node := v.plan.Nodes[i].Name
		links := v.links(i)
		dir := guestDir(node)
		all = append(all,
			text(dir+"meta-data", v.header("For cloud-init (NoCloud). Another instance-id makes it run once more.")+
				"instance-id: "+yamlQuote("rackless-"+v.plan.Lab+"-"+node)+"\nlocal-hostname: "+yamlQuote(node)+"\n"),
			text(dir+"user-data", v.userData(node, links)),
			text(dir+"network-config", v.header("For cloud-init (NoCloud): network configuration, version 2.")+
				netplan(links, management[i], "")),
			Artifact{Path: dir + "60-rackless.yaml", Mode: 0o600,
				Data: []byte(v.header("For /etc/netplan of a node that is there already, without the management "+
					"interface: then netplan try. "+
					"netplan wants it to be readable by root only.") + "network:\n" + netplan(links, "", "  "))},
		)
		for _, l := range links {
			all = append(all, Artifact{Path: dir + l.id + ".nmconnection", Mode: 0o600, Data: []byte(v.keyfile(l))})
		}
	}
	return all
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
	id     string // of the connection: rackless-eth0
	addr   string // 10.0.0.1/24
	mtu    int
	mac    string // by which it is found
	driver string // by which it is found where mac is not known: the only one with this driver
	why    string // how it is found, and what to check
}

// found reports whether there is a sure way to tell the port from others.
func (l *link) found() bool { return l.mac != "" || l.driver != "" }

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
		l := link{id: "rackless-" + safeName(p.nic.Name), addr: p.nic.Addr.String(), mtu: v.in.Lab.Fabric.MTU}
		switch {
		case p.card == nil:
			l.mac, l.why = cleanMAC(p.nic.MAC), "An emulated NIC, found by the MAC address of the plan."
		case p.card.Kind == plan.KindVF:
			l.mac, l.why = cleanMAC(p.nic.MAC), fmt.Sprintf("A virtual function of %s, found by the MAC address of "+
				"the plan, which the host gives it.", p.card.ID)
		default:
			l.mac = v.burnedIn(p.card.ID)
			l.why = fmt.Sprintf("NIC %s of the host, whole, found by its own MAC address: the plan cannot give it "+
				"another.", p.card.ID)
			if l.mac != "" {
				break
			}
			why := fmt.Sprintf("NIC %s of the host, whole. It keeps its own MAC address, which the plan does not know",
				p.card.ID)
			if d := v.guestDriver(p.card.ID); d != "" && used[d] == 1 {
				l.driver, l.why = d, why+": it is found by its driver, as the only one of the node with it."
			} else {
				l.why = why + ", and others have the same driver: fill in the address (ip -br link in the node), and " +
					"take the comment signs off."
			}
		}
		links = append(links, l)
	}
	return links
}

// burnedIn returns the MAC address of the first port of a NIC, "" where it is not known for sure.
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

// guestDriver returns the driver that a NIC of the host has in a guest.
func (v *view) guestDriver(id string) string {
	if nic := v.nics[id]; nic != nil && nic.Driver != "" && nic.Driver != "vfio-pci" && strings.Trim(nic.Driver,
		moduleLetters) == "" {
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
func netplan(links []link, management, indent string) string {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		b.WriteString(indent + strings.Repeat("  ", depth) + fmt.Sprintf(format, args...) + "\n")
	}
	line(0, "version: 2")
	some := management != ""
	for _, l := range links {
		some = some || l.found()
	}
	if some {
		line(0, "ethernets:")
	}
	if management != "" {
		b.WriteString(comment(indent+"  # ", "libvirt's network \"default\": for ssh and packages, never for the "+
			"lab's traffic."))
		line(1, "rackless-management:")
		line(2, "match:")
		line(3, "macaddress: %s", yamlQuote(management))
		line(2, "dhcp4: true")
	}
	for _, l := range links {
		b.WriteString(comment(indent+"  # ", l.why))
		out, depth := line, 1
		if !l.found() {
			out = func(depth int, format string, args ...any) {
				line(1, "# "+strings.Repeat("  ", depth-1)+format, args...)
			}
		}
		out(depth, "%s:", l.id)
		out(depth+1, "match:")
		switch {
		case l.mac != "":
			out(depth+2, "macaddress: %s", yamlQuote(l.mac))
		case l.driver != "":
			out(depth+2, "driver: %s", yamlQuote(l.driver))
		default:
			out(depth+2, "macaddress: \"FILL IN\"")
		}
		out(depth+1, "mtu: %d", l.mtu)
		out(depth+1, "addresses: [%s]", yamlQuote(l.addr))
		// No gateway: a default route over the fabric would take the node's other traffic with it.
		out(depth+1, "dhcp4: false")
		out(depth+1, "dhcp6: false")
		out(depth+1, "accept-ra: false")
		out(depth+1, "optional: true")
	}
	return b.String()
}

// keyfile returns a NetworkManager connection.
func (v *view) keyfile(l link) string {
	var b strings.Builder
	b.WriteString(v.header("For /etc/NetworkManager/system-connections of the node, with mode 0600: then nmcli " +
		"connection reload, nmcli connection up " + l.id + ". " + l.why))
	b.WriteString("[connection]\nid=" + l.id + "\ntype=ethernet\n")
	if !l.found() {
		b.WriteString("autoconnect=false\n")
	}
	b.WriteString("\n[ethernet]\n")
	if !l.found() {
		b.WriteString("# mac-address=\n")
	}
	if l.mac != "" {
		b.WriteString("mac-address=" + l.mac + "\n")
	}
	b.WriteString("mtu=" + strconv.Itoa(l.mtu) + "\n")
	if l.mac == "" && l.driver != "" {
		b.WriteString("\n[match]\ndriver=" + l.driver + ";\n")
	}
	b.WriteString("\n[ipv4]\nmethod=manual\naddress1=" + l.addr + "\n")
	b.WriteString(comment("# ", "No default route over the fabric."))
	b.WriteString("never-default=true\n\n[ipv6]\n")
	b.WriteString(comment("# ", "RDMA has GIDs of link-local addresses in any case."))
	b.WriteString("method=link-local\n")
	return b.String()
}

// packages are what a node needs for RDMA and for looking at itself; the same names in Debian,
// Ubuntu, Fedora and RHEL. One unknown name would make cloud-init install none.
func packages() []string {
	return []string{"ethtool", "infiniband-diags", "numactl", "pciutils", "perftest", "qemu-guest-agent", "rdma-core"}
}

// userData returns what cloud-init does in a node. Its first line has to be #cloud-config.
func (v *view) userData(node string, links []link) string {
	var b strings.Builder
	b.WriteString("#cloud-config\n")
	b.WriteString(v.header("For cloud-init (NoCloud), in node " + node +
		". There is no password and no key here: put your own public key below, or there is no way in but the " +
		"guest agent."))
	b.WriteString("hostname: " + yamlQuote(node) + "\n")
	b.WriteString("# ssh_authorized_keys:\n#   - ssh-ed25519 AAAA... you@example.org\n\n")
	b.WriteString("package_update: true\npackages:\n")
	for _, p := range packages() {
		b.WriteString("  - " + p + "\n")
	}
	b.WriteString("\nwrite_files:\n")
	file := func(path, mode, why, content string) {
		b.WriteString(comment("  # ", why))
		fmt.Fprintf(&b, "  - path: %s\n    permissions: %s\n    content: |\n", path, yamlQuote(mode))
		for l := range strings.Lines(content) {
			if strings.TrimSpace(l) == "" {
				b.WriteString("\n")
				continue
			}
			b.WriteString("      " + l)
		}
	}
	file("/usr/local/bin/rackless-gid", "0755", "Finds the GID for a test by its content: the index differs from "+
		"node to node.", string(v.gidScript()))
	file("/etc/modules-load.d/rackless.conf", "0644", "What user space needs to reach RDMA devices.",
		"ib_uverbs\nrdma_ucm\n")
	file("/etc/security/limits.d/90-rackless.conf", "0644", "RDMA pins the memory that it registers.",
		"* soft memlock unlimited\n* hard memlock unlimited\n")
	if len(links) > 1 {
		file("/etc/sysctl.d/90-rackless.conf", "0644",
			"Several NICs: each answers ARP for its own addresses only, and asks with its own. Linux otherwise "+
				"answers for any address of the node by any NIC, and RDMA then "+
				"goes to the wrong port.", "net.ipv4.conf.all.arp_ignore = 1\nnet.ipv4.conf.all.arp_announce = 2\n")
	}
	b.WriteString(comment("  # ", "The nodes by name."))
	b.WriteString("  - path: /etc/hosts\n    append: true\n    content: |\n")
	for i := range v.plan.Nodes {
		for k, p := range v.ports[i] {
			name := v.plan.Nodes[i].Name
			if k > 0 {
				name += "-" + p.nic.Name
			}
			b.WriteString("      " + p.nic.Addr.Addr().String() + " " + oneLine(name) + "\n")
		}
	}
	b.WriteString("\nruncmd:\n")
	b.WriteString(comment("  # ", "Two packages have other names on either side: ibv_devinfo is in ibverbs-utils or "+
		"libibverbs-utils."))
	b.WriteString("  - command -v ibv_devinfo || apt-get install -y ibverbs-utils || dnf install -y libibverbs-utils " +
		"|| true\n")
	b.WriteString("  - modprobe -a ib_uverbs rdma_ucm || true\n")
	if len(links) > 1 {
		b.WriteString("  - sysctl --system\n")
	}
	b.WriteString("  - systemctl enable --now qemu-guest-agent || true\n")
	return b.String()
}

// gidScript returns the program that finds GIDs.
func (v *view) gidScript() []byte {
	return slices.Concat([]byte("#!/bin/sh\n"), []byte(v.header("Finds the RoCE v2 GID of an address.")),
		[]byte(shellPart("gid")))
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
