package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

type card struct {
	addr   string
	class  topology.ID24
	group  int // negative means none
	change func(*topology.PCIDevice)
}

const (
	classVGA      = topology.ID24(0x030000)
	class3D       = topology.ID24(0x030200)
	classAudio    = topology.ID24(0x040300)
	classEthernet = topology.ID24(0x020000)
	classNVMe     = topology.ID24(0x010802)
	classBridge   = topology.ID24(0x060400)
)

func cardHost(t testing.TB, cards ...card) *topology.Host {
	t.Helper()
	h := described(t, "pack:1 core:8 pu:2")
	h.NUMANodes[0].MemoryBytes = new(64 * gib)
	for _, c := range cards {
		d := topology.PCIDevice{Address: addr(t, c.addr), Class: &c.class, Vendor: new(topology.VendorNVIDIA),
			Root: "pci0000:00"}
		if c.group >= 0 {
			d.IOMMUGroup = &c.group
		}
		if c.change != nil {
			c.change(&d)
		}
		h.PCI = append(h.PCI, d)
	}
	h.Complete()
	return h
}

// takesConsole ends notes about screens.
const takesConsole = "a lab node that gets it takes the console along. Log in over the network or a serial console " +
	"(console=ttyS0), or make another graphics card the primary one in the firmware"

const noIOMMU = "this is a virtual machine without an IOMMU, which its hypervisor would have to give it, and VFIO " +
	"gives no device away without one"

func bootVGA(d *topology.PCIDevice) { d.BootVGA = new(true) }

// asks has a device of each of the kinds. Notes only concern requested devices.
func asks(kinds ...string) *lab.Lab {
	l := labOf(1)
	for _, k := range kinds {
		switch k {
		case plan.KindGPU:
			gpus(some(1))(&l.Nodes[0])
		case plan.KindNIC:
			nics(some(1))(&l.Nodes[0])
		case plan.KindVF:
			vfs(some(1))(&l.Nodes[0])
		}
	}
	return l
}

func deviceLines(p *plan.Problem) []string {
	var lines []string
	for _, d := range p.Devices {
		text := fmt.Sprintf("%s %s bundle %d", d.Kind, d.ID, d.Bundle)
		if len(d.Functions) > 1 {
			text += " with " + strings.Join(d.Functions[1:], " ")
		}
		if d.Refused != "" {
			text += "; stays: " + d.Refused
		}
		lines = append(lines, text)
	}
	return lines
}

func TestBundlesAndWhatStays(t *testing.T) {
	t.Parallel()
	disk := func(h *topology.Host) {
		h.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(addr(t, "0000:01:00.0")),
			Mounts: []string{"/", "/boot"}}}
	}
	tenant := func(held ...string) func(*topology.Host) {
		return func(h *topology.Host) {
			var devices []topology.TenantDevice
			for _, a := range held {
				devices = append(devices, topology.TenantDevice{PCI: addr(t, a)})
			}
			h.Tenants = []topology.Tenant{{Name: "web", Devices: devices}}
		}
	}
	monitor := func(h *topology.Host) {
		for i := range h.GPUs {
			h.GPUs[i].ConnectedMon = new(true)
		}
	}
	netdev := func(name, master string) func(*topology.Host) {
		return func(h *topology.Host) {
			h.NICs[0].Netdevs = []string{name}
			h.NICs[0].Ports = []topology.Netdev{{Name: name, Master: master}}
		}
	}
	route := func(netdev string, pci ...string) func(*topology.Host) {
		return func(h *topology.Host) { h.Routes = []topology.Route{{Family: "ipv4", Netdev: netdev, PCI: pci}} }
	}
	vfOf := func(pf string) func(*topology.PCIDevice) {
		return func(d *topology.PCIDevice) { d.PF = new(addr(t, pf)) }
	}
	drivenBy := func(driver string) func(*topology.PCIDevice) {
		return func(d *topology.PCIDevice) { d.Driver, d.DriverKnown = driver, true }
	}
	sriov := func(d *topology.PCIDevice) { d.SRIOV = &topology.SRIOV{Total: new(4)} }
	gpu := card{"0000:06:00.0", class3D, 20, nil}
	sound := card{"0000:06:00.1", classAudio, 20, nil}
	nic := card{"0000:41:00.0", classEthernet, 37, nil}
	var large []card
	for i := range 300 {
		large = append(large, card{fmt.Sprintf("0000:%02x:%02x.0", i/32, i%32), classEthernet, 0, nil})
	}
	tests := []struct {
		name  string
		host  *topology.Host
		lab   *lab.Lab
		want  []string
		notes []string
	}{
		{"functions of a GPU's card go together", cardHost(t, gpu, sound, nic), asks("gpu"),
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1", "nic 0000:41:00.0 bundle 1"}, nil},
		{"ports of a NIC go apart", cardHost(t, nic, card{"0000:41:00.1", classEthernet, 38, nil}), asks("nic"),
			[]string{"nic 0000:41:00.0 bundle 0", "nic 0000:41:00.1 bundle 1"}, nil},
		{"a group goes together, without its bridges", cardHost(t, card{"0000:00:01.0", classBridge, 20, nil}, gpu,
			sound, card{"0000:41:00.0", classEthernet, 20, nil}), asks("gpu"),
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1 0000:41:00.0",
				"nic 0000:41:00.0 bundle 0 with 0000:06:00.0 0000:06:00.1"},
			[]string{"IOMMU group 20: with 0000:06:00.0 go 0000:41:00.0 (Ethernet)"}},
		{"a group with a bridge that a driver uses stays",
			cardHost(t, card{"0000:02:00.0", classBridge, 20, drivenBy("shpchp")}, card{"0000:03:01.0", class3D, 20,
				nil}), asks(),
			[]string{"gpu 0000:03:01.0 bundle 0; stays: its IOMMU group also has bridge 0000:02:00.0, which driver " +
				"shpchp uses: the kernel does not give such a group away; another slot may help"}, nil},
		{"a group with a port of PCIe goes", cardHost(t, card{"0000:00:01.0", classBridge, 20, drivenBy("pcieport")},
			card{"0000:03:01.0", class3D, 20, nil}), asks(),
			[]string{"gpu 0000:03:01.0 bundle 0"}, nil},
		{"a card in two groups joins them", cardHost(t, gpu, card{"0000:06:00.1", classAudio, 21, nil},
			card{"0000:41:00.0", classEthernet, 21, nil}), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1 0000:41:00.0",
				"nic 0000:41:00.0 bundle 0 with 0000:06:00.0 0000:06:00.1"}, nil},
		{"one group for everything stays where the disk is in it",
			altered(cardHost(t, card{"0000:01:00.0", classNVMe, 0, nil}, card{"0000:06:00.0", class3D, 0, nil},
				card{"0000:41:00.0", classEthernet, 0, nil}), disk), asks(), []string{
				"gpu 0000:06:00.0 bundle 0 with 0000:01:00.0 0000:41:00.0; stays: IOMMU group 0 ties it to " +
					"0000:01:00.0, " +
					"of which: it holds disk nvme0n1 (/ /boot)",
				"nic 0000:41:00.0 bundle 0 with 0000:01:00.0 0000:06:00.0; stays: IOMMU group 0 ties it to " +
					"0000:01:00.0, " +
					"of which: it holds disk nvme0n1 (/ /boot)"}, nil},
		{"a group of most of a machine stays", cardHost(t, large...), asks(), nil, nil},
		{"virtual functions do not tie their physical one", cardHost(t, card{"0000:41:00.0", classEthernet, 37, sriov},
			card{"0000:41:00.1", classEthernet, 37, vfOf("0000:41:00.0")}),
			asks("vf"), []string{"nic 0000:41:00.0 bundle 0"},
			[]string{"NIC 0000:41:00.0: its virtual functions share IOMMU group 37 with other functions: they may " +
				"not go to different lab nodes"}},
		{"groups that nobody tells", cardHost(t, card{"0000:06:00.0", class3D, -1, nil},
			card{"0000:06:00.1", classAudio, -1, nil}), asks("gpu"),
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1"},
			[]string{"the host does not tell its IOMMU groups: the functions of a GPU are taken to go together, " +
				"and the " +
				"ports of a NIC not"}},
		{"an IOMMU that is off", altered(cardHost(t, card{"0000:06:00.0", class3D, -1, nil}), func(h *topology.Host) {
			h.IOMMU.Enabled, h.System.CPUModel = new(false), "Intel(R) Xeon(R) Platinum 8480+"
		}), asks("gpu"), []string{"gpu 0000:06:00.0 bundle 0"},
			[]string{"the IOMMU is off, and passthrough needs it: turn on VT-d in the firmware and boot with " +
				"intel_iommu=on; which devices share a group can be told " +
				"only then: now the functions of a GPU are taken to go together, and the ports of a NIC not"}},

		{"no IOMMU in a virtual machine", altered(cardHost(t, card{"0000:06:00.0", class3D, -1, nil},
			card{"0000:41:00.0", classEthernet, -1, sriov}), func(h *topology.Host) {
			h.IOMMU.Enabled, h.System.InVM = new(false), new(true)
		}), asks(), []string{"gpu 0000:06:00.0 bundle 0; stays: " + noIOMMU,
			"nic 0000:41:00.0 bundle 1; stays: " + noIOMMU}, nil},
		{"no IOMMU in an emulated host", altered(cardHost(t, card{"0000:06:00.0", class3D, -1, nil}),
			func(h *topology.Host) {
				h.IOMMU.Enabled, h.System.InVM, h.Provenance.Emulated = new(false), new(true), true
			}), asks(), []string{"gpu 0000:06:00.0 bundle 0"}, nil},

		{"a default route by its network device", altered(cardHost(t, nic), netdev("eth0", ""), route("eth0")), asks(),
			[]string{"nic 0000:41:00.0 bundle 0; stays: it carries the default route (eth0)"}, nil},
		{"a default route by its function", altered(cardHost(t, nic), route("br0", "what", "0000:41:00.0")), asks(),
			[]string{"nic 0000:41:00.0 bundle 0; stays: it carries the default route (br0)"}, nil},
		{"a default route over a bridge", altered(cardHost(t, nic), netdev("eth0", "br0"), route("br0")), asks(),
			[]string{"nic 0000:41:00.0 bundle 0; stays: it carries the default route (br0)"}, nil},
		{"a default route over a bond", altered(cardHost(t, nic), netdev("eth0", ""), route("bond0"),
			func(h *topology.Host) {
				h.Bonds = []topology.Bond{{Name: "bond0", Members: []string{"eth0"}}}
			}), asks(), []string{"nic 0000:41:00.0 bundle 0; stays: it carries the default route (bond0)"}, nil},
		{"a default route over a virtual function", altered(cardHost(t, card{"0000:41:00.0", classEthernet, 37, sriov},
			card{"0000:41:00.1", classEthernet, 38, vfOf("0000:41:00.0")}), route("eth9", "0000:41:00.1")), asks(),
			[]string{"nic 0000:41:00.0 bundle 0; stays: of its virtual function 0 (0000:41:00.1): it carries the " +
				"default route (eth9)"}, nil},
		{"a part of a bond without a route may go", altered(cardHost(t, nic), netdev("eth0", "bond0")), asks("nic"),
			[]string{"nic 0000:41:00.0 bundle 0"},
			[]string{"NIC 0000:41:00.0 is a part of bond0: the host loses it there when it is given away"}},

		{"the screen with a monitor", altered(cardHost(t, card{"0000:06:00.0", classVGA, 1, bootVGA},
			card{"0000:07:00.0", classVGA, 2, nil}), monitor), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0; stays: the host's console is on it, and a monitor is connected",
				"gpu 0000:07:00.0 bundle 1"}, nil},
		{"one of two screens without a monitor", cardHost(t, card{"0000:06:00.0", classVGA, 1, bootVGA},
			card{"0000:07:00.0", classVGA, 2, nil}), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0", "gpu 0000:07:00.0 bundle 1"}, nil},
		{"the only screen", cardHost(t, card{"0000:06:00.0", classVGA, 1, bootVGA}), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0; stays: it is the only screen of the host"}, nil},
		{"the only screen, given up already", altered(cardHost(t, card{"0000:06:00.0", classVGA, 1, bootVGA}),
			func(h *topology.Host) {
				h.PCI[0].Driver = "vfio-pci"
			}),
			asks(), []string{"gpu 0000:06:00.0 bundle 0"}, nil},
		{"perhaps the only screen", cardHost(t, card{"0000:06:00.0", classVGA, 1, nil}), asks("gpu"),
			[]string{"gpu 0000:06:00.0 bundle 0"},
			[]string{"0000:06:00.0 is the only screen of the host, as far as is known: " + takesConsole}},
		{"the screen of a management controller", altered(cardHost(t, card{"0000:06:00.0", class3D, 1, nil},
			card{"0000:07:00.0", classVGA, 2, func(d *topology.PCIDevice) { d.Vendor = new(topology.ID16(0x1a03)) }})),
			asks("gpu"), []string{"gpu 0000:06:00.0 bundle 0"}, nil},
		{"one of two screens for a lab node", cardHost(t, card{"0000:06:00.0", classVGA, 1, bootVGA},
			card{"0000:07:00.0", classVGA, 2, nil}), asks("gpu"),
			[]string{"gpu 0000:06:00.0 bundle 0", "gpu 0000:07:00.0 bundle 1"},
			[]string{"0000:06:00.0 has the console of the host (boot_vga): " + takesConsole}},

		{"what a tenant holds", altered(cardHost(t, gpu, sound, nic), tenant("0000:06:00.1")), asks(), []string{
			"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1; stays: it goes together with function 0000:06:00.1, of " +
				"which: VM web holds it", "nic 0000:41:00.0 bundle 1"}, nil},
		{"what is dead", cardHost(t, card{"0000:06:00.0", class3D, 1, func(d *topology.PCIDevice) {
			d.Dead = true
		}}), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0; stays: it does not answer: every read gives ones"}, nil},
		{"a GPU with virtual functions", cardHost(t, card{"0000:06:00.0", class3D, 1, nil},
			card{"0000:06:00.4", class3D, 2, vfOf("0000:06:00.0")}), asks(),
			[]string{"gpu 0000:06:00.0 bundle 0; stays: it has virtual functions (1), which go instead of it",
				"gpu 0000:06:00.4 bundle 1"}, nil},
		{"nothing without a name", altered(cardHost(t), func(h *topology.Host) {
			h.GPUs = []topology.GPU{{}}
		}), asks(), nil,
			[]string{"a GPU has neither an address nor a name, and is left out"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for i := range test.host.PCI {
				if d := &test.host.PCI[i]; d.ClassName == "" && *d.Class == classEthernet {
					d.ClassName = "Ethernet"
				}
			}
			p := problem(t, test.host, test.lab, build.Options{})
			checkWellFormed(t, p)
			if test.name == "a group of most of a machine stays" {
				if d := p.Devices[7]; d.Refused != "it goes together with 300 functions of its IOMMU group" ||
					len(d.Functions) != 1 {
					t.Errorf("device %+v", d)
				}
				return
			}
			if diff := cmp.Diff(test.want, deviceLines(p)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			var notes []string
			for _, n := range p.Notes {
				if !strings.Contains(n, "its memory is not") {
					notes = append(notes, n)
				}
			}
			if diff := cmp.Diff(test.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVirtualFunctions(t *testing.T) {
	t.Parallel()
	existing := func(t *topology.SRIOV, addrs ...topology.PCIAddr) *topology.SRIOV {
		for i, a := range addrs {
			t.VFs = append(t.VFs, topology.VF{Index: i, Address: &a})
		}
		return t
	}
	second, third := addr(t, "0000:41:00.3"), addr(t, "0000:41:00.4")
	tests := []struct {
		name  string
		sriov *topology.SRIOV
		held  []topology.PCIAddr
		want  []int
	}{
		{"what firmware offers", &topology.SRIOV{Total: new(3)}, nil, []int{0, 1, 2}},
		{"nothing", &topology.SRIOV{Total: new(0)}, nil, nil},
		{"not told", nil, nil, nil},
		{"less than nothing", &topology.SRIOV{Total: new(-4)}, nil, nil},
		{"those that exist where firmware does not tell", existing(&topology.SRIOV{}, second, third), nil, []int{0, 1}},
		{"without those that tenants hold", existing(&topology.SRIOV{Total: new(4)}, second, third),
			[]topology.PCIAddr{third}, []int{0, 2, 3}},
		{"also where they do not exist now", &topology.SRIOV{Total: new(4), Offset: new(2), Stride: new(1)},
			[]topology.PCIAddr{third}, []int{0, 1, 3}},
		{"on the next bus", &topology.SRIOV{Total: new(3), Offset: new(0x100), Stride: new(2)},
			[]topology.PCIAddr{addr(t, "0000:42:00.2")}, []int{0, 2}},
		{"none of a NIC that a tenant has whole", &topology.SRIOV{Total: new(3)},
			[]topology.PCIAddr{addr(t, "0000:41:00.0")}, nil},
		{"offsets that cannot be", &topology.SRIOV{Total: new(2), Offset: new(1 << 40), Stride: new(1 << 40)}, nil,
			[]int{0, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := cardHost(t, card{"0000:41:00.0", classEthernet, 1, func(d *topology.PCIDevice) {
				d.SRIOV = test.sriov
			}})
			tenant := topology.Tenant{Name: "web"}
			for _, a := range test.held {
				tenant.Devices = append(tenant.Devices, topology.TenantDevice{PCI: a})
			}
			h.Tenants = []topology.Tenant{tenant}
			p := problem(t, h, labOf(1), build.Options{})
			checkWellFormed(t, p)
			if diff := cmp.Diff(test.want, p.Devices[0].FreeVFs); diff != "" {
				t.Errorf("virtual functions (-want +got):\n%s", diff)
			}
			if whole := len(test.held) == 0; p.Devices[0].Whole != whole {
				t.Errorf("whole %t, want %t (%s)", p.Devices[0].Whole, whole, p.Devices[0].Refused)
			}
		})
	}
	for name, change := range map[string]func(*topology.Host){
		"the NIC tells": func(h *topology.Host) {
			h.NICs[0].SRIOV, h.PCI[0].SRIOV, h.PCI[1].PF = &topology.SRIOV{Total: new(2),
				VFs: []topology.VF{{Index: 0, Address: &second}}}, nil, nil
		},
		"the virtual function tells": func(h *topology.Host) {
			h.NICs[0].SRIOV, h.PCI[0].SRIOV = &topology.SRIOV{Total: new(2)}, nil
		},
	} {
		t.Run("where only "+name, func(t *testing.T) {
			t.Parallel()
			h := cardHost(t, card{"0000:41:00.0", classEthernet, 1, nil}, card{"0000:41:00.3", classEthernet, 2,
				func(d *topology.PCIDevice) {
					d.PF = new(addr(t, "0000:41:00.0"))
				}})
			h.Tenants = []topology.Tenant{{Name: "web", Devices: []topology.TenantDevice{{PCI: second}}}}
			change(h)
			p := problem(t, h, labOf(1), build.Options{})
			checkWellFormed(t, p)
			d := p.Devices[0]
			if !slices.Equal(d.FreeVFs, []int{1}) ||
				d.Refused != "of its virtual function 0 (0000:41:00.3): VM web holds it" {
				t.Errorf("device %+v", d)
			}
		})
	}
	t.Run("a hostile number is cut", func(t *testing.T) {
		t.Parallel()
		h := cardHost(t, card{"0000:41:00.0", classEthernet, 1, func(d *topology.PCIDevice) {
			d.SRIOV = &topology.SRIOV{Total: new(1 << 40)}
		}})
		if p := problem(t, h, labOf(1), build.Options{}); p.Devices[0].VFs != build.MaxNICVFs {
			t.Errorf("%d virtual functions", p.Devices[0].VFs)
		}
	})
}

func TestRatesAndRDMA(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*topology.Host)
		rate   int64
		rdma   bool
	}{
		{"a plain NIC that is down", func(h *topology.Host) { h.PCI[0].Vendor = new(topology.VendorIntel) }, 0, false},
		{"the link's rate", func(h *topology.Host) {
			h.NICs[0].SpeedMbps, h.PCI[0].Vendor = new(int64(1000)), nil
		}, 1000, false},
		{"an unknown rate", func(h *topology.Host) {
			h.NICs[0].SpeedMbps, h.PCI[0].Vendor = new(int64(-1)), nil
		}, 0, false},
		{"the fastest port", func(h *topology.Host) {
			h.NICs[0].Ports, h.PCI[0].Vendor = []topology.Netdev{{Name: "a", SpeedMbps: new(int64(10_000))},
				{Name: "b", SpeedMbps: new(int64(25_000))}}, nil
		}, 25_000, false},
		{"the rate of an RDMA port that is up", func(h *topology.Host) {
			h.NICs[0].Devices = []topology.RDMADevice{{Name: "mlx5_0",
				Ports: []topology.RDMAPort{{State: "DOWN", RateGbps: new(800.0)},
					{State: "ACTIVE", RateGbps: new(400.0)},
					{State: "ACTIVE", RateGbps: new(1e300)}}}}
		}, 400_000, true},
		{"RDMA by its device", func(h *topology.Host) {
			h.NICs[0].RDMA, h.PCI[0].Vendor = []string{"rocep1s0"}, new(topology.VendorIntel)
		}, 0, true},
		{"RDMA by vendor, bound to vfio-pci", func(h *topology.Host) {
			h.PCI[0].Vendor, h.PCI[0].Driver = new(topology.VendorMellanox), "vfio-pci"
		}, 0, true},
		{"RDMA by driver", func(h *topology.Host) {
			h.NICs[0].Driver, h.PCI[0].Vendor = "bnxt_en", new(topology.VendorBroadcom)
		}, 0, true},
		{"no RDMA by driver", func(h *topology.Host) {
			h.NICs[0].Driver, h.PCI[0].Vendor = "igb", new(topology.VendorIntel)
		}, 0, false},
		{"RDMA by class", func(h *topology.Host) {
			h.PCI[0].Class, h.PCI[0].Vendor = new(topology.ID24(0x020700)), nil
		}, 0, true},
		{"HNS with RDMA", func(h *topology.Host) {
			h.PCI[0].Vendor, h.PCI[0].Device = new(topology.ID16(0x19e5)), new(topology.ID16(0xa222))
		}, 0, true},
		{"HNS without", func(h *topology.Host) {
			h.PCI[0].Vendor, h.PCI[0].Device = new(topology.ID16(0x19e5)), new(topology.ID16(0xa221))
		}, 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := altered(cardHost(t, card{"0000:41:00.0", classEthernet, 1, nil}), test.change)
			p := problem(t, h, labOf(1), build.Options{})
			checkWellFormed(t, p)
			if d := p.Devices[0]; d.RateMbps != test.rate || d.RDMA != test.rdma {
				t.Errorf("rate %d, RDMA %t; want %d, %t", d.RateMbps, d.RDMA, test.rate, test.rdma)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	h := h20(t)
	h.Reported = []topology.Path{
		{A: "GPU0", B: "GPU1", Class: topology.PathNVLink, Links: 4},
		{A: "NIC0", B: "GPU0", Class: topology.PathPXB},
		{A: "GPU1", B: "NIC0", Class: topology.PathPHB},
		// no such link exists, so the PCIe path counts
		{A: "GPU2", B: "NIC0", Class: topology.PathNVLink, PCIe: topology.PathPIX},
		{A: "GPU3", B: "NIC0", Class: topology.PathNVLink},
		{A: "GPU3", B: "NIC1", Class: topology.PathSelf},
	}
	p := problem(t, h, labOf(1), build.Options{})
	checkWellFormed(t, p)
	for _, test := range []struct {
		a, b  int
		class string
		steps int
	}{
		{0, 1, "NV", 0}, {0, 8, "PXB", 1}, {1, 8, "PHB", 2}, {2, 8, "PIX", 0}, {3, 8, "NODE", 3}, {3, 9, "NODE", 3},
		{0, 2, "NODE", 3}, {0, 4, "SYS", 4}, {7, 8, "SYS", 4},
	} {
		if q := p.Path(test.a, test.b); q.Class != test.class || q.Steps != test.steps {
			t.Errorf("path %d-%d: %s, %d steps; want %s, %d", test.a, test.b, q.Class, q.Steps, test.class, test.steps)
		}
	}
	if notes := notesWith(p, "paths"); !slices.Equal(notes,
		[]string{"the host does not tell 56 paths between its GPUs and NICs: taken as NODE within a NUMA node, " +
			"else as SYS"}) {
		t.Errorf("notes %q", notes)
	}
}

// A dump may contain bridges stacked hundreds deep.
func TestDeepTreesAreNotWalkedForEveryPair(t *testing.T) {
	t.Parallel()
	var cards []card
	for i := range 250 {
		parent := fmt.Sprintf("0000:%02x:1f.0", i)
		cards = append(cards, card{fmt.Sprintf("0000:%02x:1f.0", i+1), classBridge, -1, func(d *topology.PCIDevice) {
			d.ParentUnknown, d.Root = false, ""
			if i > 0 {
				d.Parent = new(addr(t, parent))
			}
		}})
	}
	for i := range 200 {
		cards = append(cards, card{fmt.Sprintf("0001:%02x:00.0", i), class3D, -1, func(d *topology.PCIDevice) {
			d.Parent, d.ParentUnknown, d.Root = new(addr(t, "0000:fa:1f.0")), false, ""
		}})
	}
	p := problem(t, cardHost(t, cards...), labOf(1), build.Options{})
	checkWellFormed(t, p)
	if p.Paths[0].Class != "NODE" || len(notesWith(p, "19900 paths")) != 1 {
		t.Errorf("path %+v, notes %q", p.Paths[0], p.Notes)
	}
}

func TestDevicesAreInAnOrderThatPeopleExpect(t *testing.T) {
	t.Parallel()
	h := nodesOnly(t, "0-15")
	for _, name := range []string{"GPU10", "GPU2", "9", "GPU1"} {
		h.GPUs = append(h.GPUs, topology.GPU{Name: name})
	}
	h.GPUs = append(h.GPUs, topology.GPU{Address: new(addr(t, "0001:01:00.0"))},
		topology.GPU{Address: new(addr(t, "0000:ff:00.0"))})
	p := problem(t, h, labOf(1), build.Options{})
	var ids []string
	for _, d := range p.Devices {
		ids = append(ids, d.ID)
	}
	if diff := cmp.Diff([]string{"0000:ff:00.0", "0001:01:00.0", "9", "GPU1", "GPU2", "GPU10"}, ids); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestDevicesByOtherNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		ask   change
		want  string
		notes []string
	}{
		{"a short address", gpus(at("21:00.0")), "0000:21:00.0", nil},
		{"an address as NVIDIA writes it", gpus(at("00000000:21:00.0")), "0000:21:00.0", nil},
		{"another function of the card", gpus(at("0000:06:00.1")), "0000:06:00.0",
			[]string{"vm00: gpus: 0000:06:00.1 is a function of 0000:06:00.0, which goes as a whole"}},
		{"an RDMA device", nics(at("mlx5_2")), "0000:61:00.0", nil},
		{"a network device", vfs(at("enp65s0f1np1")), "0000:41:00.1", nil},
		{"a model in other letters", gpus(lab.DeviceRequest{Count: 1, Model: "rtx 3090", NUMANode: new(1)}),
			"0000:21:00.0", nil},
		{"a vendor by number", nics(lab.DeviceRequest{Count: 1, Vendor: "15B3", NUMANode: new(3)}), "0000:61:00.0",
			nil},
		{"a rate", nics(lab.DeviceRequest{Count: 1, RateMbps: 25_000}), "0000:41:00.0", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, epyc(t), labOf(1, test.ask), build.Options{})
			checkWellFormed(t, p)
			r := p.Requests[0]
			want := slices.Concat(r.GPUs, r.NICs, r.VFs)[0]
			if got := p.Devices[want.Any[0]].ID; got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if diff := cmp.Diff(test.notes, p.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClassesAndAffinity(t *testing.T) {
	t.Parallel()
	l := labOf(7, gpus())
	l.Nodes[2].CPUs = 6
	gpus(lab.DeviceRequest{Count: 1, Vendor: "nvidia"})(&l.Nodes[4])
	gpus(lab.DeviceRequest{Count: 1, Model: "3090"})(&l.Nodes[5])
	l.Affinity = []lab.Affinity{
		{Nodes: []string{"vm06", "vm01"}, NUMA: lab.Different, NIC: lab.Different},
		{Nodes: []string{"vm00", "vm03"}}, // requires nothing
	}
	p := problem(t, epyc(t), l, build.Options{})
	checkWellFormed(t, p)
	var classes []int
	for _, r := range p.Requests {
		classes = append(classes, r.Class)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 0, 3, 3, 4}, classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	want := []plan.Affinity{{Requests: []int{1, 6}, NUMA: plan.Different, NIC: plan.Different}}
	if diff := cmp.Diff(want, p.Affinity); diff != "" {
		t.Errorf("affinity (-want +got):\n%s", diff)
	}
}
