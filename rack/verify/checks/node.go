package checks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// nodeFindings returns nil facts for a silent node.
func nodeFindings(ctx context.Context, l *lab.Lab, n lab.Node, r Reader, withIBMTU bool) (*facts.Node,
	[]finding.Finding) {
	f, err := settledFacts(ctx, n, r)
	if err != nil {
		return nil, []finding.Finding{silent(IDLink, n.Name, err.Error(),
			"rackless ls shows whether it runs; rackless up LAB.yaml starts it again")}
	}
	var out []finding.Finding
	// In order of dependency: link, RDMA port, MTU, GID.
	for i, nic := range n.NICs {
		dev := rdmaDeviceOf(f, n, i)
		dev.asked(ctx, n, r)
		out = append(out, linkFindings(l, n.Name, nic, f)...)
		port := portFinding(n.Name, nic, dev)
		if dev.card && n.ConnectX() {
			port.Title += fmt.Sprintf(" (emulated %s)", n.NIC.Title())
		}
		out = append(out, port)
		if withIBMTU {
			out = append(out, ibMTUFinding(ctx, l, n.Name, nic, dev, r))
		}
		out = append(out, gidFinding(n.Name, nic, dev))
	}
	return f, out
}

// settleLimit is for operstate to follow the carrier: the kernel (net/core/link_watch.c) updates it at most once a
// second.
const (
	settleLimit = 2 * time.Second
	settlePause = 200 * time.Millisecond
)

// settledFacts reads again while a link's operstate lags behind its carrier.
func settledFacts(ctx context.Context, n lab.Node, r Reader) (*facts.Node, error) {
	for deadline := time.Now().Add(settleLimit); ; {
		f, err := r.Facts(ctx, n.Name)
		lagging := err == nil && slices.ContainsFunc(n.NICs, func(nic lab.NIC) bool {
			d := f.Netdev(nic.Name)
			return d != nil && d.Carrier != nil && *d.Carrier && d.State != "up"
		})
		if !lagging || time.Now().After(deadline) || wait.For(ctx, settlePause) != nil {
			return f, err
		}
	}
}

type rdmaDevice struct {
	name string
	port *topology.RDMAPort // the first; nil without a device
	card bool
	soft string // of an emulated ConnectX, in place of its driver's
	why  string // why a ConnectX has no RDMA device, from its node
	load string // loads the driver there
}

func (d *rdmaDevice) software(n lab.Node) bool { return !d.card || n.ConnectX() }

// rdmaDeviceOf finds a device by its network device or its GIDs, except for a soft one of an emulated ConnectX. A
// missing device gets the name of the soft RoCE device that nodes make for each NIC without RDMA, in order.
func rdmaDeviceOf(f *facts.Node, n lab.Node, index int) rdmaDevice {
	nic := n.NICs[index]
	dev := rdmaDevice{name: "rxe" + strconv.Itoa(index), card: n.ConnectX()}
	if f == nil {
		return dev
	}
	if _, is := f.Cards[nic.Name]; is || dev.card {
		dev.card, dev.name = true, "RDMA device of "+nic.Name
	} else if _, d := f.RDMADevice(dev.name); d != nil {
		dev.port = d.Port(1)
		return dev
	}
	for on, d := range f.RDMADevices() {
		port := d.Port(1)
		// Without GIDs, as on a link that never was up, the common PCI function identifies the device.
		named := slices.ContainsFunc(port.GIDs, func(g topology.GID) bool { return g.Netdev == nic.Name })
		switch {
		case !named && !on.Has(nic.Name):
		case n.ConnectX() && topology.IsSoftRDMA(d.Name):
			dev.soft = d.Name
		default:
			dev.name, dev.port = d.Name, port
			return dev
		}
	}
	return dev
}

const driverScript = `[ -d /sys/module/mlx5_ib ] || echo "module mlx5_ib is not loaded"
dmesg | grep -F mlx5_ib | tail -n 1`

// asked sets the node's reason. A small node's drivers are compressed, without an index for modprobe.
func (d *rdmaDevice) asked(ctx context.Context, n lab.Node, r bench.Executor) {
	if d.port != nil || !n.ConnectX() {
		return
	}
	d.load = "gunzip -c /lib/modules/mlx5_ib.ko.gz >/tmp/mlx5_ib.ko && insmod /tmp/mlx5_ib.ko"
	if n.HasDisk() {
		d.load = "modprobe mlx5_ib"
	}
	out, err := r.Exec(ctx, n.Name, []string{"sh", "-c", driverScript})
	if err != nil {
		d.why = err.Error()
		return
	}
	said := []rune(strings.Join(strings.FieldsFunc(string(out.Stdout), func(c rune) bool { return c == '\n' }), "; "))
	d.why = string(said[:min(len(said), maxMessage)])
}

func (d *rdmaDevice) absent() string {
	text := "no such device"
	if d.soft != "" {
		text = "soft RoCE (" + d.soft + ") in its place"
	}
	if d.why != "" {
		text += ": " + d.why
	}
	return text
}

// driverPatience is for a full node that loads the adapters' driver while its other services start.
const driverPatience = 10 * time.Second

// AdapterRDMA waits for the RDMA devices of a node's adapters, and returns the node's facts; have are the facts so far.
// If a device is missing, the node would use a soft RoCE device instead.
func AdapterRDMA(ctx context.Context, n lab.Node, have *facts.Node, r Reader) (*facts.Node, error) {
	for until := time.Now().Add(driverPatience); n.ConnectX(); {
		i := 0
		for i < len(n.NICs) && rdmaDeviceOf(have, n, i).port != nil {
			i++
		}
		if i == len(n.NICs) {
			break
		}
		if dev := rdmaDeviceOf(have, n, i); time.Now().After(until) {
			dev.asked(ctx, n, r)
			return nil, fmt.Errorf("node %s: the RDMA device of %s, a %s: %s; %s", n.Name, n.NICs[i].Name,
				n.NIC.Title(), dev.absent(), dev.add(n.NICs[i]))
		}
		if err := wait.For(ctx, settlePause); err != nil {
			return nil, err
		}
		var err error
		if have, err = r.Facts(ctx, n.Name); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return have, nil
}

// linkFindings fails all checks of a missing device, because any may be selected alone.
func linkFindings(l *lab.Lab, node string, nic lab.NIC, f *facts.Node) []finding.Finding {
	const (
		wantState = "operstate up, carrier 1"
		missing   = "no such device"
	)
	subject := node + " " + nic.Name
	dir := "/sys/class/net/" + nic.Name
	state, mtu, mac := missing, missing, missing
	fixState := inNode("ip link set %s up", nic.Name)
	fixMTU := inNode("ip link set %s mtu %d", nic.Name, l.Fabric.MTU)
	fixMAC := inNode("ip link set %s address %s", nic.Name, nic.MAC)
	if d := f.Netdev(nic.Name); d == nil {
		fixState = fmt.Sprintf("rackless down %s, then up: nodes get their devices when they are made", l.Name)
		fixMTU, fixMAC = fixState, fixState
	} else {
		state, mtu, mac = "operstate "+d.State, "0", d.MAC
		if d.MTU != nil {
			mtu = strconv.Itoa(*d.MTU)
		}
		switch {
		case d.Carrier == nil: // the device is down
		case *d.Carrier:
			state += ", carrier 1"
		default: // nothing at the other end
			state += ", carrier 0"
			fixState = fmt.Sprintf("rackless link show %s shows the port: rackless link set %[1]s --up opens one that "+
				"is set down, and rackless up LAB.yaml starts a dead switch again", l.Name)
		}
	}
	return []finding.Finding{
		judge(IDLink, subject, "link up", state, wantState, dir+"/operstate, carrier", fixState),
		judge(IDMTU, subject, "link MTU", mtu, strconv.Itoa(l.Fabric.MTU), dir+"/mtu", fixMTU),
		judge(IDAddress, subject, "MAC address", mac, nic.MAC, dir+"/address", fixMAC),
	}
}

func inNode(format string, args ...any) string { return "in the node: " + fmt.Sprintf(format, args...) }

// add returns the fix for a missing device. The kernel's error about a checksum module that it cannot load reads as if
// the network device were missing.
func (d *rdmaDevice) add(nic lab.NIC) string {
	switch {
	case d.soft != "":
		return inNode("rdma link delete %s, then %s", d.soft, d.load)
	case d.load != "":
		return inNode("%s", d.load)
	case d.card:
		return inNode("load the RDMA part of the driver of %s (modprobe mlx5_ib, bnxt_re, irdma, ...), bring the "+
			"link up, and give it its address", nic.Name)
	}
	return inNode("rdma link add %s type rxe netdev %s (modprobe crc32_generic if it says \"No such file or "+
		"directory\")", d.name, nic.Name)
}

// portFinding requires Ethernet: an InfiniBand port carries no RoCE.
func portFinding(node string, nic lab.NIC, d rdmaDevice) finding.Finding {
	const want = "ACTIVE on Ethernet"
	subject := node + " " + d.name
	if d.port == nil {
		return judge(IDPort, subject, "RDMA port active", d.absent(), want, "/sys/class/infiniband", d.add(nic))
	}
	return judge(IDPort, subject, "RDMA port active", d.port.State+" on "+d.port.LinkLayer, want,
		"/sys/class/infiniband/"+d.name+"/ports/1/state, link_layer", inNode("ip link set %s up", nic.Name))
}

// ibMTUFinding compares the RDMA device's MTU: the largest of 256, 512, 1024, 2048 and 4096 that fits into the link's
// with headers. Two ends with different MTUs drop packets that are too long for one of them.
func ibMTUFinding(ctx context.Context, l *lab.Lab, node string, nic lab.NIC, d rdmaDevice, r Reader) finding.Finding {
	const title = "active IB MTU"
	subject := node + " " + d.name
	argv := []string{"ibv_devinfo", "-d", d.name}
	command := strings.Join(argv, " ")
	if d.port == nil {
		return unread(IDIBMTU, subject, title, "/sys/class/infiniband", d.absent(), d.add(nic))
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
	// The kernel derives it from the link's MTU, so the fault is in the link.
	return judge(IDIBMTU, subject, title, mtu, strconv.Itoa(l.Fabric.RDMAPayload()), command+": active_mtu",
		inNode("ip link set %s mtu %d", nic.Name, l.Fabric.MTU))
}

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

// gidFinding distinguishes an address with a GID of another type from one without, because the remedies differ.
func gidFinding(node string, nic lab.NIC, d rdmaDevice) finding.Finding {
	addr := nic.Addr.Addr()
	f := finding.Finding{ID: IDGID, Subject: node + " " + d.name, Title: "RoCE v2 GID of " + addr.String(),
		Status: finding.OK, Want: "a RoCE v2 entry for the address"}
	if d.port == nil {
		f.Status, f.Have, f.Evidence, f.Fix = finding.Unknown, d.absent(), "/sys/class/infiniband", d.add(nic)
		return f
	}
	table := lists.Map(d.port.GIDs,
		func(g topology.GID) string {
			return fmt.Sprintf("%d: %s %s %s", g.Index, gidText(&g), g.Type, g.Netdev)
		})
	f.Evidence = fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids, gid_attrs (%s)", d.name, strings.Join(table, "; "))
	// Any index is right: rackless's tools look it up.
	if i, ok := d.port.RoCEv2Index(addr); ok {
		f.Have = fmt.Sprintf("index %d", i)
		return f
	}
	f.Status, f.Have, f.Fix = finding.Failed, "none", inNode("ip addr add %s dev %s", nic.Addr, nic.Name)
	if kind, ok := otherType(d.port, addr); ok {
		f.Have, f.Fix = "only "+kind, inNode("rdma link delete %s, then rdma link add %s type rxe netdev %s", d.name,
			d.name, nic.Name)
		if d.card {
			f.Fix = inNode("cma_roce_mode -d %s -p 1 shows what the port speaks; the driver or its firmware has "+
				"RoCE v2 off", d.name)
		}
	}
	return f
}

func otherType(port *topology.RDMAPort, addr netip.Addr) (string, bool) {
	for _, g := range port.GIDs {
		if g.Addr() == addr {
			return g.Type, true
		}
	}
	return "", false
}

// gidText formats IPv4 as "::ffff:10.0.0.1". The kernel writes all zeros.
func gidText(g *topology.GID) string {
	a, _ := netip.ParseAddr(g.GID)
	return a.String()
}
