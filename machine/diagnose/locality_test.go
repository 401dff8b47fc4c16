package diagnose

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// together leaves no pair far.
func together(h *topology.Host) {
	without(h, "0000:21:")
	h.Tenants = nil
	for _, a := range []string{"0000:00:03.1"} {
		slot(h, a, 8, 16)
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.Address.Bus == 0x61 {
			d.Parent, d.NUMANode = new(address("0000:00:03.1")), new(0)
		}
	}
}

func rename(h *topology.Host, model string) {
	for i := range h.PCI {
		if h.PCI[i].Class != nil && *h.PCI[i].Class == 0x030000 && *h.PCI[i].Vendor == topology.VendorNVIDIA {
			h.PCI[i].DeviceName = model
		}
	}
}

func localityCases() []testCase {
	return []testCase{
		{id: "RL010", found: true, name: "GPU and NIC without a node, nor a bridge that has one",
			set: func(h *topology.Host) {
				for _, a := range []string{gpu0, "0000:00:01.1", nic0, "0000:40:03.1"} {
					dev(h, a).NUMANode = nil
					dev(h, a).LocalCPUs = new(cpus("0-63"))
				}
			}},
		{id: "RL010", found: true, name: "node taken from the bridge above", set: func(h *topology.Host) {
			dev(h, gpu0).NUMANode, dev(h, gpu0).LocalCPUs = nil, new(cpus("0-63"))
		}},
		{id: "RL010", found: true, name: "node taken from the local CPUs in a virtual machine",
			set: func(h *topology.Host) {
				dev(h, gpu0).NUMANode = nil
				h.System.InVM = new(true)
			}},
		{id: "RL010", found: true, name: "hwloc does not know either", set: func(h *topology.Host) {
			h.Provenance.Kind = topology.SourceHwloc
			dev(h, gpu0).NUMANode, dev(h, gpu0).LocalCPUs = nil, new(cpus("0-63"))
			dev(h, "0000:00:01.1").NUMANode = nil
			dev(h, "0000:00:01.1").LocalCPUs = new(cpus("0-63"))
		}},
		{id: "RL010", found: false, name: "hwloc gives the local CPUs and not the node", set: func(h *topology.Host) {
			h.Provenance.Kind = topology.SourceHwloc
			dev(h, gpu0).NUMANode = nil
		}},
		{id: "RL010", found: false, name: "machine with one node", set: func(h *topology.Host) {
			for i := range h.PCI {
				h.PCI[i].NUMANode, h.PCI[i].LocalCPUs = nil, new(cpus("0-63"))
			}
			h.NUMANodes = h.NUMANodes[:1]
			h.NUMANodes[0].CPUs = cpus("0-63")
		}},
		{id: "RL010", found: false, name: "dump without nodes of devices", set: func(h *topology.Host) {
			for i := range h.PCI {
				h.PCI[i].NUMANode, h.PCI[i].LocalCPUs = nil, nil
			}
		}},
		{id: "RL010", found: false, name: "a screen and a sound card do not matter", set: func(h *topology.Host) {
			for _, a := range []string{"0000:02:00.0", "0000:00:01.5"} {
				dev(h, a).NUMANode, dev(h, a).LocalCPUs = nil, new(cpus("0-63"))
			}
		}},

		{id: "RL011", found: true, name: "two GPUs and two NICs on four nodes"},
		{id: "RL011", found: true, name: "no free port, but a drive to swap with", set: func(h *topology.Host) {
			without(h, "0000:06:")
			without(h, "0000:00:03.1")
			slot(h, "0000:20:01.1", 8, 8)
		}},
		{id: "RL011", found: true, name: "no free port and nothing to swap", set: func(h *topology.Host) {
			without(h, "0000:00:03.1")
			without(h, "0000:22:")
		}},
		{id: "RL011", found: true, name: "virtual machine, whose slots nobody can change", set: func(h *topology.Host) {
			h.System.Hypervisor = "kvm"
		}},
		{id: "RL011", found: true, name: "dump that does not list empty ports", set: func(h *topology.Host) {
			h.Provenance.Kind = topology.SourceHwloc
			without(h, "0000:00:03.1")
		}},
		{id: "RL011", found: true, name: "matrix without a PCI tree", from: h20},
		{id: "RL011", found: false, name: "NIC on the GPU's root complex", set: together},
		{id: "RL011", found: false, name: "the only NICs are not for RDMA", set: func(h *topology.Host) {
			without(h, "0000:41:")
			without(h, "0000:61:")
		}},
		{id: "RL011", found: false, name: "the node of the NICs is not known", set: func(h *topology.Host) {
			for i := range h.PCI {
				if d := &h.PCI[i]; d.Address.Bus == 0x41 || d.Address.Bus == 0x61 || d.Address.Bus == 0x40 ||
					d.Address.Bus == 0x60 {
					d.NUMANode, d.LocalCPUs = nil, nil
				}
			}
		}},

		{id: "RL012", found: true, name: "one node for the whole socket", set: func(h *topology.Host) {
			h.NUMANodes = h.NUMANodes[:1]
			h.NUMANodes[0].CPUs = cpus("0-63")
			for i := range h.PCI {
				h.PCI[i].NUMANode, h.PCI[i].LocalCPUs = new(0), nil
			}
		}},
		{id: "RL012", found: true, name: "free port below the GPU's own switch", set: func(h *topology.Host) {
			pcieSwitch(h, 8, 16)
			for i := range h.PCI {
				d := &h.PCI[i]
				d.NUMANode, d.LocalCPUs = new(0), nil
				if d.Address == address("0000:09:00.0") { // with an empty port beside it
					d.Class, d.Vendor, d.DeviceName = new(topology.ID24(0x030200)), new(topology.VendorNVIDIA),
						"GA100 [A100 PCIe 80GB]"
				}
			}
			without(h, "0000:0a:")
			without(h, "0000:06:")
			without(h, "0000:21:")
		}},
		{id: "RL012", found: false, name: "below one root complex", set: together},
		{id: "RL012", found: false, name: "on different nodes, which is RL011"},

		{id: "RL013", found: true, name: "25 Gb/s beside an H100", set: func(h *topology.Host) {
			rename(h, "GH100 [H100 PCIe]")
		}},
		{id: "RL013", found: true, name: "100 Gb/s beside an A100, by a matrix", from: func() *topology.Host {
			h := h20()
			for i := range h.GPUs {
				h.GPUs[i].Model = "NVIDIA A100-SXM4-80GB"
			}
			for i := range h.NICs {
				h.NICs[i].SpeedMbps = new(int64(100_000))
			}
			return h
		}},
		{id: "RL013", found: false, name: "two ports of one card together are enough", set: func(h *topology.Host) {
			rename(h, "GA100 [A100 PCIe 80GB]")
			for i := range h.NICs {
				if h.NICs[i].Address.Bus >= 0x41 {
					h.NICs[i].Ports[0].SpeedMbps = new(int64(100_000))
				}
			}
		}},
		{id: "RL013", found: false, name: "a GPU without a usual rate"},
		{id: "RL013", found: false, name: "the link is down, so the rate is not known", set: func(h *topology.Host) {
			rename(h, "GH100 [H100 PCIe]")
			for i := range h.NICs {
				h.NICs[i].Ports[0].SpeedMbps = nil
				if len(h.NICs[i].Devices) > 0 {
					h.NICs[i].Devices[0].Ports[0].RateGbps = nil
				}
			}
		}},
	}
}

func TestUsualRatesAreFoundByTheWordsOfAName(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]float64{
		"GA100 [A100 SXM4 40GB]":         200,
		"NVIDIA A100-SXM4-80GB":          200,
		"GH100 [H100 SXM5 80GB]":         400,
		"GH100 [H200 SXM 141GB]":         400,
		"NVIDIA H20":                     200,
		"NVIDIA H20-3e":                  200,
		"GH100 [GH200 120GB / 480GB]":    400,
		"GB100 [B200]":                   800,
		"AD102 [GeForce RTX 4090]":       100,
		"AD102GL [RTX 6000 Ada]":         200,
		"AD102GL [L40S]":                 200,
		"GB200":                          0, // not in the table
		"A100X":                          0,
		"GeForce RTX 4090 Laptop GPU":    0,
		"GA102 [GeForce RTX 3090]":       0,
		"GA100":                          0,
		"TU102GL [Quadro RTX 6000/8000]": 0,
		"Navi 31 [Radeon RX 7900 XTX]":   0,
		"":                               0,
		"H2000":                          0,
	} {
		if _, got := usualRate(model); got != want {
			t.Errorf("usualRate(%q) = %g, want %g", model, got, want)
		}
	}
}
