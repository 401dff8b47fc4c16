package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/finding"
)

func TestNoNodeIsInTwoPairsOfATurnAndEveryPairHasOne(t *testing.T) {
	for n := range 66 {
		var all []int
		for _, turn := range ringTurns(n) {
			busy := make(map[int]bool)
			for _, i := range turn {
				for _, node := range []int{i, (i + 1) % n} {
					if busy[node] {
						t.Errorf("%d nodes: node %d is in two pairs of turn %v", n, node, turn)
					}
					busy[node] = true
				}
			}
			all = append(all, turn...)
		}
		slices.Sort(all)
		want := []int(nil)
		switch {
		case n == 2:
			want = []int{0}
		case n > 2:
			for i := range n {
				want = append(want, i)
			}
		}
		if !slices.Equal(all, want) {
			t.Errorf("%d nodes: pairs %v, want %v", n, all, want)
		}
		if got := len(ringTurns(n)); got > 3 {
			t.Errorf("%d nodes: %d turns, want at most 3", n, got)
		}
	}
}

func TestTheRingSendsFromEveryNodeToTheNextAndNeverTwoAtOnceOnANode(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 9} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			l := testLab(t, n, 1)
			synctest.Test(t, func(t *testing.T) {
				f := newFakeLab(t, l)
				var wantPairs []string
				for i, node := range l.Nodes {
					next := l.Nodes[(i+1)%n].Name
					if n == 2 && i == 1 {
						break
					}
					wantPairs = append(wantPairs, node.Name+" -> "+next)
					me := f.nodes[node.Name]
					me.client = func(ctx context.Context, server string) (bench.Output, error) {
						time.Sleep(time.Second) // until every other pair of this turn sleeps
						f.count(node.Name, 41)
						f.count(server, 41)
						return bench.Output{}, nil
					}
				}
				got := checkLab(t, f, IDTraffic)
				var pairs []string
				for _, g := range got {
					pairs = append(pairs, g.Subject)
				}
				if diff := cmp.Diff(wantPairs, pairs); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if bad := faults(got); len(bad) > 0 {
					t.Errorf("not ok: %q", bad)
				}
				if len(f.clash) > 0 {
					t.Errorf("in two pairs at once: %q", f.clash)
				}
			})
		})
	}
}

func TestTraffic(t *testing.T) {
	const (
		again   = "rackless ls shows whether the nodes run"
		compare = "in both nodes ip neigh must show the other's MAC; compare GIDs and MTU: see rdma-gid and " +
			"rdma-active-mtu"
		other = "the messages went another way than through rxe0: look at rdma statistic show in the node"
	)
	tests := []struct {
		name      string
		make      func(t *testing.T, f *fakeLab, client, server *fakeNode)
		status    finding.Status
		have, fix string
	}{
		{"messages get through", func(*testing.T, *fakeLab, *fakeNode, *fakeNode) {}, finding.OK,
			"vm00 sent 41, received 41 packets; vm01 sent 41, received 41 packets", ""},
		{"the server listens only at the third try", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			tries := 0
			client.client = func(ctx context.Context, peer string) (bench.Output, error) {
				if tries++; tries < 3 {
					return prints(1, "", recorded(t, "pingpong-refused.stderr"))
				}
				f.count("vm00", 20)
				f.count("vm01", 20)
				return bench.Output{}, nil
			}
		}, finding.OK, "vm00 sent 20, received 20 packets; vm01 sent 20, received 20 packets", ""},
		{"the server never listens", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				return prints(1, "", recorded(t, "pingpong-refused.stderr"))
			}
		}, finding.Failed, "vm00: no end within 30s", compare},
		{"the server cannot listen", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			server.server = func(context.Context) (bench.Output, error) {
				return prints(1, "", "Couldn't listen to port 18700\n")
			}
		}, finding.Failed, "vm01: the server ended: exit status 1: Couldn't listen to port 18700",
			"in the node: ibv_devinfo -d rxe0; dmesg"},
		{"the server's node does not run it", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			server.server = func(context.Context) (bench.Output, error) { return bench.Output{}, errSilent }
		}, finding.Failed, "vm01: the server ended: " + errSilent.Error(), "in the node: ibv_devinfo -d rxe0; dmesg"},
		{"the client hangs", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(ctx context.Context, _ string) (bench.Output, error) {
				<-ctx.Done()
				return bench.Output{}, fmt.Errorf("vm00: %w", context.Cause(ctx))
			}
		}, finding.Failed, "vm00: no end within 30s", compare},
		{"a work request fails", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				return prints(1, "", "Failed status transport retry counter exceeded (12) for wr_id 2\n")
			}
		}, finding.Failed, "exit status 1: Failed status transport retry counter exceeded (12) for wr_id 2", compare},
		{"software answers too late twice", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			late := 2
			client.client = func(context.Context, string) (bench.Output, error) {
				if late--; late >= 0 {
					return prints(1, "", "Failed status transport retry counter exceeded (12) for wr_id 2\n")
				}
				f.count("vm00", 41)
				f.count("vm01", 41)
				return bench.Output{}, nil
			}
		}, finding.OK, "vm00 sent 41, received 41 packets; vm01 sent 41, received 41 packets; " +
			"answered too late before try 3", ""},
		{"a card answers too late", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			for _, n := range []*fakeNode{client, server} {
				n.facts.Cards = map[string]*int{"eth0": nil}
			}
			tried := false
			client.client = func(context.Context, string) (bench.Output, error) {
				if tried {
					t.Error("a card is not asked again")
				}
				tried = true
				return prints(1, "", "Failed status transport retry counter exceeded (12) for wr_id 2\n")
			}
		}, finding.Failed, "exit status 1: Failed status transport retry counter exceeded (12) for wr_id 2", compare},
		{"the client's node dies", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				return bench.Output{}, errors.New("vm00: connection reset")
			}
		}, finding.Unknown, "vm00: connection reset", again},
		{"no counter moves", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) { return bench.Output{}, nil }
		}, finding.Failed, "vm00 sent 0, received 0 packets; vm01 sent 0, received 0 packets", other},
		{"the counters of one side do not move enough", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				f.count("vm00", 41)
				f.count("vm01", 19)
				return bench.Output{}, nil
			}
		}, finding.Failed, "vm00 sent 41, received 41 packets; vm01 sent 19, received 19 packets", other},
		{"a counter goes back, since the device was made anew", func(t *testing.T, f *fakeLab, client,
			server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				server.facts.Counters["rxe0"].HW[counterReceived] = 0
				return bench.Output{}, nil
			}
		}, finding.Unknown, "vm01's counters went back", "the device was made anew meanwhile: verify again"},
		{"the server's node dies after the messages", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				server.factsErr = errSilent
				return bench.Output{}, nil
			}
		}, finding.Unknown, errSilent.Error(), again},
		{"the device goes away", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			client.client = func(context.Context, string) (bench.Output, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				removeRDMA(client.facts, "rxe0")
				return bench.Output{}, nil
			}
		}, finding.Unknown, "vm00 has no rxe0", again},
		{"the device has no counters", func(t *testing.T, f *fakeLab, client, server *fakeNode) {
			delete(server.facts.Counters["rxe0"].HW, counterReceived)
		}, finding.Unknown, "vm01: rxe0 has no counters sent_pkts and rcvd_pkts, nor port_xmit_packets and " +
			"port_rcv_packets",
			again},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLab(t, 2, 1)
			synctest.Test(t, func(t *testing.T) { // 30 s pass at once
				f := newFakeLab(t, l)
				tt.make(t, f, f.nodes["vm00"], f.nodes["vm01"])
				got := checkLab(t, f, IDTraffic)
				if len(got) != 1 {
					t.Fatalf("got %d findings", len(got))
				}
				want := finding.Finding{ID: IDTraffic, Code: "RL409", Subject: "vm00 -> vm01",
					Title: "RDMA messages get through and are counted", Status: tt.status,
					Have: tt.have, Want: "20 messages of 4096 bytes each way, counters of both nodes move", Fix: tt.fix,
					Evidence: "ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -s 4096 -n 20 -p 18700 10.0.0.2; " +
						"/sys/class/infiniband/rxe0/ports/1/hw_counters"}
				if diff := cmp.Diff(want, got[0]); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				for node, running := range f.pairs {
					if running != 0 {
						t.Errorf("%s still runs %d sides", node, running)
					}
				}
			})
		})
	}
}

func TestPairsWithoutAChanceAreNotTried(t *testing.T) {
	f := newFakeLab(t, testLab(t, 5, 1))
	f.nodes["vm02"].facts.Netdev("eth0").MTU = new(1500)
	var sent atomic.Int32
	for name, n := range f.nodes {
		n.client = func(_ context.Context, server string) (bench.Output, error) {
			sent.Add(1)
			f.count(name, 41)
			f.count(server, 41)
			return bench.Output{}, nil
		}
	}
	bad := faults(checkLab(t, f, IDTraffic))
	if len(bad) != 2 || !strings.Contains(bad[0], "| vm01 -> vm02 | unknown | not sent: vm02 eth0: link MTU: 1500 |") ||
		!strings.Contains(bad[1], "| vm02 -> vm03 | unknown | not sent: ") {
		t.Errorf("not ok: %q", bad)
	}
	if sent.Load() != 3 {
		t.Errorf("%d pairs sent, want 3", sent.Load())
	}
}
