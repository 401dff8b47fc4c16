package diagnose

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

const (
	gpu0 = "0000:06:00.0"
	gpu1 = "0000:21:00.0"
	nic0 = "0000:41:00.0"
	nic1 = "0000:61:00.0"
	nvme = "0000:22:00.0"
)

func train(h *topology.Host, addr string, gts float64, lanes int) {
	l := dev(h, addr).Link
	l.SpeedGTs, l.Width = new(gts), new(lanes)
}

func slot(h *topology.Host, addr string, gts float64, lanes int) {
	l := dev(h, addr).Link
	l.MaxSpeedGTs, l.MaxWidth = new(gts), new(lanes)
}

// amdCard's switch has the given link.
func amdCard(h *topology.Host, gts float64, lanes int, driver string) {
	without(h, "0000:21:")
	h.Tenants = nil
	bridge := func(addr, parent, port string, bus uint8, l *topology.Link) {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: address(addr), Parent: new(address(parent)),
			Class:  new(topology.ID24(0x060400)),
			Vendor: new(topology.VendorAMD), NUMANode: new(1), Driver: "pcieport", DriverKnown: true, Link: l,
			Bridge: &topology.Bridge{Secondary: bus, Subordinate: 0x25, Port: port}})
	}
	bridge("0000:23:00.0", "0000:20:03.1", "upstream port", 0x24,
		&topology.Link{SpeedGTs: new(gts), Width: new(lanes), MaxSpeedGTs: new(8.0), MaxWidth: new(16)})
	bridge("0000:24:00.0", "0000:23:00.0", "downstream port", 0x25,
		&topology.Link{SpeedGTs: new(16.0), Width: new(16), MaxSpeedGTs: new(16.0), MaxWidth: new(16)})
	// Slow, but not a real link.
	h.PCI = append(h.PCI, topology.PCIDevice{Address: address("0000:25:00.0"), Parent: new(address("0000:24:00.0")),
		Class:  new(topology.ID24(0x030000)),
		Vendor: new(topology.VendorAMD), DeviceName: "Navi 31 [Radeon RX 7900 XTX]", NUMANode: new(1), Driver: driver,
		DriverKnown: true,
		Link:        &topology.Link{SpeedGTs: new(2.5), Width: new(16), MaxSpeedGTs: new(16.0), MaxWidth: new(16)}})
}

// pcieSwitch has two NICs and the given uplink, on node 0.
func pcieSwitch(h *topology.Host, gts float64, lanes int) {
	slot(h, "0000:00:03.1", 8, 16)
	bridge := func(addr, parent, port string, bus, last uint8) *topology.PCIDevice {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: address(addr), Parent: new(address(parent)),
			Class:  new(topology.ID24(0x060400)),
			Vendor: new(topology.ID16(0x10b5)), NUMANode: new(0), Bridge: &topology.Bridge{Secondary: bus,
				Subordinate: last, Port: port},
			Link: &topology.Link{SpeedGTs: new(8.0), Width: new(16), MaxSpeedGTs: new(8.0), MaxWidth: new(16)}})
		return &h.PCI[len(h.PCI)-1]
	}
	up := bridge("0000:07:00.0", "0000:00:03.1", "upstream port", 8, 0x0a)
	up.Link.SpeedGTs, up.Link.Width = new(gts), new(lanes)
	bridge("0000:08:00.0", "0000:07:00.0", "downstream port", 9, 9)
	bridge("0000:08:01.0", "0000:07:00.0", "downstream port", 0x0a, 0x0a)
	for i, addr := range []string{"0000:09:00.0", "0000:0a:00.0"} {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: address(addr),
			Parent: new(address([]string{"0000:08:00.0", "0000:08:01.0"}[i])),
			Class:  new(topology.ID24(0x020000)), Vendor: new(topology.VendorMellanox), NUMANode: new(0),
			Driver: "mlx5_core", DriverKnown: true,
			Link: &topology.Link{SpeedGTs: new(8.0), Width: new(16), MaxSpeedGTs: new(8.0), MaxWidth: new(16)}})
	}
}

func linkCases() []testCase {
	return []testCase{
		{id: "RL001", found: true, name: "GPUs of Gen4 in slots of Gen3", set: nil},
		{id: "RL001", found: true, name: "the slot has a quarter of the GPU's lanes", set: func(h *topology.Host) {
			slot(h, "0000:00:01.1", 8, 4)
			train(h, gpu0, 8, 4)
		}},
		{id: "RL001", found: true, name: "the slot cannot carry both ports of the NIC", set: func(h *topology.Host) {
			slot(h, "0000:40:03.1", 5, 4)
			train(h, nic0, 5, 4)
			nicAt(h, "0000:41:00.1").Ports[0].SpeedMbps = new(int64(25_000))
		}},
		{id: "RL001", found: false, name: "the device can do less than its slot", set: func(h *topology.Host) {
			for _, g := range []string{gpu0, gpu1} {
				dev(h, g).Link.MaxSpeedGTs = new(8.0)
			}
			slot(h, "0000:20:01.1", 16, 16)
		}},
		{id: "RL001", found: false, name: "the port above is not known", set: func(h *topology.Host) {
			for i := range h.PCI {
				if h.PCI[i].Bridge != nil {
					h.PCI[i].Link = nil
				}
			}
		}},

		{id: "RL001", found: true, name: "a switch in a slot of four lanes", set: func(h *topology.Host) {
			pcieSwitch(h, 8, 4)
			slot(h, "0000:00:03.1", 8, 4)
		}},

		{id: "RL005", found: true, name: "a switch with one lane, from a source that does not show ports",
			set: func(h *topology.Host) {
				pcieSwitch(h, 2.5, 1)
				up := dev(h, "0000:07:00.0")
				up.Parent, up.Root, up.Bridge.Port = nil, "pci0000:00", topology.PortSwitch
				up.Link = &topology.Link{MaxSpeedGTs: new(2.5), MaxWidth: new(1)}
				up.Vendor, up.Device = new(topology.ID16(0x104c)), new(topology.ID16(0x8232))
			}},
		{id: "RL005", found: true, name: "a switch of four lanes in a slot as wide", set: func(h *topology.Host) {
			pcieSwitch(h, 8, 4)
			slot(h, "0000:00:03.1", 8, 4)
			dev(h, "0000:07:00.0").Link.MaxWidth = new(4)
		}},
		{id: "RL005", found: true, name: "the kernel names a link of four lanes", set: func(h *topology.Host) {
			h.PCI = append(h.PCI, namedLimitOf("0000:65:00.0", "0000:64:00.0", 16, 4))
		}},
		{id: "RL005", found: true, name: "the kernel names a link of half of the lanes", set: func(h *topology.Host) {
			h.PCI = append(h.PCI, namedLimitOf("0000:65:00.0", "0000:64:00.0", 16, 8))
		}},
		{id: "RL005", found: false, name: "the kernel names a link that is known", set: func(h *topology.Host) {
			h.PCI = append(h.PCI, namedLimitOf("0000:65:00.0", "0000:00:03.1", 16, 4))
		}},
		{id: "RL005", found: false, name: "a switch with half of the lanes of a card", set: func(h *topology.Host) {
			pcieSwitch(h, 8, 8)
			slot(h, "0000:00:03.1", 8, 8)
			dev(h, "0000:07:00.0").Link.MaxWidth = new(8)
		}},
		{id: "RL005", found: false, name: "a switch in a slot of four lanes is RL001", set: func(h *topology.Host) {
			pcieSwitch(h, 8, 4)
			slot(h, "0000:00:03.1", 8, 4)
		}},

		{id: "RL002", found: true, name: "GPU with half of its lanes", set: func(h *topology.Host) {
			train(h, gpu0, 8, 8)
		}},
		{id: "RL002", found: true, name: "NVMe drive with one lane below a port that is not known",
			set: func(h *topology.Host) {
				train(h, nvme, 8, 1)
				dev(h, "0000:20:01.1").Link = nil
			}},
		{id: "RL002", found: false, name: "the slot has no more lanes", set: func(h *topology.Host) {
			slot(h, "0000:00:01.1", 8, 8)
			train(h, gpu0, 8, 8)
		}},
		{id: "RL002", found: false, name: "the width of a device without power", set: func(h *topology.Host) {
			train(h, gpu0, 2.5, 1)
			dev(h, gpu0).PowerState = "D3cold"
		}},
		{id: "RL002", found: false, name: "ports of 1 Gb/s on the board, which are wired to one lane",
			set: func(h *topology.Host) {
				train(h, nic0, 5, 1)
				dev(h, nic0).DeviceName = "NetXtreme BCM5720 2-port Gigabit Ethernet PCIe"
			}},
		{id: "RL002", found: true, name: "ports of 10 Gb/s", set: func(h *topology.Host) {
			train(h, nic0, 5, 1)
			dev(h, nic0).DeviceName = "82599ES 10-Gigabit SFI/SFP+ Network Connection"
		}},
		{id: "RL002", found: false, name: "a screen of a management controller", set: func(h *topology.Host) {
			dev(h, "0000:02:00.0").Link = &topology.Link{SpeedGTs: new(2.5), Width: new(1), MaxSpeedGTs: new(5.0),
				MaxWidth: new(4)}
		}},

		{id: "RL003", found: true, name: "GPU at 2.5 GT/s on vfio-pci with its VM shut off",
			set: func(h *topology.Host) {
				train(h, gpu1, 2.5, 16)
				slot(h, "0000:20:03.1", 16, 16)
				tenant(h, "vm01").State = "shut off"
			}},
		{id: "RL003", found: true, name: "GPU without a driver", set: func(h *topology.Host) {
			train(h, gpu0, 2.5, 16)
			dev(h, gpu0).Driver = ""
			h.Tenants = nil
		}},
		{id: "RL003", found: true, name: "NIC, with a driver that could manage nothing", set: func(h *topology.Host) {
			train(h, nic0, 5, 8)
		}},
		{id: "RL003", found: true, name: "NIC below a port that is not known", set: func(h *topology.Host) {
			train(h, nic0, 5, 8)
			dev(h, "0000:40:03.1").Link = nil
		}},
		{id: "RL003", found: true, name: "idle GPU whose link is narrow as well", set: func(h *topology.Host) {
			train(h, gpu0, 2.5, 4)
			dev(h, gpu0).Driver = "nvidia"
			h.Tenants = nil
		}},
		{id: "RL003", found: true, name: "AMD card on vfio-pci: its upstream port is slow",
			set: func(h *topology.Host) {
				amdCard(h, 2.5, 16, "vfio-pci")
			}},
		{id: "RL003", found: true, name: "switch with two NICs", set: func(h *topology.Host) {
			pcieSwitch(h, 2.5, 16)
		}},
		{id: "RL003", found: false, name: "the slot can do no more", set: func(h *topology.Host) {
			slot(h, "0000:40:03.1", 5, 8)
			train(h, nic0, 5, 8)
		}},
		{id: "RL003", found: false, name: "AMD card: only its inner link is slow", set: func(h *topology.Host) {
			amdCard(h, 8, 16, "vfio-pci")
		}},
		{id: "RL003", found: false, name: "switch at full speed", set: func(h *topology.Host) { pcieSwitch(h, 8, 16) }},
		{id: "RL003", found: false, name: "virtual machine, whose links an emulator makes up",
			set: func(h *topology.Host) {
				train(h, nic0, 2.5, 1)
				h.System.InVM = new(true)
			}},
		{id: "RL003", found: false, name: "virtual function", set: func(h *topology.Host) {
			train(h, nic0, 2.5, 1)
			dev(h, nic0).PF = new(address("0000:41:00.1"))
		}},
		{id: "RL003", found: false, name: "the speed is not known", set: func(h *topology.Host) {
			dev(h, nic0).Link.SpeedGTs = nil
		}},

		{id: "RL004", found: true, name: "GPU on the nvidia driver at 2.5 GT/s", set: func(h *topology.Host) {
			train(h, gpu0, 2.5, 16)
			dev(h, gpu0).Driver = "nvidia"
			h.Tenants = nil
		}},
		{id: "RL004", found: true, name: "GPU of a VM that runs", set: func(h *topology.Host) {
			train(h, gpu0, 2.5, 16)
		}},
		{id: "RL004", found: true, name: "AMD card on amdgpu", set: func(h *topology.Host) {
			amdCard(h, 2.5, 16, "amdgpu")
		}},
		{id: "RL004", found: true, name: "sleeping drive", set: func(h *topology.Host) {
			train(h, nvme, 2.5, 4)
			dev(h, nvme).PowerState = "D3hot"
		}},
		{id: "RL004", found: false, name: "drive that is awake", set: func(h *topology.Host) {
			train(h, nvme, 2.5, 4)
		}},
		{id: "RL004", found: false, name: "GPU at full speed", set: nil},
	}
}

func TestTheEvidenceOfASlowLinkHasTheFormOfTheFiles(t *testing.T) {
	t.Parallel()
	h := base()
	train(h, gpu1, 2.5, 16)
	slot(h, "0000:20:03.1", 16, 16)
	tenant(h, "vm01").State = "shut off"
	h.Complete()
	got := of("RL003", Host(h))
	if len(got) != 1 {
		t.Fatalf("got %d findings, want 1", len(got))
	}
	const want = "/sys/bus/pci/devices/0000:21:00.0: current_link_speed=2.5 GT/s max_link_speed=16.0 GT/s; " +
		"/sys/bus/pci/devices/0000:20:03.1: max_link_speed=16.0 GT/s; /sys/bus/pci/devices/0000:21:00.0: " +
		"driver=vfio-pci"
	if got[0].Evidence != want || got[0].Subject != gpu1 || got[0].Severity != finding.Warning {
		t.Errorf("got %s %s %q, want warning %s %q", got[0].Severity, got[0].Subject, got[0].Evidence, gpu1, want)
	}
}

// Some published advice wrote 0x0060 to Link Control 2, which sets the reserved target speed 0, and did not set the
// retrain bit.
func TestAdviceToTrainALinkAgainIsWhole(t *testing.T) {
	write := regexp.MustCompile(`CAP_EXP\+([0-9a-f]+)\.[bwl]=([0-9a-f]+)(?::([0-9a-f]+))?`)
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 16, 16)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const (
		control, control2 = "10", "30" // of the PCI Express capability
		targetSpeed       = 0xf
		retrain           = 0x20
	)
	found := 0
	for _, c := range checks() {
		trained := true
		for _, m := range write.FindAllStringSubmatch(c.Fix, -1) {
			if m[3] == "" {
				t.Errorf("%s: %s has no mask, and writes bits that are somebody else's", c.ID, m[0])
				continue
			}
			value, mask := number(m[2]), number(m[3])
			switch m[1] {
			case control2:
				found++
				if speed := value & mask; mask != targetSpeed || speed < 1 || speed > 6 {
					t.Errorf("%s: %s is no target speed", c.ID, m[0])
				}
				trained = false
			case control:
				trained = value == retrain && mask == retrain
			}
		}
		if !trained {
			t.Errorf("%s: a target speed is written, and the link is not trained again", c.ID)
		}
	}
	if found == 0 {
		t.Error("no advice sets a target speed: is it written in another way?")
	}
}

// The reader decides when no tenant uses the card.
func TestNoPackageWritesConfigurationSpace(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(`"setpci"`)) {
			t.Errorf("%s runs setpci", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func namedLimitOf(of, port string, gts float64, lanes int) topology.PCIDevice {
	return topology.PCIDevice{Address: address(of), ParentUnknown: true,
		Link:      &topology.Link{MaxSpeedGTs: new(16.0), MaxWidth: new(16)},
		PathLimit: &topology.PathLimit{At: address(port), SpeedGTs: gts, Width: lanes}}
}
