package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

func TestReachFrom(t *testing.T) {
	const (
		fabric = "see the findings of these nodes; if they have none, whether the switch holds their ports: " +
			"rackless link show pair"
		command = "fping -M -r 3 -t 1000 -i 1 -b 4172 10.0.0.2"
		badSize = "fping: data size 99999 not valid, must be lower than 65488\n"
	)
	tests := []struct {
		name           string
		nodes          int
		code           int
		stdout, stderr string
		status         finding.Status
		have, fix      string
	}{
		{"every peer answers", 3, 0, "10.0.0.2 is alive\n10.0.0.3 is alive\n", "", finding.OK, "2 of 2", ""},
		{"answers come in another order", 3, 0, "10.0.0.3 is alive\n10.0.0.2 is alive\n", "", finding.OK, "2 of 2", ""},
		{"a peer is silent", 3, 1, "@fping-silent.stdout", "@fping-silent.stderr", finding.Failed,
			"1 of 2, silent: vm02 (10.0.0.3)", fabric},
		{"the silent are named in the lab's order", 3, 1, "10.0.0.3 is unreachable\n10.0.0.2 is unreachable\n", "",
			finding.Failed,
			"0 of 2, silent: vm01 (10.0.0.2), vm02 (10.0.0.3)", fabric},
		{"the node's own MTU is too small", 2, 1, "10.0.0.2 is unreachable\n",
			"10.0.0.2: error while sending ping: Message too long\n", finding.Failed,
			"0 of 1, silent: vm01 (10.0.0.2); message too long for eth0", "in the node: ip link set eth0 mtu 4200"},
		{"fping refuses its arguments with the status of a silent peer", 2, 1, "", badSize, finding.Unknown,
			"fping says nothing of 10.0.0.2: exit status 1: " + strings.TrimSpace(badSize), "in the node: " + command},
		{"fping cannot open a socket", 2, 4, "", "fping: can't create socket (must run as root?)\n", finding.Unknown,
			"fping says nothing of 10.0.0.2: exit status 4: fping: can't create socket (must run as root?)",
			"in the node: " + command},
		{"fping says something of others only", 3, 0, "10.0.0.2 is alive\n", "", finding.Unknown,
			"fping says nothing of 10.0.0.3: exit status 0: ", "in the node: " + command + " ..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeLab(t, testLab(t, tt.nodes, 1))
			read := func(s string) string {
				if name, ok := strings.CutPrefix(s, "@"); ok {
					return recorded(t, name)
				}
				return s
			}
			f.nodes["vm00"].fping = func(addrs []string) (bench.Output, error) {
				if len(addrs) != tt.nodes-1 {
					t.Errorf("fping of %q", addrs)
				}
				return prints(tt.code, read(tt.stdout), read(tt.stderr))
			}
			got := ReachFrom(t.Context(), f.lab, 0, f)
			want := finding.Finding{ID: IDReach, Subject: "vm00",
				Title: "peers answer at MTU 4200 unfragmented", Status: tt.status, Have: tt.have,
				Want: map[int]string{2: "1 of 1", 3: "2 of 2"}[tt.nodes], Evidence: command +
					map[int]string{3: " ..."}[tt.nodes], Fix: tt.fix}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTheNICWhoseMTUIsTooSmallIsNamed(t *testing.T) {
	line := func(addr string) string { return addr + ": error while sending ping: Message too long\n" }
	tests := []struct{ name, stderr, want string }{
		{"none", "", ""},
		{"the first", line("10.0.0.2"), "eth0"},
		{"the second", line("10.0.1.2") + line("10.0.1.3"), "eth1"},
		{"both", line("10.0.1.2") + line("10.0.0.2"), "eth0, eth1"},
		{"another complaint", "ICMP Host Unreachable from 10.0.0.1 for ICMP Echo sent to 10.0.0.3\n10.0.0.3: error " +
			"while sending ping: No route to host\n", ""},
		{"an address that no NIC has a way to", line("192.0.2.1"), ""},
		{"no address", "fping: Message too long\n", ""},
	}
	n := testLab(t, 3, 2).Nodes[0]
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(tooLong(n, tt.stderr), ", "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	f := newFakeLab(t, testLab(t, 2, 2))
	f.nodes["vm00"].fping = func([]string) (bench.Output, error) {
		return prints(1, "10.0.0.2 is unreachable\n10.0.1.2 is unreachable\n", line("10.0.1.2")+line("10.0.0.2"))
	}
	got := ReachFrom(t.Context(), f.lab, 0, f)
	if got.Fix != "in the node: ip link set eth0 mtu 4200; ip link set eth1 mtu 4200" || !strings.HasSuffix(got.Have,
		"; message too long for eth0, eth1") {
		t.Errorf("got %+v", got)
	}
}

func TestPeersAreTheAddressesOnTheNodesOwnNetworks(t *testing.T) {
	l, err := lab.Parse("test.yaml",
		[]byte("name: pair\nnodes:\n  one: {nics: 1}\n  none: {nics: 0}\n  two: {count: 2, nics: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int {
		return slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == name })
	}
	addr := func(node string, nic int) netip.Addr { return l.Nodes[at(node)].NICs[nic].Addr.Addr() }
	for _, tt := range []struct {
		node string
		but  []lab.Node
		want []netip.Addr
	}{
		{"one", nil, []netip.Addr{addr("two00", 0), addr("two01", 0)}},
		{"none", nil, nil},
		{"two00", nil, []netip.Addr{addr("one", 0), addr("two01", 0), addr("two01", 1)}},
		{"two00", l.Nodes[:at("one")+1], []netip.Addr{addr("two01", 0), addr("two01", 1)}},
	} {
		if diff := cmp.Diff(tt.want, Peers(l, l.Nodes[at(tt.node)], tt.but...), cmpopts.EquateEmpty(),
			cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s but %d (-want +got):\n%s", tt.node, len(tt.but), diff)
		}
	}
	f := newFakeLab(t, l)
	said := fmt.Sprintf("%v is alive\n%v is %%s\n", addr("two00", 0), addr("two01", 0))
	for what, want := range map[string]string{
		"alive": "2 of 2", "unreachable": fmt.Sprintf("1 of 2, silent: two01 (%v)", addr("two01", 0)),
	} {
		f.nodes["one"].fping = func([]string) (bench.Output, error) { return prints(0, fmt.Sprintf(said, what), "") }
		if got := ReachFrom(t.Context(), l, at("one"), f); got.Have != want || (got.Status == finding.OK) != (what ==
			"alive") {
			t.Errorf("%s: %s, %s, want %s", what, got.Status, got.Have, want)
		}
	}
	if got := ReachFrom(t.Context(), l, at("none"), f); got.Status != finding.OK || got.Have != "no peers" {
		t.Errorf("a node without a NIC: %s, %s", got.Status, got.Have)
	}
}

func TestPingPayload(t *testing.T) {
	l := testLab(t, 2, 1)
	for mtu, want := range map[int]int{1280: 1252, 1500: 1472, 4200: 4172, 9216: 9188} {
		l.Fabric.MTU = mtu
		if got := PingPayload(l); got != want {
			t.Errorf("MTU %d: payload %d, want %d", mtu, got, want)
		}
	}
}
