package device

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

type flow struct {
	what          string // "the ssh session from 192.0.2.7"
	fix           string
	local, remote netip.Addr // local may be unknown
	netdev        string     // if known without the addresses
	soft          bool       // --yes-really overrides the refusal
}

type carried struct {
	text string
	soft bool
}

// carriedFlows takes functions behind the local address and behind the route to the remote end.
func carriedFlows(ctx context.Context, s *change.System, k *kernel, pid int) (map[topology.PCIAddr][]carried, error) {
	flows, err := allFlows(s, pid)
	if err != nil || len(flows) == 0 {
		return nil, err
	}
	network, err := k.network(s)
	if err != nil {
		return nil, err
	}
	found := map[topology.PCIAddr][]carried{}
	for _, f := range flows {
		netdevs, err := f.netdevs(ctx, network)
		if err != nil {
			return nil, fmt.Errorf("which NIC %s goes through cannot be told: %w", f.what, err)
		}
		through := "through "
		if len(netdevs) == 0 && !f.soft && !f.local.IsValid() && !f.remote.IsLoopback() {
			through = "there is no route to it now; perhaps through "
			if netdevs, err = f.possible(ctx, network); err != nil {
				return nil, err
			}
		}
		for _, netdev := range netdevs {
			functions, err := functionsBehind(s, netdev)
			if err != nil {
				return nil, err
			}
			for _, a := range functions {
				c := carried{fmt.Sprintf("%s carries %s (%s%s): %s", a, f.what, through, netdev, f.fix), f.soft}
				found[a] = lists.Add(found[a], c)
			}
		}
	}
	return found, nil
}

func (f *flow) netdevs(ctx context.Context, network Network) (netdevs []string, err error) {
	if f.remote.IsLoopback() {
		return nil, nil
	}
	if f.netdev != "" {
		netdevs = append(netdevs, f.netdev)
	}
	if zone := f.remote.Zone(); zone != "" {
		netdevs = append(netdevs, zone)
	}
	// A link-local address has no route without its device.
	if f.remote.IsValid() && !(f.remote.Is6() && f.remote.IsLinkLocalUnicast()) {
		routed, err := network.RouteTo(ctx, f.remote.WithZone(""))
		if err != nil {
			return nil, err
		}
		netdevs = append(netdevs, routed...)
	}
	addresses, err := network.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if f.local.IsValid() && a.Addr.Unmap().WithZone("") == f.local {
			netdevs = append(netdevs, a.Netdev)
		}
	}
	return lists.Distinct(netdevs), nil
}

// possible returns devices that a flow without a route may come back on: all with the same IP version.
func (f *flow) possible(ctx context.Context, network Network) (netdevs []string, err error) {
	addresses, err := network.Addresses(ctx)
	for _, a := range addresses {
		if a.Addr.Is4() == f.remote.Is4() && !a.Addr.IsLinkLocalUnicast() && !slices.Contains(netdevs, a.Netdev) {
			netdevs = append(netdevs, a.Netdev)
		}
	}
	return netdevs, err
}

// allFlows returns the flows that must not be cut off: ssh connections, network storage, and name servers.
func allFlows(s *change.System, pid int) ([]flow, error) {
	peers, err := sshPeers(s, pid)
	if err != nil {
		return nil, err
	}
	var flows []flow
	for _, p := range peers {
		flows = append(flows, flow{what: "the ssh session from " + p.remote.String(), local: p.local, remote: p.remote,
			fix: "it would be cut off; choose another NIC, or come in another way"})
	}
	proc, err := procfs.NewFS(s.Path("/proc"))
	if err != nil {
		return nil, err
	}
	for _, more := range []func(*change.System, procfs.FS) ([]flow, error){mountFlows, portalFlows, nvmeFlows, nbdFlows,
		storageConnections, nameServers} {
		found, err := more(s, proc)
		if err != nil {
			return nil, fmt.Errorf("what the host uses over the network cannot be read: %w; run it as root", err)
		}
		flows = append(flows, found...)
	}
	return flows, nil
}

var networkMounts = map[string]string{"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "ceph": "CephFS",
	"fuse.ceph": "CephFS", "glusterfs": "GlusterFS", "fuse.glusterfs": "GlusterFS", "lustre": "Lustre", "9p": "9p",
	"afs": "AFS", "fuse.sshfs": "SSHFS"}

// mountFlows reads addr= in the options or the source ("10.0.0.1:6789,10.0.0.2:6789:/"), also of process 1, because
// rackless may run in a namespace of its own.
func mountFlows(s *change.System, _ procfs.FS) ([]flow, error) {
	var flows []flow
	for _, path := range []string{"/proc/self/mountinfo", "/proc/1/mountinfo"} {
		text, err := s.ValueOr(path, "")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			// "36 35 98:0 /root /at rw,noatime shared:1 - nfs4 source rw,addr=10.0.0.1" (proc(5)). procfs rejects the
			// whole table if it does not understand one line.
			before, after, _ := strings.Cut(line, " - ")
			mount, of := strings.Fields(before), strings.Fields(after)
			if len(mount) < 5 || len(of) < 3 {
				continue
			}
			for _, f := range serversOf(mount[4], of[0], of[1], of[2]) {
				flows = lists.Add(flows, f)
			}
		}
	}
	return flows, nil
}

func serversOf(at, kind, source, options string) []flow {
	kind = networkMounts[kind]
	if kind == "" {
		return nil
	}
	what, fix := kind+" mount "+at, "umount it first, or choose another NIC"
	if at == "/" {
		what, fix = "the root file system ("+kind+")", "the host runs from it; choose another NIC"
	}
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "addr", "mountaddr", "mon_addr":
			source += "," + value
		}
	}
	return lists.Map(addressesIn(source),
		func(a netip.Addr) flow { return flow{what: fmt.Sprintf("%s from %s", what, a), fix: fix, remote: a} })
}

func addressesIn(text string) []netip.Addr {
	var all []netip.Addr
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",;/=@ ", r) }) {
		word = strings.TrimSuffix(word, ":")
		_, rest, _ := strings.Cut(word, ":") // after Ceph's "v2:", or before Lustre's network name
		for _, text := range []string{word, rest} {
			a, err := netip.ParseAddr(strings.Trim(text, "[]"))
			if err != nil {
				ap, _ := netip.ParseAddrPort(text)
				a = ap.Addr()
			}
			if a = a.Unmap(); a.IsValid() && !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// portals are the servers of block devices: iSCSI and iSER (scsi_transport_iscsi.c), and Ceph's monitors
// (Documentation/ABI/testing/sysfs-bus-rbd).
var portals = []struct{ dir, file, what, fix string }{
	{"/sys/class/iscsi_connection", "address", "the iSCSI session", "log out first (iscsiadm -m node -u)"},
	{"/sys/class/iscsi_connection", "persistent_address", "the iSCSI session", "log out first (iscsiadm -m node -u)"},
	{"/sys/bus/rbd/devices", "config_info", "a RADOS block device", "rbd unmap it first"},
}

func portalFlows(s *change.System, _ procfs.FS) ([]flow, error) {
	r := reader{s: s}
	var flows []flow
	for _, p := range portals {
		for _, name := range r.list(p.dir) {
			text, _ := s.Value(p.dir + "/" + name + "/" + p.file) // unknown during setup
			for _, a := range addressesIn(text) {
				flows = append(flows, flow{what: fmt.Sprintf("%s with %s", p.what, a), remote: a,
					fix: p.fix + ", or choose another NIC"})
			}
		}
	}
	return flows, r.err
}

// nvmeFlows reads "traddr=10.0.0.1,trsvcid=4420,host_iface=eno3,..." (nvmf_get_address in drivers/nvme/host/fabrics.c).
func nvmeFlows(s *change.System, _ procfs.FS) ([]flow, error) {
	const class = "/sys/class/nvme"
	names, err := s.List(class)
	var flows []flow
	for _, name := range names {
		text, _ := s.Value(class + "/" + name + "/address") // a local disk has a PCI address
		f := flow{fix: "nvme disconnect -d " + name + " first, or choose another NIC"}
		for option := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(option, "=")
			switch key {
			case "traddr":
				f.remote, _ = netip.ParseAddr(value)
			case "src_addr", "host_traddr":
				f.local, _ = netip.ParseAddr(value)
			case "host_iface":
				f.netdev = value
			}
		}
		if f.remote.IsValid() {
			f.what = fmt.Sprintf("NVMe-oF controller %s on %s", name, f.remote)
			flows = append(flows, f)
		}
	}
	return flows, err
}

// nbdFlows returns the peers of the process that serves each network block device.
func nbdFlows(s *change.System, proc procfs.FS) ([]flow, error) {
	const class = "/sys/block"
	names, err := s.List(class)
	var flows []flow
	for _, name := range names {
		pid, readErr := s.Number(class + "/" + name + "/pid") // exists while the device is connected
		if !strings.HasPrefix(name, "nbd") || readErr != nil {
			continue
		}
		p, err := proc.Proc(int(pid))
		if err != nil {
			continue // connected by netlink; the kernel has the sockets
		}
		sockets := map[uint64]bool{}
		if err := addSockets(p, sockets); err != nil {
			return nil, err
		}
		peers, err := establishedPeers(proc, sockets)
		if err != nil {
			return nil, err
		}
		for _, peer := range peers {
			flows = append(flows, flow{what: fmt.Sprintf("NBD device %s from %s", name, peer.remote), local: peer.local,
				remote: peer.remote, fix: "nbd-client -d /dev/" + name + " first, or choose another NIC"})
		}
	}
	return flows, err
}

type portRange struct {
	first, last uint64
	kind        string
}

// storagePorts come from IANA and from the manuals of Ceph and DRBD.
var storagePorts = []portRange{{2049, 2049, "NFS"}, {139, 139, "SMB"}, {445, 445, "SMB"}, {3260, 3260, "iSCSI"},
	{4420, 4420, "NVMe/TCP"}, {8009, 8009, "NVMe/TCP"}, {10809, 10809, "NBD"}, {3300, 3300, "Ceph"},
	{6789, 6789, "Ceph"}, {6800, 7568, "Ceph"}, {7788, 7799, "DRBD"}, {24007, 24007, "GlusterFS"}}

func storagePort(port uint64) string {
	return lists.Find(storagePorts, func(r portRange) bool { return port >= r.first && port <= r.last }).kind
}

// storageConnections includes all connections of the kernel itself, which have no inode. A connection that no program
// has accepted yet has none either.
func storageConnections(_ *change.System, proc procfs.FS) ([]flow, error) {
	lines, err := tcpLines(proc)
	if err != nil {
		return nil, err
	}
	listens := func(l tcpLine) bool { return l.state == tcpListen && l.inode != 0 }
	accepting := lists.SetOf(lists.Filter(lines, listens), func(l tcpLine) uint64 { return l.localPort })
	var flows []flow
	for _, l := range lines {
		ofKernel := l.inode == 0 && !accepting[l.localPort]
		kind := cmp.Or(storagePort(l.remotePort), storagePort(l.localPort))
		if kind == "" && ofKernel {
			kind = "the kernel"
		}
		if l.state != tcpEstablished || kind == "" || l.remote.IsLoopback() || l.remote == l.local {
			continue
		}
		flows = append(flows, flow{what: fmt.Sprintf("a connection with %s for %s", l.remote, kind), local: l.local,
			remote: l.remote, fix: "end what uses it, or choose another NIC"})
	}
	return flows, nil
}

// nameServers includes the upstream servers of systemd-resolved, which is itself a local server.
func nameServers(s *change.System, _ procfs.FS) ([]flow, error) {
	var flows []flow
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := s.ValueOr(path, "")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			a, err := netip.ParseAddr(fields[1])
			f := flow{what: "the name server " + fields[1], remote: a, soft: true,
				fix: "the host would lose DNS; choose another NIC, or another server; " + yesReally}
			if err == nil && !slices.Contains(flows, f) {
				flows = append(flows, f)
			}
		}
	}
	return flows, nil
}
