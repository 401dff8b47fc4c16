package check

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
)

// Names of rxe's counters of packets sent and received, in hw_counters.
const (
	counterSent     = "sent_pkts"
	counterReceived = "rcvd_pkts"
)

const (
	trafficMessages = 20               // of 4096 bytes there and back
	trafficPort     = 18700            // TCP port over which ibv_rc_pingpong introduces itself
	trafficLimit    = 30 * time.Second // for one pair
	connectPause    = 100 * time.Millisecond
)

// traffic sends RDMA messages from every node to the next, the last to the first, and checks that both devices counted them.
func traffic(ctx context.Context, l *lab.Lab, nodes []*facts.Node, r Reader) []Finding {
	n := len(l.Nodes)
	if n < 2 {
		return nil
	}
	last := n
	if n == 2 {
		last = 1 // the way back is the same pair
	}
	out := make([]Finding, last)
	// Even pairs, then odd ones, so that no node is in two at once; with an odd number of nodes the last pair is left for the end.
	for _, turn := range [][2]int{{0, last - last%2}, {1, last - last%2}, {last - last%2, last}} {
		var pairs []int
		for i := turn[0]; i < turn[1]; i += 2 {
			pairs = append(pairs, i)
		}
		parallel(len(pairs), func(k int) {
			i := pairs[k]
			out[i] = trafficFinding(ctx, l, nodes, i, (i+1)%n, r)
		})
	}
	return out
}

func trafficFinding(ctx context.Context, l *lab.Lab, nodes []*facts.Node, client, server int, r Reader) Finding {
	c, s := l.Nodes[client], l.Nodes[server]
	f := Finding{ID: IDTraffic, Subject: c.Name + " -> " + s.Name, Title: "RDMA messages get through and are counted", Status: OK,
		Want: fmt.Sprintf("%d messages of 4096 bytes each way, counters of both nodes move", trafficMessages)}
	fail := func(status Status, have, fix string) Finding {
		f.Status, f.Have, f.Fix = status, have, fix
		return f
	}
	cg, ok1 := gidIndex(nodes[client], c)
	sg, ok2 := gidIndex(nodes[server], s)
	if !ok1 || !ok2 {
		return fail(Unknown, "a node has no RoCE v2 GID", "see "+IDGID)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trafficLimit, fmt.Errorf("no end within %v", trafficLimit))
	defer cancel()
	args := func(gid int) []string {
		return []string{"ibv_rc_pingpong", "-d", "rxe0", "-g", strconv.Itoa(gid), "-m", strconv.Itoa(l.Fabric.RDMAPayload()),
			"-s", "4096", "-n", strconv.Itoa(trafficMessages), "-p", strconv.Itoa(trafficPort)}
	}
	clientArgs := append(args(cg), s.NICs[0].Addr.Addr().String())
	f.Evidence = strings.Join(clientArgs, " ") + "; /sys/class/infiniband/rxe0/ports/1/hw_counters"

	before, err := counters(ctx, r, c.Name, s.Name)
	if err != nil {
		return fail(Unknown, err.Error(), "rackless ls shows whether the nodes run")
	}
	serverCtx, stop := context.WithCancel(ctx)
	defer stop()
	serverDone := make(chan string, 1)
	go func() {
		res, err := r.Exec(serverCtx, s.Name, args(sg))
		if err != nil {
			serverDone <- err.Error()
			return
		}
		serverDone <- strings.TrimSpace(string(res.Stderr))
	}()
	var res bench.Output
	for {
		res, err = r.Exec(ctx, c.Name, clientArgs)
		// The server may not listen yet; then the client ends at once.
		if err != nil || res.ExitCode == 0 || !strings.Contains(string(res.Stderr), "Couldn't connect") {
			break
		}
		select {
		case <-ctx.Done():
		case why := <-serverDone:
			return fail(Failed, "the server ended: "+why, "in the node: ibv_devinfo; dmesg")
		case <-time.After(connectPause):
			continue
		}
		break
	}
	if err != nil {
		return fail(Failed, err.Error(), "compare both ends' GIDs and MTU: see "+IDGID+" and "+IDIBMTU)
	}
	if res.ExitCode != 0 {
		return fail(Failed, fmt.Sprintf("exit status %d: %s", res.ExitCode, strings.TrimSpace(string(res.Stderr))),
			"compare both ends' GIDs and MTU: see "+IDGID+" and "+IDIBMTU)
	}
	after, err := counters(ctx, r, c.Name, s.Name)
	if err != nil {
		return fail(Unknown, err.Error(), "rackless ls shows whether the nodes run")
	}
	var moved []string
	for i, name := range []string{c.Name, s.Name} {
		sent, received := after[i].sent-before[i].sent, after[i].received-before[i].received
		moved = append(moved, fmt.Sprintf("%s sent %d, received %d packets", name, sent, received))
		if sent < trafficMessages || received < trafficMessages {
			f.Status = Failed
			f.Fix = "the messages went another way than through rxe0: look at rdma statistic show in the node"
		}
	}
	f.Have = strings.Join(moved, "; ")
	return f
}

func gidIndex(f *facts.Node, n lab.Node) (int, bool) {
	if f == nil || f.RDMA["rxe0"] == nil {
		return 0, false
	}
	return f.RDMA["rxe0"].RoCEv2Index(n.NICs[0].Addr.Addr())
}

type packetCount struct{ sent, received uint64 }

// counters reads the packet counters of two nodes.
func counters(ctx context.Context, r Reader, nodes ...string) ([]packetCount, error) {
	var out []packetCount
	for _, n := range nodes {
		f, err := r.Facts(ctx, n)
		if err != nil {
			return nil, err
		}
		d := f.RDMA["rxe0"]
		if d == nil {
			return nil, fmt.Errorf("%s has no rxe0", n)
		}
		sent, ok1 := d.Counters[counterSent]
		received, ok2 := d.Counters[counterReceived]
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%s: rxe0 has no counters %s and %s", n, counterSent, counterReceived)
		}
		out = append(out, packetCount{sent, received})
	}
	return out, nil
}
