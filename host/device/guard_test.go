package device

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Before any change.
func TestGuardsRefuse(t *testing.T) {
	t.Parallel()
	nic := wholeCard(plan.KindNIC, simNIC)
	gpu := wholeCard(plan.KindGPU, simGPU, simAudio)
	disk := wholeCard(plan.KindGPU, simDisk)
	screen := wholeCard(plan.KindGPU, simScreen)
	vf := vfCard(simPF, 1)
	mounted := func(points ...string) func(*sim) {
		return func(m *sim) {
			m.host.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(addr(simDisk)), Mounts: points}}
		}
	}
	twoVFs := func(m *sim) {
		if err := m.setCount(addr(simPF), 2); err != nil {
			m.t.Fatal(err)
		}
	}
	for _, c := range []guardCase{
		{"the root disk", disk, mounted("/boot", "/"),
			"0000:01:00.0 has the root disk nvme0n1 on it: the host runs from it; choose another device", false},
		{"swap", disk, mounted("[SWAP]"), "0000:01:00.0 has disk nvme0n1 with swap on it: swapoff first", false},
		{"a mounted disk", disk, mounted("/data", "/srv"),
			"0000:01:00.0 has disk nvme0n1 on it, which is mounted at /data /srv: umount first", false},
		{"the default route", nic, func(m *sim) {
			m.host.Routes = []topology.Route{{Family: "ipv6", Netdev: "br0", PCI: []string{simNIC}}}
		}, "0000:61:00.0 carries the default route (br0, ipv6): the host would lose its network", false},
		{"mounts that cannot be read", nic, func(m *sim) {
			m.host.Unread = []topology.Unread{{Path: "/proc/self/mountinfo", Why: "permission denied"}}
		}, "what the host needs cannot be read: /proc/self/mountinfo: permission denied; run it as root", false},
		{"the session's own ssh connection", nic, func(m *sim) {
			m.sshSession("192.0.2.7", "192.0.2.1", "eno3")
		}, "0000:61:00.0 carries the ssh session from 192.0.2.7 (through eno3): it would be cut off", false},
		{"an ssh connection through a bridge over a bond", nic, func(m *sim) {
			m.put("/sys/devices/virtual/net/br0/mtu", "1500")
			m.put("/sys/devices/virtual/net/bond0/mtu", "1500")
			m.link("/sys/devices/virtual/net/br0/lower_bond0", "/sys/devices/virtual/net/bond0")
			m.link("/sys/devices/virtual/net/bond0/lower_eno3", "/sys/class/net/eno3")
			m.link("/sys/class/net/br0", "/sys/devices/virtual/net/br0")
			m.link("/sys/class/net/bond0", "/sys/devices/virtual/net/bond0")
			m.sshSession("192.0.2.7", "192.0.2.1", "br0")
		}, "0000:61:00.0 carries the ssh session from 192.0.2.7 (through br0)", false},
		{"an ssh connection of somebody else's", nic, func(m *sim) {
			m.put("/proc/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   "+
				"uid  timeout inode\n"+
				"   0: 010200C0:0016 096433C6:D431 01 00000000:00000000 02:00099D9F 00000000     0        0 4711 2 "+
				"0000000000000000 20 4 30 10 -1\n"+
				"   1: 010200C0:1F90 096433C6:D432 01 00000000:00000000 02:00099D9F 00000000     0        0 4712 2 "+
				"0000000000000000 20 4 30 10 -1")
			m.process(900, "sshd-session", "socket:[4711]")
			m.process(901, "httpd", "socket:[4712]")
			m.net.addresses = []Address{{"eno3", netip.MustParseAddr("192.0.2.1")}}
		}, "0000:61:00.0 carries the ssh session from 198.51.100.9 (through eno3)", false},
		{"a route that cannot be told", nic, func(m *sim) {
			m.sshSession("192.0.2.7", "192.0.2.1", "eno3")
			m.net.broken = errors.New("netlink: permission denied")
		}, "which NIC the ssh session from 192.0.2.7 goes through cannot be told: netlink: permission denied", false},
		{"a machine that cannot be looked at", nic, func(m *sim) {
			m.host = nil
		}, "the machine has to be looked at before it is changed", false},
		{"a GPU with processes", gpu, func(m *sim) {
			dir := m.function(simGPU).path("drm/card0")
			m.put(dir+"/dev", "226:0")
			m.put(dir+"/uevent", "MAJOR=226\nMINOR=0\nDEVNAME=dri/card0\nDEVTYPE=drm_minor")
			m.link(dir+"/subsystem", "/sys/class/drm")
			m.process(812, "Xorg", "/dev/dri/card0", "/dev/dri/card0", "/dev/null")
		}, "0000:41:00.0 is in use: Xorg (812) has /dev/dri/card0 open; end that first", false},
		{"the sound of a GPU", gpu, func(m *sim) {
			dir := m.function(simAudio).path("sound/card1/controlC1")
			m.put(dir+"/dev", "116:7")
			m.put(dir+"/uevent", "DEVNAME=snd/controlC1")
			m.link(dir+"/subsystem", "/sys/class/sound")
			m.process(1200, "pipewire", "/dev/snd/controlC1")
		}, "0000:41:00.1 is in use: pipewire (1200) has /dev/snd/controlC1 open", false},
		{"the boot console", screen, func(*sim) {},
			"0000:02:00.0 is the host's console: the firmware shows its messages on it (boot_vga)", true},
		{"the frame buffer of the consoles", gpu, func(m *sim) {
			m.put(m.function(simGPU).path("graphics/fb0/name"), "amdgpudrmfb")
			m.link("/sys/class/graphics/fb0", "/sys/devices/pci0000:40/"+simPort+"/"+simGPU+"/graphics/fb0")
			m.link("/sys/class/graphics/fb0/device", "/sys/devices/pci0000:40/"+simPort+"/"+simGPU)
		}, "0000:41:00.0 is the host's console: frame buffer fb0, with the text consoles, is on it", true},
		{"the frame buffer that the firmware left", gpu, func(m *sim) {
			m.put("/proc/iomem", "e0000000-efffffff : PCI Bus 0000:41\n  e0000000-efffffff : 0000:41:00.0\n    "+
				"e0000000-e02fffff : BOOTFB")
		}, "the frame buffer that the firmware left (BOOTFB) is in its memory", true},
		{"a serial console on a card", gpu, func(m *sim) {
			m.put("/sys/class/tty/console/active", "tty0 ttyS4")
			m.link("/sys/class/tty/ttyS4/device", "/sys/devices/pci0000:40/"+simPort+"/"+simGPU)
		}, "0000:41:00.0 is the host's console: console ttyS4 is on it", true},
		{"a foreign device in the group", nic, func(m *sim) {
			m.link("/sys/kernel/iommu_groups/61/devices/"+simDisk, pciDevices+"/"+simDisk)
		}, "IOMMU group 61 of 0000:61:00.0 also has 0000:01:00.0, which the host uses with driver nvme: a group goes " +
			"to a guest whole or not at all", false},
		{"a function of the same card that stays", wholeCard(plan.KindGPU, simGPU), func(*sim) {},
			"IOMMU group 41 of 0000:41:00.0 also has 0000:41:00.1, which the host uses with driver snd_hda_intel",
			false},
		{"a bridge whose driver the kernel does not allow", gpu, func(m *sim) {
			m.link("/sys/kernel/iommu_groups/41/devices/"+simPort, pciDevices+"/"+simPort)
			m.put(m.function(simPort).path("class"), "0x060100")
		}, "IOMMU group 41 of 0000:41:00.0 also has bridge 0000:40:01.0, which driver pcieport uses: the kernel does " +
			"not give such a group away", false},
		{"a device in the group that is not on PCI", nic, func(m *sim) {
			m.put("/sys/kernel/iommu_groups/61/devices/fsl-mc", "")
		}, `IOMMU group 61 of 0000:61:00.0 also has "fsl-mc", which is not on PCI`, false},
		{"no IOMMU", nic, func(m *sim) {
			m.gone(m.function(simNIC).path("iommu_group"))
		}, "0000:61:00.0 is in no IOMMU group: switch VT-d or AMD-Vi on", false},
		{"memory that the firmware keeps", nic, func(m *sim) {
			m.host.IOMMU.Groups = []topology.IOMMUGroup{{ID: 61, Devices: []topology.PCIAddr{addr(simNIC)},
				Reserved: []string{"0x7d000000 0x7dffffff direct"}}}
		}, "the firmware keeps memory of the host for IOMMU group 61 of 0000:61:00.0 (0x7d000000 0x7dffffff direct)",
			false},
		{"addresses", nic, func(m *sim) {
			m.net.addresses = []Address{{"eno3", netip.MustParseAddr("fe80::1")},
				{"eno3", netip.MustParseAddr("10.0.0.7")}}
		}, "0000:61:00.0 is in use by the host: eno3 has address 10.0.0.7; take that from it", true},
		{"a member of a bond", nic, func(m *sim) {
			m.put("/sys/devices/virtual/net/bond0/mtu", "1500")
			m.link("/sys/class/net/eno3/master", "/sys/devices/virtual/net/bond0")
		}, "0000:61:00.0 is in use by the host: eno3 belongs to bond0", true},
		{"a running tenant", nic, func(m *sim) {
			m.host.Tenants = []topology.Tenant{
				{Name: "old", State: "shut off", Devices: []topology.TenantDevice{{PCI: addr(simNIC)}}},
				{Name: "web", State: "running", Devices: []topology.TenantDevice{{PCI: addr(simNIC)}}},
			}
		}, "0000:61:00.0 is held by virtual machine web (running): shut it down first", false},
		{"another card at the address", nic, func(m *sim) { m.put(m.function(simNIC).path("device"), "0x1572") },
			"0000:61:00.0 is 8086:1572, and was 8086:1521 when the plan was made: cards have been moved; make a " +
				"new plan", false},
		{"no card at the address", nic, func(m *sim) {
			m.gone(pciDevices + "/" + simNIC)
		}, "0000:61:00.0 is not there: file does not exist; put the card back, or make a new plan", false},
		{"a card that does not answer", nic, func(m *sim) {
			for i := range m.host.PCI {
				m.host.PCI[i].Dead = m.host.PCI[i].Address == addr(simNIC)
			}
		}, "0000:61:00.0 does not answer (every read gives ones)", false},
		{"virtual functions that the plan does not know of", wholeCard(plan.KindNIC, simPF), twoVFs,
			"0000:81:00.0 has 2 virtual functions, which the plan does not know of and which would go with it: echo " +
				"0 > /sys/bus/pci/devices/0000:81:00.0/sriov_numvfs", false},
		{"a virtual function that a guest has open", vf, func(m *sim) {
			twoVFs(m)
			m.load("vfio_pci")
			if err := (function{m.s, m.k, m.vfAddr(addr(simPF), 0)}).giveToVFIO(context.Background()); err != nil {
				m.t.Fatal(err)
			}
			m.process(4000, "qemu-system-x86", "/dev/vfio/vfio", "/dev/vfio/100")
		}, "virtual function 0 of 0000:81:00.0: 0000:81:10.0 is in use: qemu-system-x86 (4000) has /dev/vfio/100 open",
			false},
		{"a virtual function that a tenant holds", vf, func(m *sim) {
			twoVFs(m)
			m.host.Tenants = []topology.Tenant{{Name: "db", State: "paused",
				Devices: []topology.TenantDevice{{PCI: m.vfAddr(addr(simPF), 1)}}}}
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is held by virtual machine db (paused)", false},
		{"a virtual function with the default route", vf, func(m *sim) {
			twoVFs(m)
			m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno4v1",
				PCI: []string{m.vfAddr(addr(simPF), 1).String()}}}
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 carries the default route (eno4v1, ipv4)", false},
		{"a virtual function with an address", vf, func(m *sim) {
			twoVFs(m)
			m.put(pciDevices+"/"+m.vfAddr(addr(simPF), 1).String()+"/net/eno4v1/mtu", "1500")
			m.net.addresses = []Address{{"eno4v1", netip.MustParseAddr("10.0.0.7")}}
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is in use: eno4v1 has address 10.0.0.7", false},
		{"a virtual function that a container has", vf, func(m *sim) {
			twoVFs(m)
			m.gone(pciDevices + "/" + m.vfAddr(addr(simPF), 1).String() + "/net")
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is in use: driver igbvf has it, and its network device " +
			"is in another network namespace", false},
		{"the lab's own virtual function with an address", vf, func(m *sim) {
			if err := m.setCount(addr(simPF), 3); err != nil {
				m.t.Fatal(err)
			}
			m.put(pciDevices+"/"+m.vfAddr(addr(simPF), 1).String()+"/net/eno4v1/mtu", "1500")
			m.net.addresses = []Address{{"eno4v1", netip.MustParseAddr("10.0.0.7")}}
		}, "virtual function 1 of 0000:81:00.0: 0000:81:10.2 is in use: eno4v1 has address 10.0.0.7", false},
		{"the port of the default route", vf, func(m *sim) {
			m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno4", PCI: []string{simPF}}}
		}, "0000:81:00.0 would be down for a moment (the number of its virtual functions changes", true},
		{"the MTU of the port of the default route", vf, func(m *sim) {
			m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno4", PCI: []string{simPF}}}
		}, "0000:81:00.0 would be down for a moment (its MTU is raised from 1500 to 4200)", true},
		{"a port without SR-IOV", vf, func(m *sim) {
			m.gone(m.function(simPF).path(fileTotal))
		}, "0000:81:00.0 offers no SR-IOV: switch it on in the machine's firmware and in the NIC's (SRIOV_EN)", false},
		{"too few virtual functions", vf, func(m *sim) { m.put(m.function(simPF).path(fileTotal), "2") },
			"0000:81:00.0 offers 2 virtual functions, and the plan needs 3: raise that in the NIC's firmware " +
				"(NUM_OF_VFS)", false},
		{"a port without a network device", vf, func(m *sim) {
			m.gone("/sys/devices/pci0000:80/" + simPF + "/net")
		}, "0000:81:00.0 has no network device: load its driver", false},
		{"another card with virtual functions", vf, func(m *sim) {
			m.put(m.function(simPF).path("vendor"), "0x15b3")
		}, "0000:81:00.0 is 15b3:10c9, and was 8086:10c9", false},
	} {
		t.Run(c.name, c.run)
	}
}

type guardCase struct {
	name   string
	card   plan.NodeDevice
	change func(*sim)
	want   string
	really bool // --yes-really overrides the refusal
}

func (c guardCase) run(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	var vfs []plan.PFCount
	if c.card.Kind == plan.KindVF {
		vfs = []plan.PFCount{{PF: simPF, Count: 3, Lab: 1}}
	}
	p, l := testPlan(t, vfs, wish{"a", []plan.NodeDevice{c.card}})
	host := *m.host
	host.PCI = append([]topology.PCIDevice(nil), m.host.PCI...)
	steps := func(o Options) {
		o.Inspect = func(context.Context) (*topology.Host, error) {
			if m.host == nil {
				return nil, errors.New("out of order")
			}
			return m.host, nil
		}
		made, err := stepsOn(m.k, p, l, &host, o)
		if err != nil {
			t.Fatal(err)
		}
		b := m.bench(t)
		if o.YesReally || c.want == "" {
			b.must(b.make(made))
		} else {
			b.refuses(made, c.want)
		}
	}
	c.change(m)
	steps(Options{})
	if c.really {
		steps(Options{YesReally: true})
	} else if c.want != "" {
		made, err := stepsOn(m.k, p, l, &host, Options{YesReally: true, Inspect: m.inspect})
		if err != nil {
			t.Fatal(err)
		}
		if m.host != nil {
			m.bench(t).refuses(made, c.want)
		}
	}
}

func (m *sim) sshSession(remote, local, netdev string) {
	m.net.routes[netip.MustParseAddr(remote)] = []string{netdev}
	// sudo has removed it from our own environment.
	dir := "/proc/" + strconv.Itoa(os.Getpid())
	m.put(dir+"/environ", "PATH=/bin\x00")
	m.put(dir+"/stat", strconv.Itoa(os.Getpid())+" (a (name) 7) S 100 1 1")
	m.put("/proc/100/environ", "HOME=/root\x00SSH_CONNECTION="+remote+" 50000 "+local+" 22\x00TERM=xterm\x00")
}

func TestGuardsLetGoWhatIsFree(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno4", PCI: []string{simPF}}}
	m.host.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(addr(simDisk)), Mounts: []string{"/"}}, {Name: "sda"}}
	m.host.Tenants = []topology.Tenant{{Name: "old", State: "shut off",
		Devices: []topology.TenantDevice{{PCI: addr(simGPU)}}}}
	m.process(4000, "qemu-system-x86", "/dev/vfio/vfio", "/dev/vfio/7", "/dev/null")
	m.net.addresses = []Address{{"eno3", netip.MustParseAddr("fe80::1")}}
	m.link("/sys/kernel/iommu_groups/41/devices/"+simPort, pciDevices+"/"+simPort) // a root port: the kernel allows it
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindGPU, simGPU, simAudio),
		wholeCard(plan.KindNIC, simNIC)}})
	b := m.bench(t)
	b.must(b.make(m.steps(t, p, l, Options{})))
}

func TestAllReasonsComeAtOnce(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno3", PCI: []string{simNIC}}}
	m.host.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(addr(simDisk)), Mounts: []string{"/"}}}
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC),
		wholeCard(plan.KindGPU, simDisk)}})
	m.bench(t).refuses(m.steps(t, p, l, Options{}), "carries the default route", "has the root disk")
}

func TestBootBuffer(t *testing.T) {
	t.Parallel()
	const iomem = `00000000-00000fff : Reserved
c0000000-febfffff : PCI Bus 0000:00
  c0000000-cfffffff : PCI Bus 0000:01
    c0000000-cfffffff : 0000:01:00.0
      c0000000-c08fffff : efifb
  d0000000-dfffffff : 0000:02:00.0
  e0000000-e0ffffff : simplefb
  f0000000-f0ffffff : 0000:01:00.1
`
	for a, want := range map[string]string{"0000:01:00.0": "efifb", "0000:02:00.0": "", "0000:01:00.1": "",
		"0000:09:00.0": ""} {
		if got := bootBuffer(iomem, addr(a)); got != want {
			t.Errorf("bootBuffer(%s) = %q, want %q", a, got, want)
		}
	}
	if got := bootBuffer(strings.ReplaceAll(iomem, "efifb", "amdgpu"), addr("0000:01:00.0")); got != "" {
		t.Errorf("a driver's own memory counts as %q", got)
	}
}
