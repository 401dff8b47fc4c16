package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func TestReadDRMOfProcfsFixture(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceFixture(t, "procfs-classes.txt"))
	r.readGPUs()
	want := []topology.GPU{
		{Address: pciAddr(t, "0000:00:02.0"), Name: "card1", ConnectedMon: new(true)},
		{
			Address: pciAddr(t, "0000:09:00.0"), Name: "card0", MemoryBytes: new(uint64(8573157376)),
			BAR1Bytes: new(uint64(8573157376)),
			VBIOS:     "115-D050PIL-100", UUID: "0123456789abcdef",
		},
	}
	if diff := cmp.Diff(want, r.h.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

// xGMI links two GPUs to each other and to the CPU; a third on PCIe is split into two partitions.
const instinct = `
sys/class/drm/card1 -> ../../devices/pci0000:c0/0000:c1:00.0/drm/card1
sys/devices/pci0000:c0/0000:c1:00.0/drm/card1/device -> ../../../0000:c1:00.0
sys/devices/pci0000:c0/0000:c1:00.0/mem_info_vram_total = 206141652992
sys/devices/pci0000:c0/0000:c1:00.0/mem_info_vis_vram_total = 206141652992
sys/devices/pci0000:c0/0000:c1:00.0/current_compute_partition = SPX
sys/devices/pci0000:c0/0000:c1:00.0/vbios_version = 113-M3000100-102
sys/devices/pci0000:c0/0000:c1:00.0/unique_id = 0x0
sys/devices/pci0000:c0/0000:c1:00.0/product_name = AMD Instinct MI300X OAM
sys/module/amdgpu/version = 6.7.0
sys/class/kfd/kfd/topology/nodes/0/gpu_id = 0
sys/class/kfd/kfd/topology/nodes/0/properties = "cpu_cores_count 96\nlocation_id 0\n"
sys/class/kfd/kfd/topology/nodes/1/gpu_id = 4101
sys/class/kfd/kfd/topology/nodes/1/properties = "cpu_cores_count 0\nsimd_count 1216\nlocation_id 49408\n` +
	`domain 0\ngfx_target_version 90402\n"
sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties = "type 11\nnode_from 1\nnode_to 0\n"
sys/class/kfd/kfd/topology/nodes/1/io_links/1/properties = "type 11\nnode_from 1\nnode_to 2\n"
sys/class/kfd/kfd/topology/nodes/1/io_links/2/properties = "type 2\nnode_from 1\nnode_to 3\n"
sys/class/kfd/kfd/topology/nodes/2/gpu_id = 4102
sys/class/kfd/kfd/topology/nodes/2/properties = "location_id 256\ndomain 2\ngfx_target_version 90010\n"
sys/class/kfd/kfd/topology/nodes/2/io_links/0/properties = "type 11\nnode_from 2\nnode_to 1\n"
sys/class/kfd/kfd/topology/nodes/3/gpu_id = 4103
sys/class/kfd/kfd/topology/nodes/3/properties = "location_id 512\ndomain 0\ngfx_target_version 110501\nunique_id x\n"
sys/class/kfd/kfd/topology/nodes/4/gpu_id = 4104
sys/class/kfd/kfd/topology/nodes/4/properties = "location_id 268435968\ndomain 0\ngfx_target_version 110501\n"
sys/class/kfd/kfd/topology/nodes/4/io_links/0/properties = "type 11\nnode_to 3\n"
sys/class/kfd/kfd/topology/nodes/5/gpu_id = 4105
sys/class/kfd/kfd/topology/nodes/5/properties = "location_id 99999999\n"
`

func TestReadAMD(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, instinct))
	r.readGPUs()
	want := []topology.GPU{
		{Address: pciAddr(t, "0000:02:00.0"), ComputeArch: "gfx1151"},
		{
			Address: pciAddr(t, "0000:c1:00.0"), Name: "card1", Model: "AMD Instinct MI300X OAM",
			MemoryBytes: new(uint64(206141652992)),
			BAR1Bytes:   new(uint64(206141652992)), VBIOS: "113-M3000100-102", DriverVer: "6.7.0", Partition: "SPX",
			ComputeArch: "gfx942",
			NVLinks:     new(1),
		},
		{Address: pciAddr(t, "0002:01:00.0"), ComputeArch: "gfx90a", NVLinks: new(1)},
	}
	if diff := cmp.Diff(want, r.h.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestReadDRM(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tree string
		pci  []topology.PCIDevice
		want []topology.GPU
	}{
		{
			name: "connectors without a display",
			tree: `
				sys/class/drm/card0 -> ../../devices/pci0000:00/0000:00:02.0/drm/card0
				sys/class/drm/card0-DP-1 -> ../../devices/pci0000:00/0000:00:02.0/drm/card0/card0-DP-1
				sys/class/drm/renderD128 -> ../../devices/pci0000:00/0000:00:02.0/drm/renderD128
				sys/class/drm/version = drm 1.1.0 20060810
				sys/devices/pci0000:00/0000:00:02.0/drm/card0/card0-DP-1/status = disconnected
				sys/devices/pci0000:00/0000:00:02.0/drm/card0/card0-VGA-1/status = unknown`,
			want: []topology.GPU{{Address: pciAddr(t, "0000:00:02.0"), Name: "card0", ConnectedMon: new(false)}},
		},
		{
			name: "a card without connectors",
			tree: `
				sys/class/drm/card0 -> ../../devices/pci0000:00/0000:3b:00.0/drm/card0
				sys/devices/pci0000:00/0000:3b:00.0/drm/card0/device -> ../../../0000:3b:00.0`,
			want: []topology.GPU{{Address: pciAddr(t, "0000:3b:00.0"), Name: "card0"}},
		},
		{
			name: "cards that no function is behind",
			tree: `
				sys/class/drm/card0 -> ../../devices/platform/simple-framebuffer.0/drm/card0
				sys/devices/platform/simple-framebuffer.0/drm/card0/dev = 226:0
				sys/class/drm/card1 -> ../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/drm/card1
				sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/drm/card1/dev = 226:1`,
		},
		{
			name: "cards are numbered, not sorted as text, and the first of a function names it",
			tree: `
				sys/class/drm/card10 -> ../../devices/pci0000:00/0000:01:00.0/drm/card10
				sys/devices/pci0000:00/0000:01:00.0/drm/card10/dev = 226:10
				sys/class/drm/card2 -> ../../devices/pci0000:00/0000:01:00.0/drm/card2
				sys/devices/pci0000:00/0000:01:00.0/drm/card2/dev = 226:2`,
			want: []topology.GPU{{Address: pciAddr(t, "0000:01:00.0"), Name: "card2"}},
		},
		{
			name: "a dump of the PCI devices alone",
			tree: `
				sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total = 17163091968
				sys/bus/pci/devices/0000:04:00.0/vendor = 0x1002`,
			pci: []topology.PCIDevice{
				pciFunction(t, "0000:03:00.0", 0x030000, topology.VendorAMD), pciFunction(t, "0000:04:00.0", 0x030000,
					topology.VendorAMD),
			},
			want: []topology.GPU{{Address: pciAddr(t, "0000:03:00.0"), MemoryBytes: new(uint64(17163091968))}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree), tt.pci...)
			r.readGPUs()
			if diff := cmp.Diff(tt.want, r.h.GPUs); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGFXName(t *testing.T) {
	t.Parallel()
	for v, want := range map[uint64]string{
		90402: "gfx942", 90010: "gfx90a", 90012: "gfx90c", 80003: "gfx803", 100300: "gfx1030", 110000: "gfx1100",
		120001: "gfx1201",
		0:      "", 9999: "", 1600: "", 91600: "", 90016: "", 1 << 63: "",
	} {
		if got := gfxName(v); got != want {
			t.Errorf("gfxName(%d) = %q; want %q", v, got, want)
		}
	}
}

func TestGPUsOfANodeThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, `sys/class/kfd/kfd/topology/nodes/1/gpu_id ! EPERM`))
	r.readGPUs()
	want := []topology.Unread{{Path: "/sys/class/kfd/kfd/topology/nodes/1/gpu_id", Why: "operation not permitted"}}
	if diff := cmp.Diff(want, r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}
