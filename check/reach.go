package check

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rackless/rackless/lab"
)

// ipv4Headers is what ping's payload leaves of an MTU: 20 bytes of IPv4 and 8 of ICMP.
const ipv4Headers = 28

// reachTimeout is how long a ping may take, in milliseconds: on a busy emulated lab answers take long, and three lost ones are no accident.
const reachTimeout = 1000

// PingPayload returns the payload in bytes of a ping that fills the lab's MTU.
func PingPayload(l *lab.Lab) int { return l.Fabric.MTU - ipv4Headers }

// Peers returns the addresses of all other nodes of the lab.
func Peers(l *lab.Lab, node string) []netip.Addr {
	var peers []netip.Addr
	for _, n := range l.Nodes {
		if n.Name != node {
			peers = append(peers, addrsOf(n)...)
		}
	}
	return peers
}

// Reach pings every node from every other at the full MTU with fragmentation forbidden, one process a node, and returns one finding a node.
func Reach(ctx context.Context, l *lab.Lab, r Reader) []Finding {
	out := make([]Finding, len(l.Nodes))
	parallel(len(l.Nodes), func(i int) { out[i] = ReachFrom(ctx, l, i, r) })
	return out
}

// ReachFrom is Reach for the one node with that index.
func ReachFrom(ctx context.Context, l *lab.Lab, from int, r Reader) Finding {
	// -r 3: three more tries for what does not answer, since a first packet may meet an address resolution that is still under way.
	argv := []string{"fping", "-a", "-M", "-r", "3", "-t", strconv.Itoa(reachTimeout), "-i", "1", "-b", strconv.Itoa(PingPayload(l))}
	peers := make(map[string]string) // node by address
	for j, n := range l.Nodes {
		if j == from {
			continue
		}
		for _, a := range addrsOf(n) {
			peers[a.String()] = n.Name
			argv = append(argv, a.String())
		}
	}
	me := l.Nodes[from].Name
	f := Finding{ID: IDReach, Subject: me, Title: fmt.Sprintf("peers answer at MTU %d unfragmented", l.Fabric.MTU), Status: OK,
		Want: fmt.Sprintf("%d of %d", len(peers), len(peers)), Evidence: strings.Join(argv[:min(len(argv), 12)], " ")}
	if len(argv) > 12 {
		f.Evidence += " ..."
	}
	if len(peers) == 0 {
		f.Have, f.Evidence = "no peers", ""
		return f
	}
	res, err := r.Exec(ctx, me, argv)
	if err != nil {
		f.Status, f.Have, f.Fix = Unknown, err.Error(), "rackless ls shows whether the node runs"
		return f
	}
	// -a prints the addresses that answered, one a line.
	for line := range strings.Lines(string(res.Stdout)) {
		delete(peers, strings.TrimSpace(line))
	}
	f.Have = fmt.Sprintf("%d of %d", len(argv)-11-len(peers), len(argv)-11)
	if len(peers) == 0 {
		return f
	}
	var silent []string
	for _, n := range l.Nodes { // in the lab's order
		for _, a := range addrsOf(n) {
			if _, is := peers[a.String()]; is {
				silent = append(silent, fmt.Sprintf("%s (%s)", n.Name, a))
			}
		}
	}
	f.Status = Failed
	f.Have += ", silent: " + strings.Join(silent, ", ")
	f.Fix = "the MTU must be the same on every node and the switch port connected: see rackless fabric " + l.Name
	if bytes.Contains(res.Stderr, []byte("Message too long")) {
		f.Fix = fmt.Sprintf("the link's own MTU is below %d: in the node, ip link set mtu %d", l.Fabric.MTU, l.Fabric.MTU)
	}
	return f
}
