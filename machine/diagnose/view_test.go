package diagnose

import (
	"testing"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

func TestSizesAreWrittenWithTheLargestUnitThatFits(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "0 bytes", 1000: "1000 bytes", 4096: "4 KiB", 2 << 20: "2 MiB",
		1 << 30: "1 GiB", 24268 << 20: "24268 MiB",
		1 << 40: "1 TiB", 67_361_234_944 + 512: "64240 MiB", 12_345_679: "11 MiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestLongListsAreCutShort(t *testing.T) {
	t.Parallel()
	list := []string{"a", "b", "c", "d"}
	for limit, want := range map[int]string{4: "a, b, c, d", 5: "a, b, c, d", 3: "a, b, c, and 1 more",
		1: "a, and 3 more"} {
		if got := words.Few(list, limit, ", "); got != want {
			t.Errorf("words.Few(%d) = %q, want %q", limit, got, want)
		}
	}
	if got := words.Count(1, "page") + " " + words.Count(0, "page"); got != "1 page 0 pages" {
		t.Errorf("got %q", got)
	}
}

func TestADeviceIsDescribedWithItsSlotAndModel(t *testing.T) {
	t.Parallel()
	h := base()
	dev(h, gpu0).Slot = "SLOT 6"
	h.Complete()
	v := newView(h)
	for addr, want := range map[string]string{
		gpu0:           "0000:06:00.0 (slot SLOT 6, GA102 [GeForce RTX 3090])",
		nvme:           "0000:22:00.0 (NVMe SSD Controller SM981/PM981)",
		"0000:20:03.1": "0000:20:03.1",
		"0000:77:00.0": "0000:77:00.0",
	} {
		if got := v.describe(address(addr)); got != want {
			t.Errorf("describe(%s) = %q, want %q", addr, got, want)
		}
	}
}

func TestAHostServesLabsWhenAnythingOfThemIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*topology.Host)
		want bool
	}{
		"a laptop":                  {func(*topology.Host) {}, false},
		"a VM":                      {func(h *topology.Host) { h.Tenants = []topology.Tenant{{Name: "vm"}} }, true},
		"isolated CPUs":             {func(h *topology.Host) { isolate(h, "2-3") }, true},
		"hugepages":                 {func(h *topology.Host) { h.Memory.Hugepages[0].Total = 1 }, true},
		"hugepages asked for":       {func(h *topology.Host) { withCmdline(h, "hugepages=8") }, true},
		"a device on a vfio driver": {func(h *topology.Host) { h.PCI[2].Driver = "vfio-pci" }, true},
		"a NIC at 25 Gb/s":          {func(h *topology.Host) { nicSpeed(h, 25_000) }, true},
		"a NIC at 10 Gb/s":          {func(h *topology.Host) { nicSpeed(h, 10_000) }, false},
		"RDMA in software":          {func(h *topology.Host) { nicRDMA(h, "rxe0") }, false},
		"RDMA in hardware":          {func(h *topology.Host) { nicRDMA(h, "irdma0") }, true},
		"a NIC of NVIDIA":           {func(h *topology.Host) { h.PCI[2].Vendor = new(topology.VendorMellanox) }, true},
		"an InfiniBand controller":  {func(h *topology.Host) { h.PCI[2].Class = new(topology.ID24(0x020700)) }, true},
		"a virtual function of such": {func(h *topology.Host) {
			h.PCI[2].PF, h.PCI[2].Vendor = new(address("0000:00:1e.0")), new(topology.VendorMellanox)
		}, false},
	} {
		h := laptop()
		c.set(h)
		h.Complete()
		if got := newView(h).serves; got != c.want {
			t.Errorf("%s: serves = %v, want %v", name, got, c.want)
		}
	}
}

func nicSpeed(h *topology.Host, mbps int64) {
	h.NICs = []topology.NIC{{Address: new(address("0000:00:1f.6")),
		Ports: []topology.Netdev{{Name: "eno1", SpeedMbps: &mbps}}}}
}

func nicRDMA(h *topology.Host, name string) {
	h.NICs = []topology.NIC{{Address: new(address("0000:00:1f.6")), Devices: []topology.RDMADevice{{Name: name}}}}
}

func BenchmarkHost(b *testing.B) {
	h := base()
	h.Complete()
	for b.Loop() {
		Host(h)
	}
}
