package check

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
)

// nodeFindings checks what can be seen from within one node. It returns nil facts for a node that does not answer.
func nodeFindings(ctx context.Context, l *lab.Lab, n lab.Node, r Reader, withIBMTU bool) (*facts.Node, []Finding) {
	f, err := settledFacts(ctx, n, r)
	if err != nil {
		return nil, []Finding{unread(IDLink, n.Name, titleAnswers, "guest agent", err.Error(), "rackless ls shows whether it runs; rackless up LAB.yaml starts it again")}
	}
	var out []Finding
	for i, nic := range n.NICs {
		dev := rdmaDevice(i)
		out = append(out, linkFindings(l, n.Name, nic, f)...)
		out = append(out, portFinding(n.Name, nic, dev, f.RDMA[dev]))
		if withIBMTU {
			out = append(out, ibMTUFinding(ctx, l, n.Name, nic, dev, f.RDMA[dev], r))
		}
		out = append(out, gidFinding(n.Name, nic, dev, f.RDMA[dev]))
	}
	return f, out
}

// settleLimit is how long operstate may lag behind the carrier: the kernel (net/core/link_watch.c) brings it up to date at most once a second.
const (
	settleLimit = 2 * time.Second
	settlePause = 200 * time.Millisecond
)

// settledFacts reads a node, again while a link has its carrier and its operstate does not know it yet, as right after the node came up.
func settledFacts(ctx context.Context, n lab.Node, r Reader) (*facts.Node, error) {
	for deadline := time.Now().Add(settleLimit); ; {
		f, err := r.Facts(ctx, n.Name)
		lagging := err == nil && slices.ContainsFunc(n.NICs, func(nic lab.NIC) bool {
			d := f.Net[nic.Name]
			return d != nil && d.Carrier == "1" && d.OperState != "up"
		})
		if !lagging || time.Now().After(deadline) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return f, err
		case <-time.After(settlePause):
		}
	}
}

// rdmaDevice returns the name of the RDMA device of a node's NIC with that index: nodes make one for each, in order.
func rdmaDevice(nic int) string { return "rxe" + strconv.Itoa(nic) }

// linkFindings checks one network device. One that is missing fails all of its checks, so that each of them says so when it is asked for
// alone.
func linkFindings(l *lab.Lab, node string, nic lab.NIC, f *facts.Node) []Finding {
	const (
		wantState = "operstate up, carrier 1"
		missing   = "no such device"
	)
	subject := node + " " + nic.Name
	dir := "/sys/class/net/" + nic.Name
	state, mtu, mac := missing, missing, missing
	fixState, fixMTU, fixMAC := inNode("ip link set %s up", nic.Name), inNode("ip link set %s mtu %d", nic.Name, l.Fabric.MTU), inNode("ip link set %s address %s", nic.Name, nic.MAC)
	if d := f.Net[nic.Name]; d == nil {
		fixState = fmt.Sprintf("rackless down %s, then up: nodes get their devices when they are made", l.Name)
		fixMTU, fixMAC = fixState, fixState
	} else {
		state, mtu, mac = "operstate "+d.OperState, strconv.Itoa(d.MTU), d.MAC
		if d.Carrier != "" { // a device that is down has none to read
			state += ", carrier " + d.Carrier
		}
		if d.Carrier == "0" { // up, but nothing at the other end
			fixState = fmt.Sprintf("the switch does not hold this port: rackless fabric %s shows it, rackless up LAB.yaml starts a dead switch again", l.Name)
		}
	}
	return []Finding{
		judge(IDLink, subject, "link up", state, wantState, dir+"/operstate, carrier", fixState),
		judge(IDMTU, subject, "link MTU", mtu, strconv.Itoa(l.Fabric.MTU), dir+"/mtu", fixMTU),
		judge(IDAddress, subject, "MAC address", mac, nic.MAC, dir+"/address", fixMAC),
	}
}

// inNode is a fix that is a command to run in the node.
func inNode(format string, args ...any) string { return "in the node: " + fmt.Sprintf(format, args...) }

// addRXE is the fix for an RDMA device that is missing. The kernel's complaint about a checksum that it cannot load reads as if the
// network device were missing.
func addRXE(dev string, nic lab.NIC) string {
	return inNode("rdma link add %s type rxe netdev %s (modprobe crc32_generic if it says \"No such file or directory\")", dev, nic.Name)
}

func portFinding(node string, nic lab.NIC, dev string, d *facts.RDMADevice) Finding {
	const want = "ACTIVE on Ethernet"
	subject := node + " " + dev
	if d == nil {
		return judge(IDPort, subject, "RDMA port active", "no such device", want, "/sys/class/infiniband", addRXE(dev, nic))
	}
	state := d.State
	if _, name, ok := strings.Cut(state, ": "); ok { // "4: ACTIVE"
		state = name
	}
	return judge(IDPort, subject, "RDMA port active", state+" on "+d.LinkLayer, want, "/sys/class/infiniband/"+dev+"/ports/1/state, link_layer",
		inNode("ip link set %s up", nic.Name))
}

// ibMTUCommand prints the port's attributes; the active MTU is in no file of sysfs.
func ibMTUCommand(dev string) []string { return []string{"ibv_devinfo", "-d", dev} }

func ibMTUFinding(ctx context.Context, l *lab.Lab, node string, nic lab.NIC, dev string, d *facts.RDMADevice, r Reader) Finding {
	const title = "active IB MTU"
	subject := node + " " + dev
	argv := ibMTUCommand(dev)
	command := strings.Join(argv, " ")
	if d == nil {
		return unread(IDIBMTU, subject, title, "/sys/class/infiniband", "no such device", addRXE(dev, nic))
	}
	res, err := r.Exec(ctx, node, argv)
	if err != nil {
		return unread(IDIBMTU, subject, title, command, err.Error(), "rackless ls shows whether the node runs")
	}
	mtu, ok := activeMTU(string(res.Stdout))
	if res.ExitCode != 0 || !ok {
		why := fmt.Sprintf("exit status %d, no active_mtu in the output", res.ExitCode)
		if text := strings.TrimSpace(string(res.Stderr)); text != "" {
			why += ": " + text
		}
		return unread(IDIBMTU, subject, title, command, why, inNode("%s; dmesg", command))
	}
	// The kernel derives it from the link's MTU at once, so what is wrong here is the link.
	return judge(IDIBMTU, subject, title, mtu, strconv.Itoa(l.Fabric.RDMAPayload()), command+": active_mtu", inNode("ip link set %s mtu %d", nic.Name, l.Fabric.MTU))
}

// activeMTU picks "4096" out of ibv_devinfo's "active_mtu:  4096 (5)".
func activeMTU(devinfo string) (string, bool) {
	for line := range strings.Lines(devinfo) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == "active_mtu" {
			if f := strings.Fields(v); len(f) > 0 {
				return f[0], true
			}
		}
	}
	return "", false
}

func gidFinding(node string, nic lab.NIC, dev string, d *facts.RDMADevice) Finding {
	addr := nic.Addr.Addr()
	f := Finding{ID: IDGID, Subject: node + " " + dev, Title: "RoCE v2 GID of " + addr.String(), Status: OK, Want: "a RoCE v2 entry for the address"}
	if d == nil {
		f.Status, f.Have, f.Evidence, f.Fix = Unknown, "no such device", "/sys/class/infiniband", addRXE(dev, nic)
		return f
	}
	var table []string
	for _, g := range d.GIDs {
		table = append(table, fmt.Sprintf("%d: %s %s %s", g.Index, g.GID, g.Type, g.NetDev))
	}
	f.Evidence = fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids, gid_attrs (%s)", dev, strings.Join(table, "; "))
	if i, ok := d.RoCEv2Index(addr); ok {
		f.Have = fmt.Sprintf("index %d", i)
		return f
	}
	f.Status, f.Have, f.Fix = Failed, "none", inNode("ip addr add %s dev %s", nic.Addr, nic.Name)
	if kind, ok := otherType(d, addr); ok {
		// The address is there: adding it again is refused, but a device made anew reads it again.
		f.Have, f.Fix = "only "+kind, inNode("rdma link delete %s, then rdma link add %s type rxe netdev %s", dev, dev, nic.Name)
	}
	return f
}

// otherType returns the type of a GID for the address that is not RoCE v2.
func otherType(d *facts.RDMADevice, addr netip.Addr) (string, bool) {
	for _, g := range d.GIDs {
		if g.GID.Unmap() == addr {
			return g.Type, true
		}
	}
	return "", false
}
