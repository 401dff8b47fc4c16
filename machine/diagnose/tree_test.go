package diagnose_test

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/machinetest"
	"github.com/rackless/rackless/machine/topology"
)

const (
	gpu0 = "sys/devices/pci0000:00/0000:00:03.1/0000:06:00.0"
	gpu1 = "sys/devices/pci0000:20/0000:20:03.1/0000:21:00.0"
	port = "sys/devices/pci0000:20/0000:20:03.1"
	nic0 = "sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0"
	nic1 = "sys/devices/pci0000:60/0000:60:01.1/0000:61:00.0"
	cpus = "sys/devices/system/cpu"
)

// A treeCase tests the whole chain from a file to the finding.
type treeCase struct {
	name    string
	change  func(*machinetest.Tree)
	id      string
	subject string // "" for no finding
	reads   string // a part of the evidence
	tenants []string
}

func write(files ...string) func(*machinetest.Tree) {
	return func(t *machinetest.Tree) {
		for i := 0; i < len(files); i += 2 {
			t.File(files[i], files[i+1])
		}
	}
}

var treeCases = []treeCase{
	{name: "a link that no driver manages at 2.5 GT/s", id: "RL003", subject: "0000:21:00.0",
		reads: "current_link_speed=2.5 GT/s max_link_speed=16.0 GT/s"},
	{name: "the same link trained", id: "RL003",
		change: write(gpu1+"/current_link_speed", "8.0 GT/s PCIe", port+"/current_link_speed", "8.0 GT/s PCIe")},
	{name: "the same link while nvidia's driver saves power", id: "RL004", subject: "0000:21:00.0",
		change: func(t *machinetest.Tree) {
			t.Remove(gpu1 + "/driver")
			t.Link(gpu1+"/driver", "sys/bus/pci/drivers/nvidia")
		}},
	{name: "power saving is not claimed of a card on vfio-pci", id: "RL004"},
	{name: "eight of sixteen lanes", id: "RL002", subject: "0000:06:00.0",
		reads:  "current_link_width=8 max_link_width=16",
		change: write(gpu0+"/current_link_width", "8")},
	{name: "all lanes", id: "RL002"},
	{name: "a slot of an older generation", id: "RL001", subject: "0000:06:00.0", reads: "max_link_speed=8.0 GT/s"},
	{name: "a slot as good as the card", id: "RL001", change: func(t *machinetest.Tree) {
		for _, p := range []string{"sys/devices/pci0000:00/0000:00:03.1", port} {
			t.File(p+"/max_link_speed", "16.0 GT/s PCIe")
		}
	}},
	{name: "a device whose node the firmware does not say", id: "RL010", subject: "0000:41:00.0", reads: "numa_node=-1",
		change: func(t *machinetest.Tree) {
			t.File(nic0+"/numa_node", "-1")
			t.File("sys/devices/pci0000:40/0000:40:01.1/numa_node", "-1")
		}},
	{name: "every device with its node", id: "RL010"},
	{name: "GPU and NIC on different nodes", id: "RL011", subject: "0000:06:00.0", reads: "numa_node=0"},
	{name: "GPU and NIC on one node", id: "RL011", change: write(nic0+"/numa_node", "0", nic1+"/numa_node", "1")},
	{name: "GPU and NIC on one node below different root complexes", id: "RL012", subject: "0000:06:00.0",
		change: write(nic0+"/numa_node", "0", nic1+"/numa_node", "1")},
	{name: "an H100 with 25 Gb/s beside it", id: "RL013", subject: "0000:06:00.0", change: func(t *machinetest.Tree) {
		t.File(gpu0+"/device", "0x2330")
		t.File(gpu0+"/class", "0x030200")
		t.File(nic0+"/numa_node", "0")
	}},
	{name: "a card for which nothing is usual", id: "RL013"},
	{name: "no IOMMU though the command line asks for it", id: "RL020", subject: "host", reads: "amd_iommu=on",
		change: func(t *machinetest.Tree) {
			t.Remove("sys/class/iommu/ivhd0")
			t.Remove("sys/kernel/iommu_groups")
			t.EmptyDir("sys/class/iommu")
			t.EmptyDir("sys/kernel/iommu_groups")
			t.RemoveAll("iommu_group")
		}},
	{name: "an IOMMU", id: "RL020"},
	{name: "a group that a GPU shares with a NIC", id: "RL021", subject: "0000:06:00.0,0000:41:00.0",
		change: func(t *machinetest.Tree) {
			t.Remove(nic0 + "/iommu_group")
			t.Link(nic0+"/iommu_group", "sys/kernel/iommu_groups/20")
			t.Link("sys/kernel/iommu_groups/20/devices/0000:41:00.0", nic0)
		}},
	{name: "a group of a GPU and its own audio function", id: "RL021"},
	{name: "a switch that sends its devices' traffic up", id: "RL023", subject: "0000:63:00.0,0000:63:01.0",
		reads:  "ReqRedir+",
		change: switchWithACS(0x1d)},
	{name: "a switch that lets it through", id: "RL023", change: switchWithACS(0)},
	{name: "memory that the firmware keeps for a device", id: "RL025", subject: "0000:06:00.0,0000:06:00.1",
		change: write("sys/kernel/iommu_groups/20/reserved_regions", "0x00000000bdf83000 0x00000000bdf92fff direct")},
	{name: "regions for interrupts alone", id: "RL025"},
	{name: "a device that answers ones", id: "RL032", subject: "0000:06:00.0", change: func(t *machinetest.Tree) {
		t.Raw(gpu0+"/config", strings.Repeat("\xff", 256))
	}},
	{name: "a device that answers", id: "RL032"},
	{name: "a device in D3cold", id: "RL033", subject: "0000:06:00.0", change: write(gpu0+"/power_state", "D3cold",
		gpu0+"/d3cold_allowed", "1")},
	{name: "a device in D0", id: "RL033"},
	{name: "more virtual functions than the firmware has", id: "RL034", subject: "0000:41:00.0",
		change: write(nic0+"/sriov_numvfs", "9")},
	{name: "as many as it has", id: "RL034", change: write(nic0+"/sriov_numvfs", "8")},
	{name: "fewer hugepages than the command line asks for", id: "RL040", reads: "nr_hugepages=48",
		subject: "host", change: write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "48")},
	{name: "as many as it asks for", id: "RL040"},
	{name: "no pool of the size asked for", id: "RL041", subject: "host", change: func(t *machinetest.Tree) {
		t.Remove("sys/kernel/mm/hugepages/hugepages-1048576kB")
		for n := range 4 {
			t.Remove(fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-1048576kB", n))
		}
	}},
	{name: "the pool is there", id: "RL041"},
	{name: "all hugepages on one node", id: "RL042", subject: "node 0", change: func(t *machinetest.Tree) {
		for n, pages := range []string{"64", "0", "0", "0"} {
			dir := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-1048576kB", n)
			t.File(dir+"/nr_hugepages", pages)
			t.File(dir+"/free_hugepages", pages)
		}
	}},
	{name: "hugepages on every node", id: "RL042"},
	{name: "swap in use", id: "RL044", subject: "host", reads: "/proc/swaps",
		change: write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/swapfile file 8388604 0 -2")},
	{name: "no swap", id: "RL044"},
	{name: "NUMA balancing", id: "RL045", subject: "host", reads: "/proc/sys/kernel/numa_balancing",
		change: write("proc/sys/kernel/numa_balancing", "1")},
	{name: "no NUMA balancing", id: "RL045"},
	{name: "isolation that takes one thread of a core", id: "RL050", subject: "34",
		change: write(cpus+"/isolated", "2-29,35-61")},
	{name: "isolation of whole cores", id: "RL050"},
	{name: "interrupts on isolated CPUs", id: "RL051", subject: "5", change: func(t *machinetest.Tree) {
		t.File("proc/irq/77/effective_affinity_list", "5")
		t.File("proc/irq/77/smp_affinity_list", "0-63")
		t.File("proc/interrupts", "            CPU0       CPU5\n  77:          0        120   PCI-MSI 524288-edge  "+
			"    eno1")
	}},
	{name: "interrupts elsewhere", id: "RL051", change: func(t *machinetest.Tree) {
		t.File("proc/irq/77/effective_affinity_list", "0")
		t.File("proc/irq/77/smp_affinity_list", "0-1")
		t.File("proc/interrupts", "            CPU0       CPU5\n  77:        120          0   PCI-MSI 524288-edge  "+
			"    eno1")
	}},
	{name: "isolation asked for and not there", id: "RL052", subject: "2-29,34-61", reads: "isolcpus=2-29,34-61",
		change: write(cpus+"/isolated", "")},
	{name: "isolation as asked for", id: "RL052"},
	{name: "an empty isolcpus", id: "RL053", subject: "host", change: func(t *machinetest.Tree) {
		t.File("proc/cmdline", t.Text("proc/cmdline")+" isolcpus=")
	}},
	{name: "no empty list", id: "RL053"},
	{name: "a governor that saves power on one core", id: "RL054", subject: "7,39", reads: "scaling_governor",
		change: write(cpus+"/cpu7/cpufreq/scaling_governor", "powersave", cpus+"/cpu39/cpufreq/scaling_governor",
			"powersave")},
	{name: "performance everywhere", id: "RL054"},
	{name: "two VMs on the same CPUs", id: "RL060", subject: "vm00,vm01",
		tenants: []string{domain("vm00", "2", "3"), domain("vm01", "3", "4")}},
	{name: "two VMs apart", id: "RL060", tenants: []string{domain("vm00", "2", "3"), domain("vm01", "4", "5")}},
	{name: "a VM that floats over isolated CPUs", id: "RL061", subject: "vm00",
		tenants: []string{domain("vm00", "2-9", "2-9")}},
	{name: "a VM pinned one to one", id: "RL061", tenants: []string{domain("vm00", "2", "3")}},
	{name: "a bond of two ports", id: "RL080", subject: "bond0", reads: "802.3ad", change: bond("802.3ad 4")},
	{name: "a bond of which one port works at a time", id: "RL080", change: bond("active-backup 1")},
	{name: "an MTU that makes the RDMA MTU 1024", id: "RL082", subject: "0000:41:00.0", reads: "mtu=1500",
		change: write(nic0+"/net/enp65s0f0np0/mtu", "1500")},
	{name: "an MTU of 4200", id: "RL082"},
	{name: "GIDs of RoCE v1 alone", id: "RL090", subject: "0000:41:00.0", change: func(t *machinetest.Tree) {
		gids := nic0 + "/infiniband/mlx5_0/ports/1/"
		for _, i := range []string{"1", "3"} {
			t.Remove(gids + "gids/" + i)
			t.Remove(gids + "gid_attrs/types/" + i)
			t.Remove(gids + "gid_attrs/ndevs/" + i)
		}
	}},
	{name: "GIDs of both versions", id: "RL090"},
	{name: "a GPU of the host beside an RDMA NIC without a peer memory module", id: "RL096", subject: "0000:06:00.0",
		change: func(t *machinetest.Tree) {
			nvidiaOnHost(t)
		}},
	{name: "the peer memory module is loaded", id: "RL096", change: func(t *machinetest.Tree) {
		nvidiaOnHost(t)
		t.File("proc/modules", t.Text("proc/modules")+"\nnvidia_peermem 16384 0 - Live 0x0")
	}},
	{name: "a BAR of 256 MiB", id: "RL100", subject: "0000:06:00.0", reads: "256 MiB"},
	{name: "a BAR as large as the GPU's memory", id: "RL100", change: func(t *machinetest.Tree) {
		for _, g := range []string{gpu0, gpu1} {
			t.File(g+"/resource", strings.Replace(t.Text(g+"/resource"), "0x000001000fffffff", "0x00000107ffffffff", 1))
		}
	}},
}

// Bits 0 to 4 of the ACS control register are source validation, translation blocking, request redirect, completion
// redirect and upstream forwarding.
func switchWithACS(control uint16) func(*machinetest.Tree) {
	return func(t *machinetest.Tree) {
		f := machinetest.Function{
			Root: "pci0000:60", Class: "0x060400", ID: "1000:c030", Node: 3, Group: -1, Driver: "pcieport",
			Speed: "8.0 GT/s PCIe", Max: "8.0 GT/s PCIe", Width: 16, MaxW: 16,
		}
		bridge := func(addr, port string, buses [2]uint8, acs *uint16) {
			f.Addr, f.Port, f.Buses, f.ACS = addr, port, buses, acs
			t.AddFunction(f)
		}
		bridge("0000:60:03.1", "root port", [2]uint8{0x62, 0x65}, nil)
		f.Above = []string{"0000:60:03.1"}
		bridge("0000:62:00.0", "upstream port", [2]uint8{0x63, 0x65}, nil)
		f.Above = append(f.Above, "0000:62:00.0")
		bridge("0000:63:00.0", "downstream port", [2]uint8{0x64, 0x64}, &control)
		bridge("0000:63:01.0", "downstream port", [2]uint8{0x65, 0x65}, &control)
		above := f.Above
		f.Port, f.ACS = "", nil
		f.Above, f.Addr, f.Class, f.ID, f.Driver = append(above[:2:2], "0000:63:00.0"), "0000:64:00.0", "0x030200",
			"10de:20b5", "nvidia"
		t.AddFunction(f)
		f.Above, f.Addr, f.Class, f.ID, f.Driver = append(above[:2:2], "0000:63:01.0"), "0000:65:00.0", "0x020000",
			"15b3:1019", "mlx5_core"
		t.AddFunction(f)
	}
}

func nvidiaOnHost(t *machinetest.Tree) {
	t.Remove(gpu0 + "/driver")
	t.Link(gpu0+"/driver", "sys/bus/pci/drivers/nvidia")
	t.File(gpu0+"/device", "0x2230") // an RTX A6000
	t.File("proc/modules", t.Text("proc/modules")+"\nnvidia 56713216 2 - Live 0x0")
}

func bond(mode string) func(*machinetest.Tree) {
	return func(t *machinetest.Tree) {
		const dir = "sys/devices/virtual/net/bond0"
		t.File(dir+"/bonding/mode", mode)
		t.File(dir+"/bonding/xmit_hash_policy", "layer3+4 1")
		t.File(dir+"/bonding/slaves", "enp65s0f0np0 enp65s0f1np1")
		t.File(dir+"/bonding/active_slave", "enp65s0f0np0")
		t.File(dir+"/mtu", "4200")
		t.Link("sys/class/net/bond0", dir)
		for i, d := range []string{nic0, strings.TrimSuffix(nic0, "0") + "1"} {
			t.Link(fmt.Sprintf("%s/net/enp65s0f%dnp%d/master", d, i, i), dir)
		}
	}
}

func domain(name, cpu0, cpu1 string) string {
	return fmt.Sprintf(`<domain type='kvm'><name>%s</name><uuid>00000000-0000-0000-0000-0000000000%s</uuid>
<memory unit='GiB'>4</memory><vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='%s'/><vcpupin vcpu='1' cpuset='%s'/></cputune></domain>`, name, name[2:], cpu0, cpu1)
}

func virsh(domains []string) func(context.Context, ...string) ([]byte, error) {
	return func(_ context.Context, argv ...string) ([]byte, error) {
		if argv[0] != "virsh" {
			return nil, fs.ErrNotExist
		}
		uuid := func(d string) string {
			_, after, _ := strings.Cut(d, "<uuid>")
			id, _, _ := strings.Cut(after, "</uuid>")
			return id
		}
		switch {
		case slices.Contains(argv, "dumpxml"):
			for _, d := range domains {
				if slices.Contains(argv, uuid(d)) {
					return []byte(d), nil
				}
			}
		case slices.Contains(argv, "--state-running"):
			var out string
			for _, d := range domains {
				out += uuid(d) + "\n"
			}
			return []byte(out), nil
		}
		return nil, nil
	}
}

func TestFromTheFileToTheFinding(t *testing.T) {
	t.Parallel()
	for _, c := range treeCases {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			t.Parallel()
			m := machinetest.Load("../../examples/hosts/epyc-7551p.ttar")
			if c.change != nil {
				c.change(m)
			}
			src := inspect.Source{Name: "epyc-7551p", FS: m.FS()}
			if c.tenants != nil {
				m.File("run/libvirt/libvirt-sock", "")
				src = inspect.Source{Name: "epyc-7551p", FS: m.FS(), Run: virsh(c.tenants)}
			}
			h, err := inspect.Read(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			expectFinding(t, h, c)
		})
	}
}

func expectFinding(t *testing.T, h *topology.Host, c treeCase) {
	t.Helper()
	var subjects []string
	for _, f := range diagnose.Host(h) {
		if f.ID != c.id {
			continue
		}
		subjects = append(subjects, f.Subject)
		if f.Subject == c.subject && !strings.Contains(f.Evidence, c.reads) {
			t.Errorf("evidence is %q; want %q in it", f.Evidence, c.reads)
		}
	}
	if c.subject == "" && len(subjects) > 0 || c.subject != "" && !slices.Contains(subjects, c.subject) {
		t.Errorf("%s is found of %q; want %q. Unread: %v", c.id, subjects, c.subject, h.Unread)
	}
}

func TestTreeCasesComeInPairs(t *testing.T) {
	seen := map[string][2]bool{}
	for _, c := range treeCases {
		s := seen[c.id]
		s[min(len(c.subject), 1)] = true
		seen[c.id] = s
	}
	for id, s := range seen {
		if !s[0] && id != "RL012" || !s[1] {
			t.Errorf("%s: found %v, not found %v; want both", id, s[1], s[0])
		}
	}
}
