package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func disk(dir, name string, minor int, sectors int) string {
	return fmt.Sprintf("sys/block/%[2]s -> ../devices/%[1]s/%[2]s\nsys/class/block/%[2]s -> "+
		"../../devices/%[1]s/%[2]s\n"+
		"sys/devices/%[1]s/%[2]s/dev = 8:%[3]d\nsys/devices/%[1]s/%[2]s/size = %[4]d\n", dir, name, minor, sectors)
}

func part(dir, disk, name string, minor int) string {
	return fmt.Sprintf("sys/class/block/%[3]s -> ../../devices/%[1]s/%[2]s/%[3]s\nsys/devices/%[1]s/%[2]s/%[3]s/dev "+
		"= 8:%[4]d\n"+
		"sys/devices/%[1]s/%[2]s/%[3]s/partition = 1\nsys/devices/%[1]s/%[2]s/%[3]s/size = 100\n", dir, disk, name,
		minor)
}

func stacked(name string, minor int, slaves ...string) string {
	out := disk("virtual/block", name, minor, 100)
	for _, s := range slaves {
		out += fmt.Sprintf("sys/devices/virtual/block/%s/slaves/%s -> ../../%s\n", name, s, s)
	}
	return out
}

const (
	ata  = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block"
	ata2 = "pci0000:00/0000:00:1f.2/ata2/host1/target1:0:0/1:0:0:0/block"
	nvme = "pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0"
)

func TestReadStorage(t *testing.T) {
	t.Parallel()
	sata, ssd := topology.PCIAddr{Device: 0x1f, Function: 2}, topology.PCIAddr{Bus: 1}
	mountinfo := func(lines ...string) string {
		return fmt.Sprintf("proc/self/mountinfo = %q\n", strings.Join(lines, "\n")+"\n")
	}
	two := disk(ata, "sda", 0, 2000) + part(ata, "sda", "sda1", 1) + part(ata, "sda", "sda2", 2) + disk(ata2, "sdb", 16,
		2000) + part(ata2, "sdb", "sdb1", 17)
	both := func(a, b []string) []topology.Disk {
		return []topology.Disk{
			{Name: "sda", PCI: &sata, SizeBytes: new(uint64(2000 * 512)), Mounts: a},
			{Name: "sdb", PCI: &sata, SizeBytes: new(uint64(2000 * 512)), Mounts: b},
		}
	}
	for _, tt := range []struct {
		name, lines string
		want        []topology.Disk
		unread      string
	}{
		{
			"an NVMe disk with the root on a partition, and one of SATA with nothing",
			disk(nvme, "nvme0n1", 0, 1953525168) + part(nvme, "nvme0n1", "nvme0n1p2", 2) + disk(ata, "sda", 16, 4096) +
				`
			sys/devices/` + nvme + `/nvme0n1/device -> ../../nvme0
			sys/devices/` + nvme + `/model = "Fast   Disk 1TB                 \n"
			sys/devices/` + ata + `/sda/device -> ../../../0:0:0:0
			sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/model = Slow Disk
			` + mountinfo("27 1 8:2 / / rw - ext4 /dev/nvme0n1p2 rw"),
			[]topology.Disk{
				{Name: "nvme0n1", PCI: &ssd, SizeBytes: new(uint64(1953525168 * 512)), Model: "Fast Disk 1TB",
					Mounts: []string{"/"}},
				{Name: "sda", PCI: &sata, SizeBytes: new(uint64(4096 * 512)), Model: "Slow Disk"},
			},
			"",
		},
		{
			"encryption on LVM on RAID",
			two + stacked("md127", 100, "sda2", "sdb1") + stacked("dm-0", 101, "md127") + stacked("dm-1", 102, "dm-0") +
				mountinfo("27 1 8:102 / / rw - ext4 /dev/mapper/luks rw", "28 27 8:1 / /boot rw - ext4 /dev/sda1 rw"),
			both([]string{"/", "/boot"}, []string{"/"}), "",
		},
		{
			"a stack that nothing is mounted from is in use all the same",
			two + stacked("dm-0", 101, "sdb1"), both(nil, []string{"[dm-0]"}), "",
		},
		{
			"a stack that another one stands on is not named",
			two + stacked("dm-0", 101, "sdb1") + stacked("dm-1", 102, "dm-0") +
				"sys/devices/virtual/block/dm-0/holders/dm-1 -> ../../dm-1\n",
			both(nil, []string{"[dm-1]"}), "",
		},
		{
			"stacks in a circle", two + stacked("dm-0", 101, "dm-1") + stacked("dm-1", 102, "dm-0") +
				mountinfo("27 1 8:101 / / rw - ext4 /dev/dm-0 rw"),
			both(nil, nil), `/ is on "/dev/dm-0", and no file says which disk that is on`,
		},
		{
			"swap on a logical volume, by each of its names",
			two + stacked("dm-0", 101, "sda2") + stacked("dm-3", 103, "sdb1") + `
			sys/devices/virtual/block/dm-0/dm/name = vg-my--swap
			proc/swaps = "Filename Type Size Used Priority\n/dev/mapper/vg-my--swap partition 1 0 -2\n` +
				`/dev/vg/my-swap partition 1 0 -2\n/dev/dm-3 partition 1 0 -3\n"
			`,
			both([]string{"[SWAP]"}, []string{"[SWAP]"}), "",
		},
		{
			"a mount whose device number is made up: btrfs on two disks",
			two + `
			sys/fs/btrfs/features/raid1c34 = 0
			sys/fs/btrfs/8d3f/devices/sda2 -> ../../../../devices/x
			sys/fs/btrfs/8d3f/devices/sdb1 -> ../../../../devices/x
			` + mountinfo("27 1 0:30 /@ / rw - btrfs /dev/sda2 rw,subvol=/@",
				"28 27 0:30 /@home /home rw - btrfs /dev/sda2 rw,subvol=/@home"),
			both([]string{"/", "/home"}, []string{"/", "/home"}), "",
		},
		{
			"btrfs in a dump that knows no more than the source",
			two + mountinfo("27 1 0:30 /@ / rw - btrfs /dev/sda2 rw,subvol=/@"),
			both([]string{"/"}, nil), "",
		},
		{
			"ZFS whose disks udev recognised",
			two + `
			run/udev/data/b8:17 = "S:disk/by-id/x\nE:ID_FS_TYPE=zfs_member\nE:ID_FS_LABEL=rpool\n"
			run/udev/data/b8:2 = "E:ID_FS_TYPE=zfs_member\nE:ID_FS_LABEL=other\n"
			` + mountinfo("27 1 0:30 / / rw - zfs rpool/ROOT/debian rw"),
			both(nil, []string{"/"}), "",
		},
		{
			"ZFS that nobody tells more about", two + mountinfo("27 1 0:30 / / rw - zfs rpool/ROOT/debian rw"),
			both(nil, nil),
			`/ is on "rpool/ROOT/debian", and no file says which disk that is on`,
		},
		{
			"an NVMe disk with two controllers is below its subsystem",
			`
			sys/block/nvme0n1 -> ../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/size = 8
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/dev = 259:1
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/device -> ../../nvme-subsys0
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/model = Two Ways
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0 -> ` +
				`../../../pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0
			sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme1 -> ` +
				`../../../pci0000:80/0000:80:01.1/0000:81:00.0/nvme/nvme1
			sys/block/nvme0c0n1 -> ../devices/pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0/nvme0c0n1
			sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0/nvme0c0n1/hidden = 1
			sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0/nvme0c0n1/size = 8
			`,
			[]topology.Disk{{Name: "nvme0n1", PCI: &ssd, SizeBytes: new(uint64(8 * 512)), Model: "Two Ways"}}, "",
		},
		{
			"disks that are none: empty drives, memory and files, unless something is mounted",
			disk("virtual/block", "loop0", 30, 100) + disk("virtual/block", "loop1", 31, 100) + disk("virtual/block",
				"ram0", 32, 100) +
				disk("virtual/block", "zram0", 33, 100) + disk(ata, "sr0", 34, 2097151) + disk(ata2, "sdc", 35, 0) +
				"proc/swaps = \"Filename Type Size Used Priority\\n/dev/zram0 partition 1 0 -2\\n\"\n" +
				mountinfo("27 1 8:31 / /snap/core rw - squashfs /dev/loop1 ro"),
			[]topology.Disk{
				{Name: "loop1", SizeBytes: new(uint64(100 * 512)), Mounts: []string{"/snap/core"}},
				{Name: "zram0", SizeBytes: new(uint64(100 * 512)), Mounts: []string{"[SWAP]"}},
			},
			"",
		},
		{
			"a dump without links and without device numbers",
			`
			sys/block/sda/size = 2000
			sys/block/sda/device -> ../../devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0
			sys/block/sda/sda2/start = 2048
			sys/block/sda/queue/rotational = 0
			sys/block/cciss!c0d0/size = 4
			sys/block/cciss!c0d0/cciss!c0d0p1/start = 1
			proc/mounts = "/dev/root / ext4 rw 0 0\n/dev/sda2 /home ext4 rw 0 0\n/dev/cciss/c0d0p1 /data ext4 rw 0 0\n"
			`,
			[]topology.Disk{
				{Name: "cciss!c0d0", SizeBytes: new(uint64(4 * 512)), Mounts: []string{"/data"}},
				{Name: "sda", PCI: &sata, SizeBytes: new(uint64(2000 * 512)), Mounts: []string{"/home"}},
			},
			`/ is on "/dev/root", and no file says which disk that is on`,
		},
		{
			"persistent memory has a node and no function",
			"sys/block/pmem0 -> ../devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region0/pfn0.1/block/pmem0\n" +
				"sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region0/pfn0.1/block/pmem0/size = 8\n" +
				"sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region0/pfn0.1/block/pmem0/device -> ../../../pfn0.1\n" +
				"sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region0/pfn0.1/numa_node = 1\n",
			[]topology.Disk{{Name: "pmem0", SizeBytes: new(uint64(8 * 512)), NUMANode: new(1)}}, "",
		},
		{
			"a dump that kept the device and not what it is made of",
			two + disk("virtual/block", "dm-0", 101, 100) +
				"proc/mounts = \"/dev/mapper/vg-root / xfs rw 0 0\\n/dev/mapper/vg-root /home xfs rw 0 0\\n\"\n",
			both(nil, nil), `/ is on "/dev/mapper/vg-root", and no file says which disk that is on`,
		},
		{
			"a cache in front of a disk",
			two + stacked("bcache0", 104) + "sys/devices/virtual/block/bcache0/bcache -> ../../../" + ata2 +
				"/sdb/bcache\n" +
				mountinfo("27 1 8:104 / /data rw - xfs /dev/bcache0 rw"),
			both(nil, []string{"/data"}), "",
		},
		{"no disks at all", "proc/swaps = Filename Type Size Used Priority\n" +
			mountinfo("27 1 0:30 / / rw - overlay overlay rw"), nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.lines))
			r.readStorage()
			if diff := cmp.Diff(tt.want, r.h.Storage); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got := ""
			for _, u := range r.h.Unread {
				got += u.Why
			}
			if got != tt.unread {
				t.Errorf("unread %q, want %q", got, tt.unread)
			}
		})
	}
}

func TestLastFunction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1", "0000:01:00.0"},
		{"sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", "0000:00:1f.2"},
		{"sys/devices/pci0000:5d/0000:5d:05.5/pci10000:00/10000:01:00.0/nvme/nvme1", "10000:01:00.0"},
		{"sys/devices/virtual/block/loop0", ""},
		{"", ""},
	} {
		got := ""
		if a, ok := lastFunction(tt.in); ok {
			got = a.String()
		}
		if got != tt.want {
			t.Errorf("lastFunction(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
