package checks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func TestAHealthyLabHasAFindingForEveryCheckInTheLabsOrder(t *testing.T) {
	f := newFakeLab(t, testLab(t, 2, 1))
	var did []string
	got, err := Lab(t.Context(), f.lab, f, nil, func(what string) { did = append(did, what) })
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, g := range got {
		lines = append(lines, g.ID+" | "+g.Subject+" | "+string(g.Status)+" | "+g.Have)
	}
	want := []string{
		"link | vm00 eth0 | ok | operstate up, carrier 1",
		"link-mtu | vm00 eth0 | ok | 4200",
		"address | vm00 eth0 | ok | " + f.lab.Nodes[0].NICs[0].MAC,
		"rdma-port | vm00 rxe0 | ok | ACTIVE on Ethernet",
		"rdma-active-mtu | vm00 rxe0 | ok | 4096",
		"rdma-gid | vm00 rxe0 | ok | index 1",
		"link | vm01 eth0 | ok | operstate up, carrier 1",
		"link-mtu | vm01 eth0 | ok | 4200",
		"address | vm01 eth0 | ok | " + f.lab.Nodes[1].NICs[0].MAC,
		"rdma-port | vm01 rxe0 | ok | ACTIVE on Ethernet",
		"rdma-active-mtu | vm01 rxe0 | ok | 4096",
		"rdma-gid | vm01 rxe0 | ok | index 1",
		"identity | lab pair | ok | 2 nodes, nothing shared",
		"reach | vm00 | ok | 1 of 1",
		"reach | vm01 | ok | 1 of 1",
		"rdma-traffic | vm00 -> vm01 | ok | vm00 sent 41, received 41 packets; vm01 sent 41, received 41 packets",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := []string{"read the nodes", "reach every peer at full MTU",
		"send RDMA messages around the ring"}; !slices.Equal(did, want) {
		t.Errorf("progress %q, want %q", did, want)
	}
	if got := checkLab(t, newFakeLab(t, testLab(t, 2, 1))); len(got) != len(want) {
		t.Errorf("%d findings the second time", len(got))
	}
}

const addRXE0 = `in the node: rdma link add rxe0 type rxe netdev eth0 ` +
	`(modprobe crc32_generic if it says "No such file or directory")`

func TestFaultsOfANode(t *testing.T) {
	const again = "rackless ls shows whether the node runs"
	noTraffic := func(why, fix string) string {
		return "rdma-traffic | vm00 -> vm01 | unknown | not sent: " + why + " | " + fix
	}
	tests := []struct {
		name string
		make func(t *testing.T, f *fakeLab, n *fakeNode)
		want []string
	}{
		{"the link is down, so it has no carrier to read", func(t *testing.T, f *fakeLab, n *fakeNode) {
			d := n.facts.Netdev("eth0")
			d.State, d.Carrier = "down", nil
			port1(n.facts, "rxe0").State = "DOWN"
		}, []string{
			"link | vm01 eth0 | failed | operstate down | in the node: ip link set eth0 up",
			"rdma-port | vm01 rxe0 | failed | DOWN on Ethernet | in the node: ip link set eth0 up",
			noTraffic("vm01 eth0: link up: operstate down", "in the node: ip link set eth0 up"),
		}},
		{"the link is up and nothing is at its other end", func(t *testing.T, f *fakeLab, n *fakeNode) {
			d := n.facts.Netdev("eth0")
			d.State, d.Carrier = "down", new(false)
		}, []string{
			"link | vm01 eth0 | failed | operstate down, carrier 0 | rackless link show pair shows the port: " +
				"rackless " +
				"link set pair --up opens one that is set down, and rackless up LAB.yaml starts a dead switch again",
			noTraffic("vm01 eth0: link up: operstate down, carrier 0",
				"rackless link show pair shows the port: rackless link set pair --up opens one that is set down, and "+
					"rackless up LAB.yaml starts a "+
					"dead switch again"),
		}},
		{"the MTU is 1500, so the IB MTU is 1024 and pings do not fit", func(t *testing.T, f *fakeLab, n *fakeNode) {
			n.facts.Netdev("eth0").MTU = new(1500)
			n.devinfo = func(string) (bench.Output, error) {
				return prints(0, recorded(t, "ibv_devinfo-mtu1500.txt"), "")
			}
			n.fping = func([]string) (bench.Output, error) {
				return prints(1, recorded(t, "fping-too-long.stdout"), recorded(t, "fping-too-long.stderr"))
			}
		}, []string{
			"link-mtu | vm01 eth0 | failed | 1500 | in the node: ip link set eth0 mtu 4200",
			"rdma-active-mtu | vm01 rxe0 | failed | 1024 | in the node: ip link set eth0 mtu 4200",
			"reach | vm01 | failed | 0 of 1, silent: vm00 (10.0.0.1); message too long for eth0 | in the node: ip " +
				"link set eth0 mtu 4200",
			noTraffic("vm01 eth0: link MTU: 1500", "in the node: ip link set eth0 mtu 4200"),
		}},
		{"the MAC address is another", func(t *testing.T, f *fakeLab, n *fakeNode) {
			f.lab.Nodes[1].NICs[0].MAC = "52:54:00:00:00:01"
			n.facts.Netdev("eth0").MAC = "52:54:00:00:00:99"
		}, []string{
			"address | vm01 eth0 | failed | 52:54:00:00:00:99 | in the node: ip link set eth0 address " +
				"52:54:00:00:00:01",
		}},
		{"the network device is missing", func(t *testing.T, f *fakeLab, n *fakeNode) {
			removeNetdev(n.facts, "eth0")
		}, []string{
			"link | vm01 eth0 | failed | no such device | rackless down pair, then up: nodes get their devices when " +
				"they are made",
			"link-mtu | vm01 eth0 | failed | no such device | rackless down pair, then up: nodes get their devices " +
				"when they are made",
			"address | vm01 eth0 | failed | no such device | rackless down pair, then up: nodes get their devices " +
				"when they are made",
			noTraffic("vm01 eth0: link up: no such device",
				"rackless down pair, then up: nodes get their devices when they are made"),
		}},
		{"the RDMA device is missing", func(t *testing.T, f *fakeLab, n *fakeNode) {
			removeRDMA(n.facts, "rxe0")
		}, []string{
			"rdma-port | vm01 rxe0 | failed | no such device | " + addRXE0,
			"rdma-active-mtu | vm01 rxe0 | unknown | no such device | " + addRXE0,
			"rdma-gid | vm01 rxe0 | unknown | no such device | " + addRXE0,
			noTraffic("vm01 rxe0: RDMA port active: no such device", addRXE0),
		}},
		{"the port's state has no number", func(t *testing.T, f *fakeLab, n *fakeNode) {
			port1(n.facts, "rxe0").State = "INIT"
		}, []string{
			"rdma-port | vm01 rxe0 | failed | INIT on Ethernet | in the node: ip link set eth0 up",
			noTraffic("vm01 rxe0: RDMA port active: INIT on Ethernet", "in the node: ip link set eth0 up"),
		}},
		{"the port is InfiniBand", func(t *testing.T, f *fakeLab, n *fakeNode) {
			port1(n.facts, "rxe0").LinkLayer = "InfiniBand"
		}, []string{
			"rdma-port | vm01 rxe0 | failed | ACTIVE on InfiniBand | in the node: ip link set eth0 up",
			noTraffic("vm01 rxe0: RDMA port active: ACTIVE on InfiniBand", "in the node: ip link set eth0 up"),
		}},
		{"ibv_devinfo knows no such device", func(t *testing.T, f *fakeLab, n *fakeNode) {
			n.devinfo = func(string) (bench.Output, error) {
				return prints(255, "", recorded(t, "ibv_devinfo-missing.stderr"))
			}
		}, []string{
			"rdma-active-mtu | vm01 rxe0 | unknown | exit status 255, no active_mtu in the output: IB device 'rxe7' " +
				"wasn't found | in the node: ibv_devinfo -d rxe0; dmesg",
			noTraffic("vm01 rxe0: active IB MTU: exit status 255, no active_mtu in the output: IB device 'rxe7' "+
				"wasn't found", "in the node: ibv_devinfo -d rxe0; dmesg"),
		}},
		{"ibv_devinfo prints another layout", func(t *testing.T, f *fakeLab, n *fakeNode) {
			n.devinfo = func(string) (bench.Output, error) { return prints(0, "hca_id: rxe0\n\tactive_mtu:\n", "") }
		}, []string{
			"rdma-active-mtu | vm01 rxe0 | unknown | exit status 0, no active_mtu in the output | in the node: " +
				"ibv_devinfo -d rxe0; dmesg",
			noTraffic("vm01 rxe0: active IB MTU: exit status 0, no active_mtu in the output",
				"in the node: ibv_devinfo -d rxe0; dmesg"),
		}},
		{"ibv_devinfo cannot be run", func(t *testing.T, f *fakeLab, n *fakeNode) {
			n.devinfo = func(string) (bench.Output, error) { return bench.Output{}, errSilent }
		}, []string{
			"rdma-active-mtu | vm01 rxe0 | unknown | " + errSilent.Error() + " | " + again,
			noTraffic("vm01 rxe0: active IB MTU: "+errSilent.Error(), again),
		}},
		{"the address is gone, and its GID with it", func(t *testing.T, f *fakeLab, n *fakeNode) {
			p := port1(n.facts, "rxe0")
			p.GIDs = p.GIDs[:1]
		}, []string{
			"rdma-gid | vm01 rxe0 | failed | none | in the node: ip addr add 10.0.0.2/24 dev eth0",
			noTraffic("vm01 rxe0: RoCE v2 GID of 10.0.0.2: none", "in the node: ip addr add 10.0.0.2/24 dev eth0"),
		}},
		{"the address has a GID of RoCE v1 only", func(t *testing.T, f *fakeLab, n *fakeNode) {
			port1(n.facts, "rxe0").GIDs[1].Type = "IB/RoCE v1"
		}, []string{
			"rdma-gid | vm01 rxe0 | failed | only IB/RoCE v1 | in the node: rdma link delete rxe0, then rdma link " +
				"add rxe0 type rxe netdev eth0",
			noTraffic("vm01 rxe0: RoCE v2 GID of 10.0.0.2: only IB/RoCE v1",
				"in the node: rdma link delete rxe0, then rdma link add rxe0 type rxe netdev eth0"),
		}},
		{"the node does not answer at all", func(t *testing.T, f *fakeLab, n *fakeNode) {
			n.factsErr = errSilent
			n.fping = func([]string) (bench.Output, error) { return bench.Output{}, errSilent }
		}, []string{
			"link | vm01 | unknown | " + errSilent.Error() + " | rackless ls shows whether it runs; rackless up " +
				"LAB.yaml starts it again",
			"identity | lab pair | unknown | 1 of 2 nodes answer, nothing shared between them | rackless ls shows " +
				"which node does not run; rackless up LAB.yaml starts it again",
			"reach | vm01 | unknown | " + errSilent.Error() + " | " + again,
			noTraffic("vm01: node answers: "+errSilent.Error(),
				"rackless ls shows whether it runs; rackless up LAB.yaml starts it again"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeLab(t, testLab(t, 2, 1))
			tt.make(t, f, f.nodes["vm01"])
			if diff := cmp.Diff(tt.want, faults(checkLab(t, f))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestALinkThatLagsBehindItsCarrierIsReadAgainForAWhile(t *testing.T) {
	tests := []struct {
		name string
		lag  time.Duration
		want []string
	}{
		{"it follows within a second", time.Second, nil},
		{"it never follows", time.Hour, []string{"link | vm01 eth0 | failed | operstate unknown, carrier 1 | in the " +
			"node: ip link set eth0 up"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLab(t, 2, 1)
			synctest.Test(t, func(t *testing.T) {
				f := newFakeLab(t, l)
				f.nodes["vm01"].settles = time.Now().Add(tt.lag)
				started := time.Now()
				if diff := cmp.Diff(tt.want, faults(checkLab(t, f, IDLink))); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if took := time.Since(started); took > settleLimit+settlePause {
					t.Errorf("took %v", took)
				}
			})
		})
	}
	t.Run("it is not waited for after the end of the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeLab(t, testLab(t, 2, 1))
			f.nodes["vm01"].settles = time.Now().Add(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), settlePause/2)
			defer cancel()
			started := time.Now()
			if _, err := Lab(ctx, f.lab, f, nil, func(string) {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(started); took != settlePause/2 {
				t.Errorf("took %v", took)
			}
		})
	})
}

func TestWhatARealNodePrintsIsReadAsHealthy(t *testing.T) {
	if mtu, ok := activeMTU(recorded(t, "ibv_devinfo.txt")); mtu != "4096" || !ok {
		t.Errorf("active MTU %q, %v", mtu, ok)
	}
	n, err := facts.Parse([]byte(recorded(t, "facts.txt")))
	if err != nil {
		t.Fatal(err)
	}
	l := testLab(t, 2, 1)
	l.Nodes[0].NICs[0].MAC = "52:54:00:ca:ee:be"
	f := &fakeLab{lab: l, nodes: map[string]*fakeNode{"vm00": {facts: n}}}
	if _, got := nodeFindings(t.Context(), l, l.Nodes[0], f, true); len(faults(got)) > 0 || len(got) != 6 {
		t.Errorf("%d findings, of which not ok: %q", len(got), faults(got))
	}
}

func TestRulesOfHostsRunOnANode(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, new string // in the node's output
		want     []string
	}{
		{"a healthy node", "", "", nil},
		{"its GIDs are all of RoCE v1", "RoCE v2", "IB/RoCE v1", []string{"RL090 eth0"}},
		{"its only GIDs are link-local", "0000:0000:0000:0000:0000:ffff:0a00:0001",
			"fe80:0000:0000:0000:0000:0000:0000:0001",
			[]string{"RL091 eth0"}},
		{"its port is down and its link is up", "4: ACTIVE", "1: DOWN", []string{"RL092 eth0"}},
	} {
		text := recorded(t, "facts.txt")
		if tt.old != "" {
			text = strings.ReplaceAll(text, tt.old, tt.new)
		}
		n, err := facts.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		n.Complete()
		var got []string
		for _, f := range diagnose.Host(&n.Host) {
			got = append(got, f.ID+" "+f.Subject)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestTheGIDIsFoundWhereverItIsAndUsed(t *testing.T) {
	f := newFakeLab(t, testLab(t, 2, 1))
	d := port1(f.nodes["vm01"].facts, "rxe0")
	v2 := d.GIDs[1]
	v1 := v2
	v1.Type = "IB/RoCE v1"
	v1.Index, v2.Index = 2, 3
	d.GIDs = []topology.GID{d.GIDs[0], v1, v2}
	got := checkLab(t, f, IDGID, IDTraffic)
	if len(faults(got)) > 0 {
		t.Errorf("not ok: %q", faults(got))
	}
	if got[1].Have != "index 3" || !strings.Contains(got[1].Evidence,
		"2: ::ffff:10.0.0.2 IB/RoCE v1 eth0; 3: ::ffff:10.0.0.2 RoCE v2 eth0") {
		t.Errorf("got %+v", got[1])
	}
	if !strings.Contains(got[2].Evidence, " -g 1 ") { // the client's is unchanged
		t.Errorf("evidence %q", got[2].Evidence)
	}
}

func TestEveryNICOfANodeIsChecked(t *testing.T) {
	l := testLab(t, 2, 2)
	f := newFakeLab(t, l)
	if got := checkLab(t, f); len(faults(got)) > 0 || len(got) != 2*2*6+1+2+1 {
		t.Errorf("%d findings, of which not ok: %q", len(got), faults(got))
	}
	f = newFakeLab(t, l)
	f.nodes["vm00"].facts.Netdev("eth1").MTU = new(9000)
	removeRDMA(f.nodes["vm01"].facts, "rxe1")
	second := strings.NewReplacer("rxe0", "rxe1", "eth0", "eth1").Replace(addRXE0)
	want := []string{
		"link-mtu | vm00 eth1 | failed | 9000 | in the node: ip link set eth1 mtu 4200",
		"rdma-port | vm01 rxe1 | failed | no such device | " + second,
		"rdma-active-mtu | vm01 rxe1 | unknown | no such device | " + second,
		"rdma-gid | vm01 rxe1 | unknown | no such device | " + second,
	}
	if diff := cmp.Diff(want, faults(checkLab(t, f))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestALabOfOneNodeHasNoPeersAndSendsNothing(t *testing.T) {
	f := newFakeLab(t, testLab(t, 1, 1))
	got := checkLab(t, f)
	if len(faults(got)) > 0 || len(got) != 6+1+1 || got[7].Have != "no peers" {
		t.Errorf("got %d findings, not ok: %q, last %+v", len(got), faults(got), got[len(got)-1])
	}
	if want := []string{"vm00 ibv_devinfo"}; !slices.Equal(f.calls, want) {
		t.Errorf("ran %q, want %q", f.calls, want)
	}
}

func TestOnlyMakesTheChecksThatAreNamed(t *testing.T) {
	const silentNode = "link of vm01"
	tests := []struct {
		only []string
		want []string // "id of subject"
		runs []string // programs
	}{
		{[]string{IDLink}, []string{"link of vm00 eth0", "link of vm01 eth0"}, nil},
		{[]string{IDMTU, IDAddress}, []string{"link-mtu of vm00 eth0", "address of vm00 eth0", "link-mtu of vm01 eth0",
			"address of vm01 eth0"}, nil},
		{[]string{IDPort}, []string{"rdma-port of vm00 rxe0", "rdma-port of vm01 rxe0"}, nil},
		{[]string{IDIBMTU}, []string{"rdma-active-mtu of vm00 rxe0", "rdma-active-mtu of vm01 rxe0"},
			[]string{"ibv_devinfo"}},
		{[]string{IDGID}, []string{"rdma-gid of vm00 rxe0", "rdma-gid of vm01 rxe0"}, nil},
		{[]string{IDIdentity}, []string{"identity of lab pair"}, nil},
		{[]string{IDReach}, []string{"reach of vm00", "reach of vm01"}, []string{"fping"}},
		{[]string{IDTraffic}, []string{"rdma-traffic of vm00 -> vm01"}, []string{"ibv_devinfo", "ibv_rc_pingpong"}},
		{[]string{IDTraffic, IDLink}, []string{"link of vm00 eth0", "link of vm01 eth0",
			"rdma-traffic of vm00 -> vm01"}, []string{"ibv_devinfo", "ibv_rc_pingpong"}},
	}
	names := func(all []finding.Finding) []string {
		var out []string
		for _, f := range all {
			out = append(out, f.ID+" of "+f.Subject)
		}
		return out
	}
	asked := map[string]bool{}
	for _, tt := range tests {
		t.Run(strings.Join(tt.only, " and "), func(t *testing.T) {
			f := newFakeLab(t, testLab(t, 2, 1))
			if got := names(checkLab(t, f, tt.only...)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			var runs []string
			for _, c := range f.calls {
				_, program, _ := strings.Cut(c, " ")
				runs = append(runs, program)
			}
			slices.Sort(runs)
			if runs = slices.Compact(runs); !slices.Equal(runs, tt.runs) {
				t.Errorf("ran %q, want %q", runs, tt.runs)
			}

			f = newFakeLab(t, testLab(t, 2, 1))
			f.nodes["vm01"].facts.NICs = nil
			bad := faults(checkLab(t, f, tt.only...))
			if onDevice := tt.only[0] != IDIdentity && tt.only[0] != IDReach; onDevice != (len(bad) > 0) {
				t.Errorf("without devices, not ok: %q", bad)
			}

			f = newFakeLab(t, testLab(t, 2, 1))
			f.nodes["vm01"].factsErr = errSilent
			f.nodes["vm01"].fping = func([]string) (bench.Output, error) { return bench.Output{}, errSilent }
			got := checkLab(t, f, tt.only...)
			if len(faults(got)) == 0 {
				t.Error("all is ok with a node that does not answer")
			}
			if tt.only[0] != IDReach && !slices.Contains(names(got), silentNode) {
				t.Errorf("got %q, want %q too", names(got), silentNode)
			}
		})
		for _, id := range tt.only {
			asked[id] = true
		}
	}
	for _, id := range finding.Names(finding.Lab) {
		if !asked[id] && id != IDSwitchLinks { // checked in links_test.go
			t.Errorf("nobody asked for %s alone", id)
		}
	}
}

func TestIdentity(t *testing.T) {
	const fix = "rackless down pair, then up: nodes are told who they are when they start"
	tests := []struct {
		name string
		make func(a, b, c *facts.Node) // of three nodes
		want string                    // shared value, or ""
	}{
		{"nothing is shared", func(a, b, c *facts.Node) {}, ""},
		{"two have one host name", func(a, b, c *facts.Node) {
			b.Hostname = "vm00"
		}, "vm00 and vm01 have host name vm00"},
		{"two have one machine-id", func(a, b, c *facts.Node) {
			b.MachineID = "1"
			c.MachineID = "1"
		}, "vm01 and vm02 have machine-id 1"},
		{"two have one boot ID", func(a, b, c *facts.Node) { a.BootID = "1"; c.BootID = "1" },
			"vm00 and vm02 have boot ID 1"},
		{"two have one random state", func(a, b, c *facts.Node) {
			a.UUID = "5a5a"
			c.UUID = "5a5a"
		}, "vm00 and vm02 have random UUID 5a5a"},
		{"all have one random state", func(a, b, c *facts.Node) { a.UUID = "5a5a"; b.UUID = "5a5a"; c.UUID = "5a5a" },
			"vm00 and vm01 have random UUID 5a5a; vm00 and vm02 have random UUID 5a5a"},
		{"two have one MAC", func(a, b, c *facts.Node) {
			a.Netdev("eth0").MAC = "52:54:00:00:00:01"
			b.Netdev("eth0").MAC = "52:54:00:00:00:01"
		},
			"vm00 and vm01 have MAC 52:54:00:00:00:01"},
		{"two have one node GUID", func(a, b, c *facts.Node) {
			rdmaDev(b, "rxe0").NodeGUID = rdmaDev(a, "rxe0").NodeGUID
		},
			"vm00 and vm01 have node GUID 5054:00ff:fe00:0001"},
		{"two have one address", func(a, b, c *facts.Node) {
			port1(b, "rxe0").GIDs[1].GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
		},
			"vm00 and vm01 have GID ::ffff:10.0.0.1 RoCE v2"},
		{"what is shared is named in one order", func(a, b, c *facts.Node) {
			b.UUID = a.UUID
			b.MachineID = a.MachineID
			b.Hostname = a.Hostname
			a.UUID = "x"
			b.UUID = "x"
			a.MachineID = "y"
			b.MachineID = "y"
		},
			"vm00 and vm01 have host name vm00; vm00 and vm01 have machine-id y; vm00 and vm01 have random UUID x"},
		{"two devices of one node may share a MAC", func(a, b, c *facts.Node) {
			vlan := a.NICs[nicAt(a, "eth0")]
			vlan.Name = "vlan5"
			a.NICs = append(a.NICs, vlan)
		}, ""},
		{"tunnels have no MAC", func(a, b, c *facts.Node) {
			a.NICs = append(a.NICs, topology.NIC{Ports: []topology.Netdev{{Name: "sit0", MAC: noMAC}}})
			b.NICs = append(b.NICs, topology.NIC{Ports: []topology.Netdev{{Name: "sit0", MAC: noMAC}}})
		}, ""},
		{"what the kernel does not say is not shared", func(a, b, c *facts.Node) {
			a.UUID, b.UUID, c.UUID = "", "", ""
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeLab(t, testLab(t, 3, 1))
			for i, mac := range []string{"0001", "0002", "0003"} {
				rdmaDev(f.nodes[f.lab.Nodes[i].Name].facts, "rxe0").NodeGUID = "5054:00ff:fe00:" + mac
			}
			tt.make(f.nodes["vm00"].facts, f.nodes["vm01"].facts, f.nodes["vm02"].facts)
			got := checkLab(t, f, IDIdentity)
			want := []string{}
			if tt.want != "" {
				want = []string{"identity | lab pair | failed | " + tt.want + " | " + fix}
			}
			if diff := cmp.Diff(want, append([]string{}, faults(got)...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if tt.want == "" && got[0].Have != "3 nodes, nothing shared" {
				t.Errorf("have %q", got[0].Have)
			}
		})
	}
	t.Run("what is shared counts although a node does not answer", func(t *testing.T) {
		f := newFakeLab(t, testLab(t, 3, 1))
		f.nodes["vm00"].factsErr = errSilent
		f.nodes["vm02"].facts.UUID, f.nodes["vm01"].facts.UUID = "x", "x"
		got := checkLab(t, f, IDIdentity)
		if g := got[len(got)-1]; g.Status != finding.Failed || g.Have != "vm01 and vm02 have random UUID x" {
			t.Errorf("got %+v", g)
		}
	})
}

func TestALabThatIsBrokenOffHasNoFindings(t *testing.T) {
	errStop := errors.New("interrupted")
	for _, program := range []string{"ibv_devinfo", "fping", "ibv_rc_pingpong"} {
		t.Run("while "+program+" runs", func(t *testing.T) {
			f := newFakeLab(t, testLab(t, 3, 1))
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := func() (bench.Output, error) {
				cancel(errStop)
				return bench.Output{}, errStop
			}
			n := f.nodes["vm01"]
			switch program {
			case "ibv_devinfo":
				n.devinfo = func(string) (bench.Output, error) { return stop() }
			case "fping":
				n.fping = func([]string) (bench.Output, error) { return stop() }
			default:
				n.client = func(context.Context, string) (bench.Output, error) { return stop() }
			}
			got, err := Lab(ctx, f.lab, f, nil, func(string) {})
			if !errors.Is(err, errStop) || got != nil {
				t.Errorf("got %d findings and %v", len(got), err)
			}
			for node, running := range f.pairs {
				if running != 0 {
					t.Errorf("%s still runs %d sides", node, running)
				}
			}
		})
	}
}
