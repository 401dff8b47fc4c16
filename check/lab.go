package check

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
)

// A Reader reads the live lab.
type Reader interface {
	// Facts returns what the kernel of a node says of it now.
	Facts(ctx context.Context, node string) (*facts.Node, error)
	bench.Executor
}

// Identifiers of the checks of a RoCE lab. They are stable: scripts may depend on them.
const (
	IDLink     = "link"            // the network device is up and has a carrier
	IDMTU      = "link-mtu"        // its MTU is the lab's
	IDAddress  = "address"         // it has the lab's address and MAC
	IDPort     = "rdma-port"       // the RDMA port is active on Ethernet
	IDIBMTU    = "rdma-active-mtu" // the RDMA MTU is the largest that the link MTU carries
	IDGID      = "rdma-gid"        // a RoCE v2 GID stands for the IPv4 address
	IDReach    = "reach"           // a peer answers at the full MTU, unfragmented
	IDTraffic  = "rdma-traffic"    // RDMA messages get through, and the device's counters show them
	IDIdentity = "identity"        // no two nodes share a name, an address or a random state
)

// atOnce is how many nodes are read at the same time: under emulation more of them only wait for each other.
const atOnce = 4

// IDs returns the identifiers of all checks.
func IDs() []string {
	return []string{IDLink, IDMTU, IDAddress, IDPort, IDIBMTU, IDGID, IDIdentity, IDReach, IDTraffic}
}

// Lab checks the facts of a RoCE lab, node by node, and returns the findings in the order of the nodes. only names the checks to make; none
// means all. An error means that checking itself was broken off; a node that does not answer is a finding.
func Lab(ctx context.Context, l *lab.Lab, r Reader, only []string, progress func(what string)) ([]Finding, error) {
	wanted := func(ids ...string) bool {
		return len(only) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(only, id) })
	}
	var out []Finding
	nodes := make([]*facts.Node, len(l.Nodes))
	if wanted(IDLink, IDMTU, IDAddress, IDPort, IDIBMTU, IDGID, IDIdentity, IDTraffic) {
		perNode := make([][]Finding, len(l.Nodes))
		progress("read the nodes")
		parallel(len(l.Nodes), func(i int) {
			nodes[i], perNode[i] = nodeFindings(ctx, l, l.Nodes[i], r)
		})
		out = append(slices.Concat(perNode...), identity(l, nodes)...)
	}
	if wanted(IDReach) && ctx.Err() == nil {
		progress("reach every peer at full MTU")
		out = append(out, Reach(ctx, l, r)...)
	}
	if wanted(IDTraffic) && ctx.Err() == nil {
		progress("send RDMA messages around the ring")
		out = append(out, traffic(ctx, l, nodes, r)...)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// A node that does not answer is a finding of IDLink; whatever was asked for, it must not be lost.
	return slices.DeleteFunc(out, func(f Finding) bool { return !wanted(f.ID) && f.Status != Unknown }), nil
}

// parallel calls f for 0..n-1, a few at once, and returns when all have returned.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	tokens := make(chan struct{}, atOnce)
	for i := range n {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			f(i)
		})
	}
	wg.Wait()
}

// judge returns a finding that is OK if have is want.
func judge(id, subject, title, have, want, evidence, fix string) Finding {
	f := Finding{ID: id, Subject: subject, Title: title, Status: OK, Have: have, Want: want, Evidence: evidence}
	if have != want {
		f.Status, f.Fix = Failed, fix
	}
	return f
}

// unread returns a finding for what could not be read.
func unread(id, subject, title, evidence string, err error, fix string) Finding {
	return Finding{ID: id, Subject: subject, Title: title, Status: Unknown, Have: err.Error(), Evidence: evidence, Fix: fix}
}

// nodeFindings checks what can be seen from within one node.
func nodeFindings(ctx context.Context, l *lab.Lab, n lab.Node, r Reader) (*facts.Node, []Finding) {
	again := "rackless up LAB.yaml configures the node again; rackless console " + n.Name + " shows it"
	f, err := r.Facts(ctx, n.Name)
	if err != nil {
		return nil, []Finding{unread(IDLink, n.Name, "node answers", "guest agent", err, "rackless ls shows whether it runs; rackless up LAB.yaml starts it again")}
	}
	var out []Finding
	for i, nic := range n.NICs {
		out = append(out, linkFindings(l, n.Name, nic, f, again)...)
		out = append(out, rdmaFindings(ctx, l, n.Name, nic, fmt.Sprintf("rxe%d", i), f, r, again)...)
	}
	return f, out
}

func linkFindings(l *lab.Lab, node string, nic lab.NIC, f *facts.Node, again string) []Finding {
	subject := node + " " + nic.Name
	dir := "/sys/class/net/" + nic.Name
	d := f.Net[nic.Name]
	if d == nil {
		return []Finding{{ID: IDLink, Subject: subject, Title: "link up", Status: Failed, Have: "no such device", Want: "up", Evidence: dir, Fix: "rackless down and up the lab"}}
	}
	return []Finding{
		judge(IDLink, subject, "link up", "operstate "+d.OperState+", carrier "+d.Carrier, "operstate up, carrier 1", dir+"/operstate, carrier", again),
		judge(IDMTU, subject, "link MTU", strconv.Itoa(d.MTU), strconv.Itoa(l.Fabric.MTU), dir+"/mtu",
			fmt.Sprintf("in the node: ip link set %s mtu %d", nic.Name, l.Fabric.MTU)),
		judge(IDAddress, subject, "MAC address", d.MAC, nic.MAC, dir+"/address", again),
	}
}

// ibMTUCommand prints the port's attributes; the active MTU is in no file of sysfs.
func ibMTUCommand(dev string) []string { return []string{"ibv_devinfo", "-d", dev} }

func rdmaFindings(ctx context.Context, l *lab.Lab, node string, nic lab.NIC, dev string, f *facts.Node, r Reader, again string) []Finding {
	subject := node + " " + dev
	dir := "/sys/class/infiniband/" + dev + "/ports/1"
	d := f.RDMA[dev]
	if d == nil {
		return []Finding{{ID: IDPort, Subject: subject, Title: "RDMA port active", Status: Failed, Have: "no such device", Want: "ACTIVE", Evidence: "/sys/class/infiniband",
			Fix: fmt.Sprintf("in the node: rdma link add %s type rxe netdev %s (modprobe crc32_generic if it says \"No such file or directory\")", dev, nic.Name)}}
	}
	_, state, _ := strings.Cut(d.State, ": ")
	out := []Finding{judge(IDPort, subject, "RDMA port active", state+" on "+d.LinkLayer, "ACTIVE on Ethernet", dir+"/state, link_layer",
		fmt.Sprintf("in the node: ip link set %s up", nic.Name))}

	argv := ibMTUCommand(dev)
	const ibTitle = "active IB MTU"
	if res, err := r.Exec(ctx, node, argv); err != nil {
		out = append(out, unread(IDIBMTU, subject, ibTitle, strings.Join(argv, " "), err, again))
	} else {
		out = append(out, judge(IDIBMTU, subject, ibTitle, activeMTU(string(res.Stdout)), strconv.Itoa(l.Fabric.RDMAPayload()), strings.Join(argv, " ")+": active_mtu",
			fmt.Sprintf("set the link MTU to %d: IB MTU 4096 needs 4096 bytes and the RoCE headers", max(l.Fabric.MTU, lab.DefaultMTU))))
	}

	var gids []string
	for _, g := range d.GIDs {
		gids = append(gids, fmt.Sprintf("%d: %s %s %s", g.Index, g.GID, g.Type, g.NetDev))
	}
	gid := Finding{ID: IDGID, Subject: subject, Title: "RoCE v2 GID of " + nic.Addr.Addr().String(), Status: OK, Evidence: dir + "/gids, gid_attrs (" + strings.Join(gids, "; ") + ")", Want: "a RoCE v2 entry for the address"}
	if i, ok := d.RoCEv2Index(nic.Addr.Addr()); ok {
		gid.Have = fmt.Sprintf("index %d", i)
	} else {
		gid.Status, gid.Have = Failed, "none"
		gid.Fix = fmt.Sprintf("in the node: ip addr add %s dev %s", nic.Addr, nic.Name)
	}
	return append(out, gid)
}

// activeMTU picks "4096" out of ibv_devinfo's "active_mtu:  4096 (5)", or says that there is none.
func activeMTU(devinfo string) string {
	for line := range strings.Lines(devinfo) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == "active_mtu" {
			if f := strings.Fields(v); len(f) > 0 {
				return f[0]
			}
		}
	}
	return "not in the output"
}

// identity checks that nothing is shared that must differ: nodes are copies of one template until they are told who they are.
func identity(l *lab.Lab, nodes []*facts.Node) []Finding {
	type seen struct{ what, value string }
	owner := make(map[seen]string)
	var shared []string
	note := func(node, what, value string) {
		if value == "" {
			return
		}
		if other, dup := owner[seen{what, value}]; dup {
			shared = append(shared, fmt.Sprintf("%s and %s have %s %s", other, node, what, value))
		}
		owner[seen{what, value}] = node
	}
	known := 0
	for i, f := range nodes {
		if f == nil {
			continue
		}
		known++
		n := l.Nodes[i].Name
		note(n, "host name", f.Hostname)
		note(n, "machine-id", f.MachineID)
		note(n, "random UUID", f.UUID)
		for _, d := range f.Net {
			note(n, "MAC", d.MAC)
		}
		for _, d := range f.RDMA {
			note(n, "node GUID", d.NodeGUID)
			for _, g := range d.GIDs {
				note(n, "GID", g.GID.String()+" "+g.Type)
			}
		}
	}
	slices.Sort(shared)
	f := Finding{ID: IDIdentity, Subject: "lab " + l.Name, Title: "nothing shared between nodes", Status: OK,
		Have: fmt.Sprintf("%d nodes, nothing shared", known), Want: "host names, machine-ids, MACs, GUIDs, GIDs and random numbers differ",
		Evidence: "/proc/sys/kernel/hostname, /etc/machine-id, /proc/sys/kernel/random/uuid, /sys/class/net, /sys/class/infiniband of every node"}
	if len(shared) > 0 {
		f.Status, f.Have, f.Fix = Failed, strings.Join(shared, "; "), "rackless down and up the lab"
	}
	return []Finding{f}
}

// addrsOf returns all addresses of a node.
func addrsOf(n lab.Node) []netip.Addr {
	var all []netip.Addr
	for _, nic := range n.NICs {
		all = append(all, nic.Addr.Addr())
	}
	return all
}
