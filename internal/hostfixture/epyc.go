package hostfixture

import (
	"fmt"

	"github.com/rackless/rackless/topology"
)

// EPYC7551P returns the machine of the EPYC lab: one EPYC 7551P with 32 cores in 4 NUMA nodes, two
// RTX 3090 and two dual-port ConnectX-4 Lx, each on a node of its own, prepared for virtual
// machines by hand.
//
// What the lab's author states is so here: addresses, nodes, CPU numbers, devices, kernel
// arguments, 64 pages of 1 GiB. The rest is what such a machine has: two complexes of four cores
// with 8 MiB of L3 each in a die, distances of 16 between dies, an NVMe disk and a board with an
// ASPEED controller and an Intel I350. It is marked by its product name.
func EPYC7551P() *Tree {
	t := New()
	const isolated = "2-29,34-61"
	t.filesIn("sys/class/dmi/id", map[string]string{
		"sys_vendor": "rackless fixture", "product_name": "epyc-7551p (from a description)", "bios_version": "1",
		"bios_date": "01/01/2024",
	})
	t.File("proc/cmdline", "BOOT_IMAGE=/vmlinuz-6.8.0 root=/dev/nvme0n1p2 ro amd_iommu=on iommu=pt isolcpus="+isolated+
		" nohz_full="+isolated+
		" rcu_nocbs="+isolated+" default_hugepagesz=1G hugepagesz=1G hugepages=64")
	t.File("proc/sys/kernel/osrelease", "6.8.0")
	t.File("proc/version", "Linux version 6.8.0 (x86_64)")
	t.File("proc/sys/kernel/numa_balancing", "0")
	t.File("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority")
	t.File("proc/modules", "mlx5_ib 491520 0 - Live 0x0\nmlx5_core 2150400 1 mlx5_ib, Live 0x0\nvfio_pci 16384 4 - "+
		"Live 0x0\nnvme 61440 3 - Live 0x0")
	t.File("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
	t.File("sys/kernel/mm/ksm/run", "0")
	t.epycCPUs(isolated)
	t.epycDevices()
	t.epycHostNeeds()
	return t
}

// epycCPUs writes CPUs and memory: CPU c and c+32 are the threads of core c, eight cores a node.
func (t *Tree) epycCPUs(isolated string) {
	cpuinfo := ""
	for c := range 64 {
		core := c % 32
		complexFirst := core / 4 * 4
		t.AddCPU(CPU{
			ID: c, Package: 0, Core: core, Node: core / 8,
			Siblings: topology.CPUs(core, core+32),
			L3: topology.CPURange(complexFirst, complexFirst+3).Union(topology.CPURange(complexFirst+32,
				complexFirst+35)),
			Governor: "performance",
		})
		cpuinfo += fmt.Sprintf("processor\t: %d\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7551P 32-Core "+
			"Processor\n"+
			"physical id\t: 0\ncore id\t\t: %d\nflags\t\t: fpu svm pdpe1gb\n\n", c, core)
	}
	t.files["proc/cpuinfo"] = cpuinfo
	t.filesIn("sys/devices/system/cpu", map[string]string{
		"online": "0-63", "present": "0-63", "possible": "0-63", "offline": "", "isolated": isolated,
		"nohz_full": isolated, "smt/control": "on",
	})
	const nodeKiB = 65536000 // 62.5 GiB: 64 GiB less what the firmware keeps
	for n := range 4 {
		distances := []int{16, 16, 16, 16}
		distances[n] = 10
		t.AddNode(Node{
			ID: n, KiB: nodeKiB, Distances: distances,
			CPUs: topology.CPURange(8*n, 8*n+7).Union(topology.CPURange(8*n+32, 8*n+39)),
			Huge: map[uint64][2]int{1 << 20: {16, 16}, 2048: {0, 0}},
		})
	}
	t.File("sys/devices/system/node/online", "0-3")
	for size, pages := range map[uint64]int{1 << 20: 64, 2048: 0} {
		t.filesIn(fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB", size), map[string]string{
			"nr_hugepages": fmt.Sprint(pages), "free_hugepages": fmt.Sprint(pages), "resv_hugepages": "0",
			"surplus_hugepages": "0",
		})
	}
	t.File("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"+
		"HugePages_Total:      64\nHugePages_Free:       64\nHugepagesize:    1048576 kB", 4*nodeKiB, 2*nodeKiB,
		3*nodeKiB))
}

// BARs of the devices, as lines of /sys/bus/pci/devices/*/resource: first, last address and flags.
var (
	barsGPU = []string{
		"0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200",
		"0x0000010000000000 0x000001000fffffff 0x000000000014220c",
		"0x0000000000000000 0x0000000000000000 0x0000000000000000",
		"0x0000010010000000 0x0000010011ffffff 0x000000000014220c",
	}
	barsNIC = []string{"0x0000010a00000000 0x0000010a01ffffff 0x000000000014220c"}
)

// epycDevices writes the GPUs and NICs, each behind a root port of its node's root complex.
func (t *Tree) epycDevices() {
	t.Link("sys/class/iommu/ivhd0", "sys/devices/virtual/iommu/ivhd0")
	t.File("sys/devices/virtual/iommu/ivhd0/amd-iommu/cap", "1")
	port := func(root, addr string, bus uint8, node, group int, speed string, width int) {
		t.rootPort(Function{
			Addr: addr, Root: root, ID: "1022:1453", Node: node, Group: group, Speed: speed, Width: width,
			MaxW: 16, Buses: [2]uint8{bus, bus},
		})
	}
	gpu := func(root, above, bus string, node, group int, speed string) {
		f := Function{
			Addr: "0000:" + bus + ":00.0", Above: []string{above}, Root: root, Class: "0x030000", ID: "10de:2204",
			Sub:  "1043:87b3",
			Node: node, Group: group, Driver: "vfio-pci", Speed: speed, Max: "16.0 GT/s PCIe", Width: 16, MaxW: 16,
			BARs: barsGPU,
			Files: map[string]string{"reset_method": "bus", "power_state": "D0", "d3cold_allowed": "0",
				"boot_vga": "0"},
		}
		t.AddFunction(f)
		f.Addr, f.Class, f.ID, f.BARs = "0000:"+bus+":00.1", "0x040300", "10de:1aef", nil
		f.Files = map[string]string{"reset_method": "bus", "power_state": "D0"}
		t.AddFunction(f)
	}
	nic := func(root, above, bus string, node, group, first int, name string) {
		for fn := range 2 {
			dir := t.AddFunction(Function{
				Addr: fmt.Sprintf("0000:%s:00.%d", bus, fn), Above: []string{above}, Root: root, Class: "0x020000",
				ID: "15b3:1015", Sub: "15b3:0004",
				Node: node, Group: group + fn, Driver: "mlx5_core", Speed: "8.0 GT/s PCIe", Max: "8.0 GT/s PCIe",
				Width: 8, MaxW: 8, BARs: barsNIC,
				Files: map[string]string{"reset_method": "flr bus", "power_state": "D0", "sriov_totalvfs": "8",
					"sriov_numvfs": "0"},
			})
			p := Port{
				Netdev: fmt.Sprintf("%sf%dnp%d", name, fn, fn), MAC: fmt.Sprintf("02:00:00:00:%s:0%d", bus, fn),
				MTU: 4200, Mbps: 25000,
				RDMA: fmt.Sprintf("mlx5_%d", first+fn), Rate: "25 Gb/sec (1X EDR)",
			}
			if fn == 0 {
				p.IPv4 = fmt.Sprintf("0a00:00%02x", first+1)
			}
			t.AddPort(dir, p)
		}
	}
	port("pci0000:00", "0000:00:03.1", 0x06, 0, 10, "8.0 GT/s PCIe", 16)
	gpu("pci0000:00", "0000:00:03.1", "06", 0, 20, "8.0 GT/s PCIe")
	port("pci0000:20", "0000:20:03.1", 0x21, 1, 11, "2.5 GT/s PCIe", 16)
	gpu("pci0000:20", "0000:20:03.1", "21", 1, 21, "2.5 GT/s PCIe")
	port("pci0000:40", "0000:40:01.1", 0x41, 2, 12, "8.0 GT/s PCIe", 8)
	nic("pci0000:40", "0000:40:01.1", "41", 2, 37, 0, "enp65s0")
	port("pci0000:60", "0000:60:01.1", 0x61, 3, 13, "8.0 GT/s PCIe", 8)
	nic("pci0000:60", "0000:60:01.1", "61", 3, 39, 2, "enp97s0")
}

// epycHostNeeds writes what the host lives on: its disk, its screen, its way to the network.
func (t *Tree) epycHostNeeds() {
	t.rootPort(Function{
		Addr: "0000:00:01.1", Root: "pci0000:00", ID: "1022:1453", Node: 0, Group: 1, Width: 4,
		Buses: [2]uint8{1, 1},
	})
	nvme := t.AddFunction(Function{
		Addr: "0000:01:00.0", Above: []string{"0000:00:01.1"}, Root: "pci0000:00", Class: "0x010802", ID: "144d:a808",
		Node: 0, Group: 14,
		Driver: "nvme", Speed: "8.0 GT/s PCIe", Max: "8.0 GT/s PCIe", Width: 4, MaxW: 4,
	})
	block := nvme + "/nvme/nvme0/nvme0n1"
	t.filesIn(block, map[string]string{"size": "1953525168", "dev": "259:0", "removable": "0"})
	t.File(nvme+"/nvme/nvme0/model", "Fixture NVMe 1TB")
	t.Link(block+"/device", nvme+"/nvme/nvme0")
	t.Link(nvme+"/nvme/nvme0/device", nvme)
	t.filesIn(block+"/nvme0n1p2", map[string]string{"partition": "2", "dev": "259:2", "size": "1950000000"})
	t.Link("sys/class/block/nvme0n1", block)
	t.Link("sys/class/block/nvme0n1p2", block+"/nvme0n1p2")
	t.Link("sys/block/nvme0n1", block)
	t.Link("sys/dev/block/259:0", block)
	t.Link("sys/dev/block/259:2", block+"/nvme0n1p2")
	t.File("proc/self/mountinfo", "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw")

	t.rootPort(Function{
		Addr: "0000:00:01.2", Root: "pci0000:00", ID: "1022:1453", Node: 0, Group: 2, Speed: "5.0 GT/s PCIe",
		Width: 1, MaxW: 2, Buses: [2]uint8{2, 2},
	})
	i350 := t.AddFunction(Function{
		Addr: "0000:02:00.0", Above: []string{"0000:00:01.2"}, Root: "pci0000:00", Class: "0x020000", ID: "8086:1521",
		Node: 0, Group: 15,
		Driver: "igb", Speed: "5.0 GT/s PCIe", Max: "5.0 GT/s PCIe", Width: 1, MaxW: 1,
		Files: map[string]string{"sriov_totalvfs": "7", "sriov_numvfs": "0", "reset_method": "flr bus"},
	})
	t.AddPort(i350, Port{Netdev: "eno1", MAC: "02:00:00:00:02:00", MTU: 1500, Mbps: 1000})
	t.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+
		"eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0")

	t.rootPort(Function{
		Addr: "0000:00:01.3", Root: "pci0000:00", ID: "1022:1453", Node: 0, Group: 3, Speed: "2.5 GT/s PCIe",
		Width: 1, Buses: [2]uint8{3, 3},
	})
	t.AddFunction(Function{
		Addr: "0000:03:00.0", Above: []string{"0000:00:01.3"}, Root: "pci0000:00", Class: "0x030000", ID: "1a03:2000",
		Node: 0, Group: 16,
		Driver: "ast", Files: map[string]string{"boot_vga": "1"},
	})
}
