package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
)

// rxe's are in hw_counters, cards' at the port.
const (
	counterSent      = "sent_pkts"
	counterReceived  = "rcvd_pkts"
	portCounterSent  = "port_xmit_packets"
	portCounterRcved = "port_rcv_packets"
)

const (
	trafficMessages = 20               // of 4096 bytes, sent and returned
	trafficPort     = 18700            // TCP port for ibv_rc_pingpong's parameters
	trafficLimit    = 30 * time.Second // for one pair
	connectPause    = 100 * time.Millisecond
	// softTries is for software: ibv_rc_pingpong gives up after seven timeouts of 67 ms, which a node short of CPU time
	// may exceed.
	softTries = 3
)

// traffic sends RDMA messages from the first NIC of every node to that of the next, and checks that both devices
// counted them. It skips pairs that known findings rule out, because the kernel tries forever to send packets that its
// link refuses.
func traffic(ctx context.Context, l *lab.Lab, nodes []*facts.Node, known []finding.Finding,
	r Reader) []finding.Finding {
	var members []int // nodes with a NIC
	for i := range l.Nodes {
		if len(l.Nodes[i].NICs) > 0 {
			members = append(members, i)
		}
	}
	n := len(members)
	turns := ringTurns(n)
	pairs := lists.Sum(turns, func(turn []int) int { return len(turn) })
	out := make([]finding.Finding, pairs)
	for _, turn := range turns {
		parallel(len(turn), func(k int) {
			i, client, server := turn[k], members[turn[k]], members[(turn[k]+1)%n]
			t := &trafficCheck{l: l, client: l.Nodes[client], server: l.Nodes[server], r: r}
			out[i] = t.finding(ctx, nodes[client], nodes[server], known)
		})
	}
	return out
}

// ringTurns divides the pairs (i, i+1 mod n) of a ring, named by i, into turns in which no node is in two pairs: the
// even pairs, the odd ones, and for odd n the last one alone.
func ringTurns(n int) [][]int {
	switch {
	case n < 2:
		return nil
	case n == 2:
		return [][]int{{0}} // the way back is the same pair
	}
	turns := make([][]int, 2, 3)
	for i := range n - n%2 {
		turns[i%2] = append(turns[i%2], i)
	}
	if n%2 == 1 {
		turns = append(turns, []int{n - 1})
	}
	return turns
}

type trafficCheck struct {
	l              *lab.Lab
	client, server lab.Node
	r              Reader
}

func firstDevice(f *facts.Node, n lab.Node) rdmaDevice { return rdmaDeviceOf(f, n, 0) }

func (t *trafficCheck) command(dev string, gid int) []string {
	return []string{"ibv_rc_pingpong", "-d", dev, "-g", strconv.Itoa(gid), "-m", strconv.Itoa(t.l.Fabric.RDMAPayload()),
		"-s", "4096", "-n", strconv.Itoa(trafficMessages), "-p", strconv.Itoa(trafficPort)}
}

// A packet to a wrong MAC reaches another RDMA device, which drops it silently, while ping is still answered from
// there.
const fixCompare = "in both nodes ip neigh must show the other's MAC; compare GIDs and MTU: see " + IDGID + " and " +
	IDIBMTU

func (t *trafficCheck) finding(ctx context.Context, client, server *facts.Node,
	known []finding.Finding) finding.Finding {
	f := finding.Finding{ID: IDTraffic, Subject: t.client.Name + " -> " + t.server.Name,
		Title: "RDMA messages get through and are counted", Status: finding.OK,
		Want: fmt.Sprintf("%d messages of 4096 bytes each way, counters of both nodes move", trafficMessages)}
	outcome := func(status finding.Status, have, fix string) finding.Finding {
		f.Status, f.Have, f.Fix = status, have, fix
		return f
	}
	sides := []rdmaDevice{firstDevice(client, t.client), firstDevice(server, t.server)}
	for i, n := range []lab.Node{t.client, t.server} {
		if why, bad := obstacle(known, n, sides[i].name); bad {
			f.Evidence = why.Evidence
			return outcome(finding.Unknown, fmt.Sprintf("not sent: %s: %s: %s", why.Subject, why.Title, why.Have),
				why.Fix)
		}
	}
	clientGID, _ := gidIndex(sides[0], t.client) // a node without a GID has an obstacle
	serverGID, _ := gidIndex(sides[1], t.server)
	clientArgs := append(t.command(sides[0].name, clientGID), t.server.NICs[0].Addr.Addr().String())
	f.Evidence = strings.Join(clientArgs, " ") + "; /sys/class/infiniband/" + sides[0].name + "/ports/1/hw_counters"

	const fixUnread = "rackless ls shows whether the nodes run"
	// An exchange over another device would succeed as well.
	before, err := t.counters(ctx)
	if err != nil {
		return outcome(finding.Unknown, err.Error(), fixUnread)
	}
	late := fmt.Errorf("no end within %v", trafficLimit)
	// A queue pair with dropped packets retries until it is destroyed.
	limited, cancel := context.WithTimeoutCause(ctx, trafficLimit, late)
	defer cancel()
	res, err := t.exchange(limited, clientArgs, t.command(sides[1].name, serverGID))
	tries := 1
	for soft := sides[0].software(t.client) || sides[1].software(t.server); soft && tries < softTries && err == nil &&
		strings.Contains(string(res.Stderr), "retry counter exceeded"); tries++ {
		res, err = t.exchange(limited, clientArgs, t.command(sides[1].name, serverGID))
	}
	switch {
	case errors.Is(err, errServerEnded):
		return outcome(finding.Failed, err.Error(), inNode("ibv_devinfo -d %s; dmesg", sides[1].name))
	case err != nil && errors.Is(context.Cause(limited), late):
		return outcome(finding.Failed, fmt.Sprintf("%s: %v", t.client.Name, late), fixCompare)
	case err != nil:
		return outcome(finding.Unknown, err.Error(), fixUnread)
	case res.ExitCode != 0:
		return outcome(finding.Failed, fmt.Sprintf("exit status %d: %s", res.ExitCode,
			strings.TrimSpace(string(res.Stderr))), fixCompare)
	}
	after, err := t.counters(ctx)
	if err != nil {
		return outcome(finding.Unknown, err.Error(), fixUnread)
	}
	var moved []string
	for i, name := range []string{t.client.Name, t.server.Name} {
		if after[i].sent < before[i].sent || after[i].received < before[i].received {
			return outcome(finding.Unknown, name+"'s counters went back",
				"the device was made anew meanwhile: verify again")
		}
		sent, received := after[i].sent-before[i].sent, after[i].received-before[i].received
		moved = append(moved, fmt.Sprintf("%s sent %d, received %d packets", name, sent, received))
		// Each message takes at least one packet and has an answer.
		if sent < trafficMessages || received < trafficMessages {
			f.Status = finding.Failed
			f.Fix = "the messages went another way than through " + sides[i].name +
				": look at rdma statistic show in the node"
		}
	}
	f.Have = strings.Join(moved, "; ")
	if tries > 1 {
		f.Have += fmt.Sprintf("; answered too late before try %d", tries)
	}
	return f
}

var errServerEnded = errors.New("the server ended")

// exchange waits for both sides, so the nodes are free for the next pair. It restarts the client if the server did not
// listen yet.
func (t *trafficCheck) exchange(ctx context.Context, client, server []string) (res bench.Output, err error) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan string, 1)
	done := make(chan struct{})
	defer func() {
		stop()
		<-done
	}()
	go func() {
		defer close(done)
		if res, err := t.r.Exec(ctx, t.server.Name, server); err != nil {
			ended <- err.Error()
		} else {
			ended <- fmt.Sprintf("exit status %d: %s", res.ExitCode, strings.TrimSpace(string(res.Stderr)))
		}
	}()
	for {
		res, err = t.r.Exec(ctx, t.client.Name, client)
		if err != nil || res.ExitCode == 0 || !strings.Contains(string(res.Stderr), "Couldn't connect") {
			return res, err
		}
		select {
		case <-ctx.Done():
			return res, context.Cause(ctx)
		case why := <-ended:
			if ctx.Err() != nil { // which ended the server, too
				return res, context.Cause(ctx)
			}
			return res, fmt.Errorf("%s: %w: %s", t.server.Name, errServerEnded, why)
		case <-time.After(connectPause):
		}
	}
}

func obstacle(known []finding.Finding, n lab.Node, dev string) (finding.Finding, bool) {
	subjects := []string{n.Name, n.Name + " " + n.NICs[0].Name, n.Name + " " + dev}
	ids := []string{IDAdapterCable, IDAdapterLink, IDAdapterFlaps, IDLink, IDMTU, IDPort, IDIBMTU, IDGID}
	i := slices.IndexFunc(known, func(f finding.Finding) bool {
		return f.Status != finding.OK && slices.Contains(ids, f.ID) && slices.Contains(subjects, f.Subject)
	})
	if i < 0 {
		return finding.Finding{}, false
	}
	return known[i], true
}

func gidIndex(d rdmaDevice, n lab.Node) (int, bool) {
	if d.port == nil {
		return 0, false
	}
	return d.port.RoCEv2Index(n.NICs[0].Addr.Addr())
}

type packetCount struct{ sent, received uint64 }

func (t *trafficCheck) counters(ctx context.Context) ([]packetCount, error) {
	var out []packetCount
	for _, n := range []lab.Node{t.client, t.server} {
		f, err := t.r.Facts(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		d := firstDevice(f, n)
		if d.port == nil {
			return nil, fmt.Errorf("%s has no %s", n.Name, d.name)
		}
		counters := f.Counters[d.name]
		sent, ok1 := counters.HW[counterSent]
		received, ok2 := counters.HW[counterReceived]
		if !ok1 || !ok2 {
			sent, ok1 = counters.Port[portCounterSent]
			received, ok2 = counters.Port[portCounterRcved]
		}
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%s: %s has no counters %s and %s, nor %s and %s", n.Name, d.name, counterSent,
				counterReceived, portCounterSent, portCounterRcved)
		}
		out = append(out, packetCount{sent, received})
	}
	return out, nil
}
