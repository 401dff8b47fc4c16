package checks

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

// ipv4Headers are 20 bytes of IPv4 and 8 of ICMP.
const ipv4Headers = 28

// reachTimeout is in milliseconds. Answers may take long, but three lost ones are no accident.
const reachTimeout = 1000

// PingPayload fills the lab's MTU, in bytes.
func PingPayload(l *lab.Lab) int { return l.Fabric.MTU - ipv4Headers }

// Peers returns the addresses of other nodes, except but, on networks of the node's own NICs.
func Peers(l *lab.Lab, me lab.Node, but ...lab.Node) []netip.Addr {
	var peers []netip.Addr
	for _, n := range l.Nodes {
		if !slices.ContainsFunc(but, func(b lab.Node) bool { return b.Name == n.Name }) {
			peers = append(peers, reachable(me, n)...)
		}
	}
	return peers
}

// reachable returns a peer's addresses on networks of the node: labs do not route between networks.
func reachable(me, peer lab.Node) []netip.Addr {
	if me.Name == peer.Name {
		return nil
	}
	return slices.DeleteFunc(addrsOf(peer), func(a netip.Addr) bool {
		return !slices.ContainsFunc(me.NICs, func(n lab.NIC) bool { return n.Addr.Contains(a) })
	})
}

// Reach pings every node from every other at the full MTU, unfragmented, with one process and one finding per node.
func Reach(ctx context.Context, l *lab.Lab, r Reader) []finding.Finding {
	out := make([]finding.Finding, len(l.Nodes))
	parallel(len(l.Nodes), func(i int) { out[i] = ReachFrom(ctx, l, i, r) })
	return out
}

// reachCommand lacks the addresses. Its arguments:
//
//	-M    forbids fragments
//	-r 3  three more tries for an address that does not answer: a first packet may meet an
//	      address resolution that is still under way
//	-t    milliseconds for the first try, each further one takes half as long again
//	-i 1  millisecond between two packets, the least
//	-b    payload in bytes
//
// -a, which prints only the addresses that answer, would hide "Message too long".
func reachCommand(l *lab.Lab) []string {
	return []string{"fping", "-M", "-r", "3", "-t", strconv.Itoa(reachTimeout), "-i", "1", "-b",
		strconv.Itoa(PingPayload(l))}
}

// ReachFrom is Reach from one node.
func ReachFrom(ctx context.Context, l *lab.Lab, from int, r Reader) finding.Finding {
	me := l.Nodes[from]
	peers := Peers(l, me)
	argv := reachCommand(l)
	f := finding.Finding{ID: IDReach, Subject: me.Name,
		Title: fmt.Sprintf("peers answer at MTU %d unfragmented", l.Fabric.MTU), Status: finding.OK,
		Want: fmt.Sprintf("%d of %d", len(peers), len(peers))}
	if len(peers) == 0 {
		f.Have = "no peers"
		return f
	}
	f.Evidence = strings.Join(argv, " ") + " " + peers[0].String()
	if len(peers) > 1 {
		f.Evidence += " ..."
	}
	argv = append(argv, lists.Map(peers, netip.Addr.String)...)
	res, err := r.Exec(ctx, me.Name, argv)
	if err != nil {
		f.Status, f.Have, f.Fix = finding.Unknown, err.Error(), "rackless ls shows whether the node runs"
		return f
	}
	said := make(map[string]bool) // whether the address is alive
	for line := range strings.Lines(string(res.Stdout)) {
		if addr, what, ok := strings.Cut(strings.TrimSpace(line), " is "); ok {
			said[addr] = what == "alive"
		}
	}
	var silent []string
	for _, n := range l.Nodes { // in the lab's order
		for _, a := range reachable(me, n) {
			alive, ok := said[a.String()]
			if !ok { // wrong arguments have the same exit status
				f.Status, f.Have = finding.Unknown, fmt.Sprintf("fping says nothing of %s: exit status %d: %s", a,
					res.ExitCode, bytes.TrimSpace(res.Stderr))
				f.Fix = inNode("%s", f.Evidence)
				return f
			}
			if !alive {
				silent = append(silent, fmt.Sprintf("%s (%s)", n.Name, a))
			}
		}
	}
	f.Have = fmt.Sprintf("%d of %d", len(peers)-len(silent), len(peers))
	if len(silent) == 0 {
		return f
	}
	f.Status = finding.Failed
	f.Have += ", silent: " + strings.Join(silent, ", ")
	f.Fix = "see the findings of these nodes; if they have none, whether the switch holds their ports: " +
		"rackless link show " + l.Name
	// The node's own MTU is too small.
	if nics := tooLong(me, string(res.Stderr)); len(nics) > 0 {
		fixes := lists.Map(nics,
			func(nic string) string { return fmt.Sprintf("ip link set %s mtu %d", nic, l.Fabric.MTU) })
		f.Have += "; message too long for " + strings.Join(nics, ", ")
		f.Fix = inNode("%s", strings.Join(fixes, "; "))
	}
	return f
}

// tooLong reads "10.0.0.1: error while sending ping: Message too long".
func tooLong(n lab.Node, stderr string) []string {
	var nics []string
	for _, nic := range n.NICs {
		for line := range strings.Lines(stderr) {
			addr, err := netip.ParseAddr(strings.SplitN(line, ":", 2)[0])
			if err == nil && strings.Contains(line, "Message too long") && nic.Addr.Contains(addr) {
				nics = append(nics, nic.Name)
				break
			}
		}
	}
	return nics
}
