package hostfixture

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/topology"
)

// R740 returns one host of a cluster that was measured bare and under vSphere with SR-IOV: a
// PowerEdge R740 with two Xeon Gold 6248R, 384 GB, a dual-port ConnectX-5 of 100 Gb/s for RoCE at
// 3b:00 and a dual-port ConnectX-4 Lx of 25 Gb/s for everything else at 1a:00. Here it runs Linux,
// as it did for the bare figures (RHEL 8.1).
//
// The report on the cluster states: the model, the processors and 48 cores with hyper-threading on,
// 24 modules of 16 GB, VT-d on, the addresses of the four network functions, firmware 16.32.1010
// and board MT_0000000008 of the ConnectX-5, NUM_OF_VFS 16, virtual functions on both of its ports,
// and that the ConnectX-4 Lx leads to the services (so the default route is there) and has none.
//
// The rest is what such a machine has. Dell's firmware numbers CPUs round robin over the sockets:
// even ones are on node 0. Sub-NUMA clustering is off, so that a socket is a node; the distance is
// 21. The die has 28 cores, of which 24 work: their numbers have gaps. Buses 17, 3a and 5d belong
// to the first socket, and with them both NICs and the BOSS card with the boot disks, a mirror of
// two M.2 that is one disk to the host. The screen is the iDRAC's. It is marked by its product
// name.
func R740() *Tree {
	t := New()
	t.filesIn("sys/class/dmi/id", map[string]string{
		"sys_vendor": "rackless fixture", "product_name": "r740 (from a description)", "bios_version": "1",
		"bios_date": "01/01/2022",
	})
	const release = "4.18.0-147.el8.x86_64"
	t.File("proc/cmdline", "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-"+release+
		" root=/dev/mapper/rhel-root ro crashkernel=auto resume=/dev/mapper/rhel-swap "+
		"rd.lvm.lv=rhel/root rd.lvm.lv=rhel/swap intel_iommu=on iommu=pt")
	t.File("proc/sys/kernel/osrelease", release)
	t.File("proc/version", "Linux version "+release+" (x86_64)")
	t.File("proc/sys/kernel/numa_balancing", "1")
	t.File("proc/modules", "mlx5_ib 385024 0 - Live 0x0\nmlx5_core 1118208 1 mlx5_ib, Live 0x0\nahci 40960 2 - "+
		"Live 0x0")
	t.File("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
	t.File("sys/kernel/mm/ksm/run", "0")
	t.r740CPUs()
	t.r740Memory()
	t.r740NICs()
	t.r740HostNeeds()
	return t
}

const (
	r740Cores = 48
	r740CPUs  = 2 * r740Cores
)

// r740CPUs writes CPUs: c and c+48 are the threads of core c, which is in socket c mod 2.
func (t *Tree) r740CPUs() {
	var cpuinfo strings.Builder
	for c := range r740CPUs {
		core := c % r740Cores
		socket := core % 2
		at := core / 2           // among the 24 of its socket
		number := at/6*8 + at%6  // core_id: six of each eight work
		l3 := r740Socket(socket) // all of a socket share it
		cpu := CPU{ID: c, Package: socket, Core: number, Node: socket, Siblings: topology.CPUs(core, core+r740Cores),
			L3: l3, Governor: "performance"}
		t.AddCPU(cpu)
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", c)
		t.File(dir+"/cache/index3/size", "36608K")
		t.File(dir+"/cpufreq/cpuinfo_max_freq", "4000000")
		fmt.Fprintf(&cpuinfo, "processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6248R "+
			"CPU @ 3.00GHz\n"+
			"physical id\t: %d\ncore id\t\t: %d\nflags\t\t: fpu vmx pdpe1gb\n\n", c, socket, number)
	}
	t.files["proc/cpuinfo"] = cpuinfo.String()
	t.filesIn("sys/devices/system/cpu", map[string]string{
		"online": "0-95", "present": "0-95", "possible": "0-95", "offline": "", "isolated": "", "nohz_full": "(null)",
		"smt/control": "on",
	})
}

// r740Socket returns the CPUs of a socket.
func r740Socket(socket int) topology.CPUSet {
	var all topology.CPUSet
	for c := socket; c < r740CPUs; c += 2 {
		all = all.Union(topology.CPUs(c))
	}
	return all
}

// r740Memory writes the two nodes: 192 GiB each, less a 64th for the kernel's page structures, and
// on node 0 what the firmware keeps.
func (t *Tree) r740Memory() {
	kib := [2]uint64{197492736, 198180864}
	for n := range 2 {
		distances := []int{21, 21}
		distances[n] = 10
		t.AddNode(Node{ID: n, KiB: kib[n], Distances: distances, CPUs: r740Socket(n),
			Huge: map[uint64][2]int{1 << 20: {0, 0}, 2048: {0, 0}}})
	}
	t.File("sys/devices/system/node/online", "0-1")
	for _, size := range []uint64{1 << 20, 2048} {
		t.filesIn(fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB", size), map[string]string{
			"nr_hugepages": "0", "free_hugepages": "0", "resv_hugepages": "0", "surplus_hugepages": "0",
		})
	}
	total := kib[0] + kib[1]
	t.File("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"+
		"HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB", total, total/2, total/4*3))
}

// r740NICs writes the two cards, each behind a root port of the first socket.
func (t *Tree) r740NICs() {
	for unit := range 2 {
		name := fmt.Sprintf("dmar%d", unit)
		t.Link("sys/class/iommu/"+name, "sys/devices/virtual/iommu/"+name)
		t.File("sys/devices/virtual/iommu/"+name+"/intel-iommu/cap", "d2078c106f0466")
	}
	// rdmaPort fills in what the card says of itself.
	rdmaPort := func(dir, rdma, firmware, board string) {
		t.filesIn(dir+"/infiniband/"+rdma, map[string]string{"fw_ver": firmware, "board_id": board})
	}
	t.rootPort(Function{
		Addr: "0000:17:02.0", Root: "pci0000:17", ID: "8086:2032", Node: 0, Group: 20, Width: 8,
		Buses: [2]uint8{0x1a, 0x1a},
	})
	for fn := range 2 {
		dir := t.AddFunction(Function{
			Addr: fmt.Sprintf("0000:1a:00.%d", fn), Above: []string{"0000:17:02.0"}, Root: "pci0000:17",
			Class: "0x020000", ID: "15b3:1015",
			Sub: "15b3:0025", Node: 0, Group: 30 + fn, Driver: "mlx5_core", Speed: "8.0 GT/s PCIe",
			Max: "8.0 GT/s PCIe", Width: 8, MaxW: 8, BARs: barsNIC,
			Files: map[string]string{"reset_method": "flr bus", "power_state": "D0"},
		})
		rdma := fmt.Sprintf("mlx5_%d", fn)
		t.AddPort(dir, Port{
			Netdev: fmt.Sprintf("em%d", fn+1), MAC: fmt.Sprintf("02:00:00:00:1a:0%d", fn), MTU: 1500, Mbps: 25000,
			RDMA: rdma, Rate: "25 Gb/sec (1X EDR)",
			IPv4: fmt.Sprintf("c0a8:010%d", 2+fn),
		})
		rdmaPort(dir, rdma, "14.31.1014", "DEL2420110034")
	}
	t.rootPort(Function{
		Addr: "0000:3a:00.0", Root: "pci0000:3a", ID: "8086:2030", Node: 0, Group: 21, Width: 16,
		Buses: [2]uint8{0x3b, 0x3b},
	})
	for fn := range 2 {
		dir := t.AddFunction(Function{
			Addr: fmt.Sprintf("0000:3b:00.%d", fn), Above: []string{"0000:3a:00.0"}, Root: "pci0000:3a",
			Class: "0x020000", ID: "15b3:1017",
			Sub: "15b3:0006", Node: 0, Group: 40 + fn, Driver: "mlx5_core", Speed: "8.0 GT/s PCIe",
			Max: "8.0 GT/s PCIe", Width: 16, MaxW: 16, BARs: barsNIC,
			Files: map[string]string{
				"reset_method": "flr bus", "power_state": "D0", "sriov_totalvfs": "16", "sriov_numvfs": "0",
				"sriov_offset": fmt.Sprint(2 + 15*fn),
				"sriov_stride": "1", "sriov_drivers_autoprobe": "1",
			},
		})
		rdma := fmt.Sprintf("mlx5_%d", 2+fn)
		t.AddPort(dir, Port{
			Netdev: fmt.Sprintf("p3p%d", fn+1), MAC: fmt.Sprintf("02:00:00:00:3b:0%d", fn), MTU: 9000, Mbps: 100000,
			RDMA: rdma, Rate: "100 Gb/sec (4X EDR)",
			IPv4: fmt.Sprintf("0a0%d:0001", fn),
		})
		rdmaPort(dir, rdma, "16.32.1010", "MT_0000000008")
	}
}

// r740HostNeeds writes what the host lives on: its disk, its screen, its way to the network.
func (t *Tree) r740HostNeeds() {
	t.rootPort(Function{
		Addr: "0000:5d:02.0", Root: "pci0000:5d", ID: "8086:2032", Node: 0, Group: 22, Width: 4, MaxW: 8,
		Buses: [2]uint8{0x5e, 0x5e},
	})
	boss := t.AddFunction(Function{
		Addr: "0000:5e:00.0", Above: []string{"0000:5d:02.0"}, Root: "pci0000:5d", Class: "0x010601", ID: "1b4b:9230",
		Sub: "1028:1fd6", Node: 0, Group: 50,
		Driver: "ahci", Speed: "5.0 GT/s PCIe", Max: "5.0 GT/s PCIe", Width: 2, MaxW: 2,
	})
	scsi := boss + "/ata1/host0/target0:0:0/0:0:0:0"
	block := scsi + "/block/sda"
	t.filesIn(block, map[string]string{"size": "468731008", "dev": "8:0", "removable": "0"})
	t.File(scsi+"/model", "DELLBOSS VD")
	t.Link(block+"/device", scsi)
	t.Link("sys/class/block/sda", block)
	t.Link("sys/block/sda", block)
	t.Link("sys/dev/block/8:0", block)
	for n, size := range []string{"1228800", "2097152", "465401856"} { // of the firmware, of the boot loader, of LVM
		part := fmt.Sprintf("sda%d", n+1)
		t.filesIn(block+"/"+part, map[string]string{"partition": fmt.Sprint(n + 1), "dev": fmt.Sprintf("8:%d", n+1),
			"size": size})
		t.Link("sys/class/block/"+part, block+"/"+part)
		t.Link(fmt.Sprintf("sys/dev/block/8:%d", n+1), block+"/"+part)
	}
	for n, volume := range []string{"rhel-root", "rhel-swap"} {
		dm := fmt.Sprintf("dm-%d", n)
		dir := "sys/devices/virtual/block/" + dm
		t.filesIn(dir, map[string]string{"size": "104857600", "dev": fmt.Sprintf("253:%d", n), "dm/name": volume})
		t.Link(dir+"/slaves/sda3", block+"/sda3")
		t.Link(block+"/sda3/holders/"+dm, dir)
		t.Link("sys/class/block/"+dm, dir)
		t.Link("sys/block/"+dm, dir)
		t.Link(fmt.Sprintf("sys/dev/block/253:%d", n), dir)
	}
	t.File("proc/self/mountinfo", "22 1 253:0 / / rw,relatime shared:1 - xfs /dev/mapper/rhel-root rw\n"+
		"90 22 8:2 / /boot rw,relatime shared:30 - xfs /dev/sda2 rw\n"+
		"92 90 8:1 / /boot/efi rw,relatime shared:31 - vfat /dev/sda1 rw")
	t.File("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/dm-1                               "+
		"partition\t4194300\t0\t-2")

	t.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+
		"em1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0")

	t.rootPort(Function{
		Addr: "0000:00:1c.4", Root: "pci0000:00", ID: "8086:a194", Node: 0, Group: 10, Speed: "5.0 GT/s PCIe",
		Width: 1, Buses: [2]uint8{2, 3},
	})
	t.AddFunction(Function{
		Addr: "0000:02:00.0", Above: []string{"0000:00:1c.4"}, Root: "pci0000:00", Class: "0x060400", ID: "1556:be00",
		Node: 0, Group: 10,
		Speed: "5.0 GT/s PCIe", Max: "5.0 GT/s PCIe", Width: 1, MaxW: 1, Port: "pci bridge", Buses: [2]uint8{3, 3},
	})
	t.AddFunction(Function{
		Addr: "0000:03:00.0", Above: []string{"0000:00:1c.4", "0000:02:00.0"}, Root: "pci0000:00", Class: "0x030000",
		ID: "102b:0536", Sub: "1028:07d0", Node: 0,
		Group: 10, Driver: "mgag200", Files: map[string]string{"boot_vga": "1"},
	})
}
