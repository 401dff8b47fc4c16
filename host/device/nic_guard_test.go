package device

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

func (m *sim) stand(upper, kind string, lowers ...string) {
	dir := "/sys/devices/virtual/net/" + upper
	m.put(dir+"/uevent", "DEVTYPE="+kind)
	m.link("/sys/class/net/"+upper, dir)
	for _, lower := range lowers {
		m.link(dir+"/lower_"+lower, "/sys/class/net/"+lower)
		m.link("/sys/class/net/"+lower+"/upper_"+upper, dir)
	}
}

func (m *sim) address(netdev, addr string) {
	m.net.addresses = append(m.net.addresses, Address{netdev, netip.MustParseAddr(addr)})
}

func (m *sim) mount(at, kind, source, options, server, netdev string) {
	m.put("/proc/self/mountinfo", fmt.Sprintf("21 1 8:1 / /boot rw shared:1 - ext4 /dev/sda1 rw\n"+
		"1 1 0:20 / %s rw,relatime - %s %s %s", at, kind, source, options))
	m.net.routes[netip.MustParseAddr(server)] = []string{netdev}
}

func (m *sim) connections(all ...string) {
	table := "  sl  local_address ..."
	for i, text := range all {
		var state, local, remote, inode string
		if _, err := fmt.Sscan(text, &state, &local, &remote, &inode); err != nil {
			m.t.Fatal(err)
		}
		end := func(s string) string {
			a := netip.MustParseAddrPort(s)
			return fmt.Sprintf("%s:%04X", hexAddr(a.Addr()), a.Port())
		}
		table += fmt.Sprintf("\n%4d: %s %s %s 00000000:00000000 00:00000000 00000000     0        0 %s 1 0", i,
			end(local),
			end(remote), state, inode)
	}
	m.put("/proc/net/tcp", table)
}

func (m *sim) file(function, subsystem, name, device string) {
	dir := m.function(function).path(subsystem + "/" + name)
	m.put(dir+"/dev", "249:0")
	m.put(dir+"/uevent", "DEVNAME="+device)
	m.link(dir+"/subsystem", "/sys/class/"+subsystem)
}

func (m *sim) rdmaDevice(function, name, layer string) {
	m.put(m.function(function).path("infiniband/"+name+"/ports/1/link_layer"), layer)
	m.link("/sys/class/infiniband/"+name, m.function(function).path("infiniband/"+name))
}

// The same use of another NIC does not matter.
func TestGuardsOfNICsInUse(t *testing.T) {
	t.Parallel()
	nic, vf, pf := wholeCard(plan.KindNIC, simNIC), vfCard(simPF, 1), wholeCard(plan.KindNIC, simPF)
	const server, server6 = "10.0.0.1", "fd00::1"
	busy := "0000:61:00.0 is in use by the host: "
	cases := []struct {
		guardCase
		near func(*sim)
	}{
		{guardCase{"an IPv4 link-local address", nic, func(m *sim) { m.address("eno3", "169.254.10.1") },
			busy + "eno3 has address 169.254.10.1; take that from it, or choose another NIC", true},
			func(m *sim) { m.address("eno3", "fe80::7") }},
		{guardCase{"a VLAN with an address", nic, func(m *sim) {
			m.stand("eno3.100", "vlan", "eno3")
			m.address("eno3.100", "10.20.0.7")
		}, busy + "vlan eno3.100 stands on eno3, eno3.100 has address 10.20.0.7", true}, func(m *sim) {
			m.stand("eno4.100", "vlan", "eno4")
			m.address("eno4.100", "10.20.0.7")
		}},
		{guardCase{"macvtap of a guest", nic, func(m *sim) { m.stand("macvtap0", "macvtap", "eno3") },
			busy + "macvtap macvtap0 stands on eno3", true}, func(m *sim) { m.stand("macvtap0", "macvtap", "eno4") }},
		{guardCase{"a bridge on a VLAN on a team", nic, func(m *sim) {
			m.stand("team0", "team", "eno3")
			m.stand("team0.7", "vlan", "team0")
			m.stand("br0", "bridge", "team0.7")
			m.address("br0", "10.20.0.7")
		}, "br0 has address 10.20.0.7", true}, func(m *sim) { m.stand("br0", "bridge") }},
		{guardCase{"a container's macvlan", nic, func(m *sim) {
			m.net.foreign = []Foreign{{Netdev: "eth0", Kind: "macvlan", Owner: "nginx (812)", Lower: "eno3"}}
		}, busy + "macvlan eth0 in the network namespace of nginx (812) stands on eno3", true}, func(m *sim) {
			m.net.foreign = []Foreign{{Netdev: "eth0", Kind: "macvlan", Owner: "nginx (812)", Lower: "eno4"}}
		}},
		{guardCase{"a RoCE NIC in a container", nic, func(m *sim) {
			m.gone(m.function(simNIC).path("net"))
			m.rdmaDevice(simNIC, "mlx5_0", "Ethernet")
		}, busy + "driver igb has it, and its network device is in another network namespace", true}, func(m *sim) {
			m.gone(m.function(simNIC).path("net"))
			m.put(m.function(simNIC).path("class"), "0x020700")
			m.rdmaDevice(simNIC, "mlx5_0", "")
		}},
		{guardCase{"a NIC in a container that is known", nic, func(m *sim) {
			m.gone(m.function(simNIC).path("net"))
			m.net.foreign = []Foreign{{Netdev: "eth1", Kind: "device", Owner: "nginx (812)", Function: simNIC}}
		}, busy + "its network device eth1 is in the network namespace of nginx (812)", true}, func(m *sim) {
			m.net.foreign = []Foreign{{Netdev: "eth1", Kind: "device", Owner: "nginx (812)", Function: simPF}}
		}},
		{guardCase{"a clock that ptp4l disciplines", nic, func(m *sim) {
			m.file(simNIC, "ptp", "ptp0", "ptp0")
			m.process(901, "ptp4l", "/dev/ptp0")
		}, "0000:61:00.0 is in use: ptp4l (901) has /dev/ptp0 open; end that first", false}, func(m *sim) {
			m.file(simNIC, "ptp", "ptp0", "ptp0")
			m.process(901, "ptp4l", "/dev/ptp1")
		}},
		{guardCase{"verbs of a program", nic, func(m *sim) {
			m.file(simNIC, "infiniband_verbs", "uverbs0", "infiniband/uverbs0")
			m.process(900, "nvmf_tgt", "/dev/infiniband/uverbs0")
		}, "nvmf_tgt (900) has /dev/infiniband/uverbs0 open", false}, func(m *sim) {
			m.file(simNIC, "infiniband_verbs", "uverbs0", "infiniband/uverbs0")
		}},
		{guardCase{"RDMA connections of the kernel", nic, func(m *sim) {
			m.rdmaDevice(simNIC, "mlx5_0", "Ethernet")
			m.net.rdma = map[string]map[string]uint64{"mlx5_0": {"qp": 3, "cm_id": 2}}
		}, busy + "RDMA device mlx5_0 has 2 open connections", true}, func(m *sim) {
			m.rdmaDevice(simNIC, "mlx5_0", "Ethernet")
			m.net.rdma = map[string]map[string]uint64{"mlx5_0": {"qp": 1, "cq": 4}, "mlx5_1": {"ctx": 1}}
		}},
		{guardCase{"soft RoCE on it", nic, func(m *sim) { m.put("/sys/class/infiniband/rxe0/parent", "eno3") },
			busy + "RDMA device rxe0 stands on eno3", true},
			func(m *sim) { m.put("/sys/class/infiniband/rxe0/parent", "eno4") }},
		{guardCase{"the root by NFS", nic, func(m *sim) {
			m.mount("/", "nfs4", server+":/root", "rw,vers=4.2,addr="+server, server, "eno3")
		}, "0000:61:00.0 carries the root file system (NFS) from 10.0.0.1 (through eno3): the host runs from " +
			"it; choose " +
			"another NIC", false}, func(m *sim) {
			m.mount("/", "nfs4", server+":/root", "rw,vers=4.2,addr="+server, server, "eno4")
		}},
		{guardCase{"NFS by IPv6 through a VLAN", nic, func(m *sim) {
			m.stand("eno3.100", "vlan", "eno3")
			m.mount("/data", "nfs", "filer:/data", "rw,proto=tcp6,addr="+server6, server6, "eno3.100")
		}, "carries NFS mount /data from fd00::1 (through eno3.100): umount it first", false}, func(m *sim) {
			m.mount("/data", "ext4", "/dev/sdb", "rw", server6, "eno3")
		}},
		{guardCase{"NFS without a route", nic, func(m *sim) {
			m.mount("/data", "nfs", "filer:/data", "rw,addr="+server, "10.0.9.9", "eno4")
			m.address("eno3", "10.0.0.7")
		}, "carries NFS mount /data from 10.0.0.1 (there is no route to it now; perhaps through eno3)", false},
			func(m *sim) {
				m.mount("/data", "nfs", "filer:/data", "rw,addr="+server, "10.0.9.9", "eno4")
				m.address("eno4", "10.0.0.7")
			}},
		{guardCase{"SMB", nic, func(m *sim) {
			m.mount("/home", "cifs", "//filer/home", "rw,username=a,addr="+server, server, "eno3")
		}, "carries SMB mount /home from 10.0.0.1 (through eno3)", false}, func(m *sim) {
			m.mount("/home", "cifs", "//filer/home", "rw,addr=127.0.0.1", "127.0.0.1", "eno3")
		}},
		{guardCase{"CephFS", nic, func(m *sim) {
			m.mount("/ceph", "ceph", "10.0.9.9:6789,"+server+":6789:/", "rw,name=admin", server, "eno3")
		}, "carries CephFS mount /ceph from 10.0.0.1", false}, func(m *sim) {
			m.mount("/ceph", "ceph", "10.0.9.9:6789:/", "rw,name=admin", server, "eno3")
		}},
		{guardCase{"iSCSI", nic, func(m *sim) {
			m.put("/sys/class/iscsi_connection/connection1:0/persistent_address", server)
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries the iSCSI session with 10.0.0.1 (through eno3): log out first", false}, func(m *sim) {
			m.put("/sys/class/iscsi_connection/connection1:0/persistent_address", server)
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno4"}
		}},
		{guardCase{"a RADOS block device", nic, func(m *sim) {
			m.put("/sys/bus/rbd/devices/0/config_info", "10.0.9.9:6789,"+server+":6789 name=admin rbd image -")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries a RADOS block device with 10.0.0.1 (through eno3): rbd unmap it first", false},
			func(m *sim) { m.put("/sys/bus/rbd/devices/0/config_info", "") }},
		{guardCase{"NVMe over RDMA", nic, func(m *sim) {
			m.put("/sys/class/nvme/nvme1/address", "traddr="+server+",trsvcid=4420")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries NVMe-oF controller nvme1 on 10.0.0.1 (through eno3): nvme disconnect -d nvme1 first", false},
			func(m *sim) { m.put("/sys/class/nvme/nvme1/address", simDisk) }},
		{guardCase{"NVMe over TCP by its interface", nic, func(m *sim) {
			m.put("/sys/class/nvme/nvme1/address", "traddr="+server6+",trsvcid=4420,host_iface=eno3")
		}, "carries NVMe-oF controller nvme1 on fd00::1 (through eno3)", false}, func(m *sim) {
			m.put("/sys/class/nvme/nvme1/address", "traddr="+server6+",trsvcid=4420,host_iface=eno4")
		}},
		{guardCase{"a network block device", nic, func(m *sim) {
			m.put("/sys/block/nbd0/pid", "700")
			m.process(700, "nbd-client", "socket:[77]")
			m.connections("01 192.0.2.1:40000 10.0.0.1:9999 77")
			m.address("eno3", "192.0.2.1")
		}, "carries NBD device nbd0 from 10.0.0.1 (through eno3): nbd-client -d /dev/nbd0 first", false},
			func(m *sim) { m.put("/sys/block/nbd0/size", "0") }},
		{guardCase{"a connection to a port of storage", nic, func(m *sim) {
			m.connections("01 192.0.2.1:7789 10.0.0.1:40000 77")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries a connection with 10.0.0.1 for DRBD (through eno3)", false}, func(m *sim) {
			m.connections("0A 0.0.0.0:2049 0.0.0.0:0 5", "06 192.0.2.1:700 10.0.0.1:2049 0",
				"01 192.0.2.1:701 10.0.0.1:443 6")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}},
		{guardCase{"a connection of the kernel", nic, func(m *sim) {
			m.connections("01 192.0.2.1:700 10.0.0.1:12345 0")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries a connection with 10.0.0.1 for the kernel (through eno3)", false}, func(m *sim) {
			m.connections("0A 0.0.0.0:8080 0.0.0.0:0 5", "01 192.0.2.1:8080 10.0.0.1:12345 0") // not accepted yet
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}},
		{guardCase{"a name server", nic, func(m *sim) {
			m.put("/etc/resolv.conf", "search lab\nnameserver "+server)
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}, "carries the name server 10.0.0.1 (through eno3): the host would lose DNS", true}, func(m *sim) {
			m.put("/etc/resolv.conf", "# nameserver "+server+"\nnameserver 127.0.0.53")
			m.net.routes[netip.MustParseAddr(server)] = []string{"eno3"}
		}},
		{guardCase{"a port with an address whose virtual functions change", vf, func(m *sim) {
			m.address("eno4", "10.0.0.7")
		}, "0000:81:00.0 would be down for a moment (the number of its virtual functions changes", true},
			func(m *sim) { m.address("eno3", "10.0.0.7") }},
		{guardCase{"NFS through a port whose virtual functions change", vf, func(m *sim) {
			m.mount("/data", "nfs", "filer:/data", "rw,addr="+server, server, "eno4")
		}, "carries NFS mount /data from 10.0.0.1 (through eno4)", true}, func(*sim) {}},
		{guardCase{"a VLAN on a virtual function", vf, func(m *sim) {
			m.twoVFs()
			m.put(pciDevices+"/"+m.vfAddr(addr(simPF), 1).String()+"/net/eno4v1/mtu", "1500")
			m.link("/sys/class/net/eno4v1", "/sys/devices/pci0000:80/"+m.vfAddr(addr(simPF), 1).String()+"/net/eno4v1")
			m.stand("eno4v1.5", "vlan", "eno4v1")
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is in use: vlan eno4v1.5 stands on eno4v1", false},
			(*sim).twoVFs},
		{guardCase{"a RoCE virtual function in a container", vf, func(m *sim) {
			m.twoVFs()
			a := m.vfAddr(addr(simPF), 1).String()
			m.gone(pciDevices + "/" + a + "/net")
			m.rdmaDevice(a, "mlx5_3", "Ethernet")
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is in use: driver igbvf has it, and its network " +
			"device is in " +
			"another network namespace", false}, (*sim).twoVFs},
		{guardCase{"NFS through a virtual function of a card that goes whole", pf, func(m *sim) {
			m.twoVFs()
			a := m.vfAddr(addr(simPF), 0).String()
			m.link("/sys/class/net/eno4v0", "/sys/devices/pci0000:80/"+a)
			m.mount("/data", "nfs", "filer:/data", "rw,addr="+server, server, "eno4v0")
		}, "0000:81:00.0 has 2 virtual functions", false}, func(*sim) {}},
	}
	for _, c := range cases {
		t.Run(c.name, c.run)
		near := guardCase{name: c.name, card: c.card, change: c.near}
		t.Run(c.name+", nearly", near.run)
	}
}

func (m *sim) twoVFs() {
	if err := m.setCount(addr(simPF), 2); err != nil {
		m.t.Fatal(err)
	}
}

func TestAddressesInTheSourcesOfMounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.1:/export": "10.0.0.1", "[fd00::1]:/export": "fd00::1", "10.0.0.1,10.0.0.2:/x": "10.0.0.1 10.0.0.2",
		"10.0.0.1:6789,[fd00::2]:6789:/": "10.0.0.1 fd00::2", "10.0.0.1@tcp:10.0.0.2@tcp:/fs": "10.0.0.1 10.0.0.2",
		"[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]": "10.0.0.1", "filer:/data": "", "//filer/share": "", "4.2": "",
		"fe80::1%eno3": "fe80::1%eno3", "admin@b3a.fs=/": "",
	} {
		var got []string
		for _, a := range addressesIn(text) {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
