package inspect

import (
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// Source: include/uapi/linux/route.h.
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// readRoutes reads the default routes, because functions that connect the host must not be assigned. If a table was
// read, the list is not nil.
func (r *reader) readRoutes() {
	var routes []topology.Route
	// A dump may lack the target of the link /proc/net.
	if text, ok := r.firstText("proc/self/net/route", "proc/net/route"); ok {
		routes = append([]topology.Route{}, parseRoutes4(text, isBigEndian(r.h.System.Arch))...)
	}
	if text, ok := r.firstText("proc/self/net/ipv6_route", "proc/net/ipv6_route"); ok {
		routes = append(append([]topology.Route{}, routes...), parseRoutes6(text)...)
	}
	net := netdevs{reader: r}
	for i := range routes {
		routes[i].PCI = append(routes[i].PCI, lists.Map(net.functions(routes[i].Netdev), topology.PCIAddr.String)...)
	}
	metric := func(r topology.Route) int {
		if r.Metric == nil {
			return 0
		}
		return *r.Metric
	}
	slices.SortStableFunc(routes, func(a, b topology.Route) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(metric(a), metric(b)),
			cmp.Compare(a.Netdev, b.Netdev), cmp.Compare(a.Gateway, b.Gateway))
	})
	r.h.Routes = routes
}

func isBigEndian(arch string) bool {
	switch arch {
	case "s390", "s390x", "ppc", "ppc64", "sparc", "sparc64", "m68k", "mips", "mips64", "parisc", "parisc64", "armeb",
		"aarch64_be":
		return true
	}
	return false
}

// parseRoutes4 reads /proc/net/route. Addresses are four bytes in network order printed as a native number, so they
// look reversed on little-endian machines. Malformed lines are skipped.
//
// Source: net/ipv4/fib_trie.c, fib_route_seq_show.
func parseRoutes4(text string, bigEndian bool) []topology.Route {
	var out []topology.Route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" || !isRoute(f[3]) {
			continue
		}
		gateway, err := hex.DecodeString(f[2])
		if err == nil && !bigEndian {
			slices.Reverse(gateway)
		}
		out = append(out, newRoute("ipv4", f[0], gateway, f[6], 10))
	}
	return out
}

// parseRoutes6 reads /proc/net/ipv6_route: destination, prefix length, source, prefix length, gateway, metric,
// references, use, flags, device, all in hexadecimal.
//
// Source: net/ipv6/route.c, ipv6_route_native_seq_show.
func parseRoutes6(text string) []topology.Route {
	var out []topology.Route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != "00" || f[3] != "00" || strings.Trim(f[0], "0") != "" || !isRoute(f[8]) ||
			f[9] == "lo" {
			continue
		}
		gateway, _ := hex.DecodeString(f[4])
		out = append(out, newRoute("ipv6", f[9], gateway, f[5], 16))
	}
	return out
}

// newRoute leaves out a gateway that is invalid or zero (a route to a link), and an invalid metric.
func newRoute(family, netdev string, gateway []byte, metric string, base int) topology.Route {
	route := topology.Route{Family: family, Netdev: netdev}
	if a, ok := netip.AddrFromSlice(gateway); ok && !a.IsUnspecified() && a.Is4() == (family == "ipv4") {
		route.Gateway = a.String()
	}
	if v, err := strconv.ParseUint(metric, base, 32); err == nil {
		route.Metric = new(int(v))
	}
	return route
}

// isRoute rejects routes that are down and reject routes.
func isRoute(flags string) bool {
	v, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && v&routeUp != 0 && v&routeReject == 0
}

type netdevs struct {
	*reader
	vlans map[string]string // nil until read
}

// Source: Documentation/ABI/testing/sysfs-class-net.
const netClass = "sys/class/net"

// functions looks through bridges, bonds, teams and VLANs, and tolerates loops.
func (n *netdevs) functions(name string) []topology.PCIAddr {
	var out []topology.PCIAddr
	seen := map[string]bool{}
	for next := []string{name}; len(next) > 0; {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[name] || !isFileName(name) {
			continue
		}
		seen[name] = true
		if a, ok := n.functionBehind(netClass+"/"+name, lastFunction); ok {
			out = lists.Add(out, a)
			continue
		}
		next = append(next, n.below(name)...)
	}
	slices.SortFunc(out, topology.PCIAddr.Compare)
	return out
}

func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

func (n *netdevs) below(name string) []string {
	p := netClass + "/" + name
	var out []string
	for _, entry := range n.dir(p) {
		if lower, ok := strings.CutPrefix(entry, "lower_"); ok {
			out = append(out, lower)
		}
	}
	if len(out) == 0 { // before Linux 3.14
		out = append(out, n.dir(p+"/brif")...)
		out = append(out, strings.Fields(n.word(p+"/bonding/slaves"))...)
		if lower := n.vlan(name); lower != "" {
			out = append(out, lower)
		}
	}
	if len(out) == 0 {
		out = n.openVSwitch(name)
	}
	return out
}

// vlan parses "eth0.5 | 5 | eth0" of /proc/net/vlan/config (net/8021q/vlanproc.c).
func (n *netdevs) vlan(name string) string {
	if n.vlans == nil {
		n.vlans = map[string]string{}
		text, _ := n.firstText("proc/self/net/vlan/config", "proc/net/vlan/config")
		for line := range strings.Lines(text) {
			if f := strings.Split(line, "|"); len(f) == 3 {
				n.vlans[strings.TrimSpace(f[0])] = strings.TrimSpace(f[2])
			}
		}
	}
	return n.vlans[name]
}

// openVSwitch returns the ports that a bridge may send through. The kernel shows all bridges as one, "ovs-system"; only
// the daemon knows the ports of each. A bridge has the MAC address of one of its ports, so ports with the same address
// are returned, or else all.
func (n *netdevs) openVSwitch(name string) []string {
	const system = "ovs-system"
	p := netClass + "/" + name
	if name == system || !n.exists(netClass+"/"+system) || !n.exists(p) || n.exists(p+"/master") {
		return nil
	}
	address := n.word(p + "/address")
	var ports, same []string
	for _, port := range n.dir(netClass) {
		if n.linkBase(netClass+"/"+port+"/master") != system {
			continue
		}
		ports = append(ports, port)
		if address != "" && n.word(netClass+"/"+port+"/address") == address {
			same = append(same, port)
		}
	}
	if len(same) > 0 {
		return same
	}
	return ports
}
