package inspect

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

func TestReadIOMMU(t *testing.T) {
	t.Parallel()
	gpu, sound := topology.PCIAddr{Bus: 0x41}, topology.PCIAddr{Bus: 0x41, Function: 1}
	const members = `
		sys/kernel/iommu_groups/37/devices/0000:41:00.0 -> ../../../../devices/pci0000:40/0000:41:00.0
		sys/kernel/iommu_groups/37/devices/0000:41:00.1 -> ../../../../devices/pci0000:40/0000:41:00.1
		`
	for _, tt := range []struct {
		name   string
		lines  string
		linked *int
		want   topology.IOMMU
		group  *int
		unread int
	}{
		{
			"an IOMMU of Intel, with a region that the firmware wants mapped",
			members + `
			sys/class/iommu/dmar1 -> ../../devices/virtual/iommu/dmar1
			sys/class/iommu/dmar0 -> ../../devices/virtual/iommu/dmar0
			sys/kernel/iommu_groups/37/type = DMA-FQ
			sys/kernel/iommu_groups/37/reserved_regions = "0x000000007d000000 0x000000007f7fffff direct\n` +
				`0x00000000aa000000 0x00000000aaffffff direct-relaxable\n0x00000000fee00000 0x00000000feefffff msi\n"
			`,
			new(37),
			topology.IOMMU{
				Enabled: new(true), Units: []string{"dmar0", "dmar1"},
				Groups: []topology.IOMMUGroup{{
					ID: 37, Type: "DMA-FQ", Devices: []topology.PCIAddr{gpu, sound},
					Reserved: []string{"0x000000007d000000 0x000000007f7fffff direct"},
				}},
			},
			new(37), 0,
		},
		{
			"a dump with groups whose functions have no links",
			members + "sys/kernel/iommu_groups/37/devices/3f000000.gpu -> ../../../../devices/platform/3f000000.gpu\n",
			nil,
			topology.IOMMU{Enabled: new(true), Groups: []topology.IOMMUGroup{{ID: 37, Devices: []topology.PCIAddr{gpu,
				sound}}}},
			new(37), 0,
		},
		{
			"a dump with links and no groups", "", new(37), topology.IOMMU{Enabled: new(true)}, new(37), 0,
		},
		{
			"an IOMMU without groups yet", "sys/class/iommu/ivhd0/devices/\nsys/kernel/iommu_groups/\n", nil,
			topology.IOMMU{Enabled: new(true), Units: []string{"ivhd0"}}, nil, 0,
		},
		{
			"none: the kernel's list is there and is empty", "sys/class/iommu/\nsys/kernel/iommu_groups/\n", nil,
			topology.IOMMU{Enabled: new(false)}, nil, 0,
		},
		{
			"a dump that left it out", "sys/kernel/mm/\n", nil, topology.IOMMU{}, nil, 0,
		},
		{
			"VFIO without an IOMMU makes groups that keep nothing apart",
			members + "sys/class/iommu/\nsys/kernel/iommu_groups/37/name = vfio-noiommu\n", new(37),
			topology.IOMMU{Enabled: new(false)}, nil, 0,
		},
		{
			"a list that is none", "sys/class/iommu = x\n", nil, topology.IOMMU{}, nil, 0,
		},
		{
			"entries that are no groups", members +
				"sys/kernel/iommu_groups/-1/type = DMA\nsys/kernel/iommu_groups/x/type = DMA\n", nil,
			topology.IOMMU{Enabled: new(true), Groups: []topology.IOMMUGroup{{ID: 37, Devices: []topology.PCIAddr{gpu,
				sound}}}},
			new(37), 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.lines),
				topology.PCIDevice{Address: gpu, IOMMUGroup: tt.linked}, topology.PCIDevice{Address: sound,
					IOMMUGroup: tt.linked})
			r.readIOMMU()
			if diff := cmp.Diff(tt.want, r.h.IOMMU); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.group, r.h.PCI[0].IOMMUGroup); diff != "" {
				t.Errorf("group of the GPU (-want +got):\n%s", diff)
			}
			if len(r.h.Unread) != tt.unread {
				t.Errorf("unread: %v", r.h.Unread)
			}
		})
	}
}

func TestIOMMUListThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	var b tree.Builder
	if err := b.Unreadable("sys/class/iommu", fs.ModeDir, syscall.EACCES); err != nil {
		t.Fatal(err)
	}
	r := deviceReader(t, b.Mem())
	r.readIOMMU()
	if r.h.IOMMU.Enabled != nil || len(r.h.Unread) != 1 {
		t.Errorf("enabled %v, unread %v; want not known and the reason", r.h.IOMMU.Enabled, r.h.Unread)
	}
}
