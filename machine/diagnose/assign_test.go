package diagnose

import "github.com/rackless/rackless/machine/topology"

func beside(h *topology.Host) {
	h.PCI = append(h.PCI, topology.PCIDevice{Address: address("0000:06:01.0"), Parent: new(address("0000:00:01.1")),
		Class: new(topology.ID24(0x0c0330))})
}

func amdOnly(h *topology.Host, resets ...string) {
	dev(h, gpu0).Vendor, dev(h, gpu0).ResetMethods = new(topology.VendorAMD), resets
}

func assignCases() []testCase {
	return []testCase{
		{id: "RL030", found: true, name: "GPU with audio, alone on its bus", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods = nil
		}},
		{id: "RL030", found: true, name: "another device on the bus", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods = nil
			beside(h)
		}},
		{id: "RL030", found: true, name: "AMD GPU", set: func(h *topology.Host) { amdOnly(h) }},
		{id: "RL030", found: true, name: "device on the root bus that is kept for a VM",
			set: func(h *topology.Host) {
				d := dev(h, nvme)
				d.Parent, d.ResetMethods, d.Driver = nil, nil, "vfio-pci"
			}},
		{id: "RL030", found: false, name: "function level reset", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods = []string{"flr"}
		}},
		{id: "RL030", found: false, name: "kernel that does not show methods", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods, dev(h, gpu0).ResetKnown = nil, false
		}},
		{id: "RL030", found: false, name: "drive of the host", set: func(h *topology.Host) {
			dev(h, nvme).ResetMethods = nil
		}},
		{id: "RL030", found: false, name: "GPU in the processor", from: laptop},

		{id: "RL031", found: true, name: "another device on the bus", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods = []string{"bus"}
			beside(h)
		}},
		{id: "RL031", found: true, name: "AMD GPU alone", set: func(h *topology.Host) { amdOnly(h, "bus") }},
		{id: "RL031", found: false, name: "NVIDIA GPU alone on its bus", set: func(h *topology.Host) {
			dev(h, gpu0).ResetMethods = []string{"bus"}
		}},
		{id: "RL031", found: false, name: "AMD GPU with a method of its own", set: func(h *topology.Host) {
			amdOnly(h, "device_specific", "bus")
		}},

		{id: "RL032", found: true, name: "configuration space is all ones", set: func(h *topology.Host) {
			dev(h, gpu0).Dead = true
		}},
		{id: "RL032", found: false, name: "no power", set: func(h *topology.Host) {
			dev(h, gpu0).Dead, dev(h, gpu0).PowerState = true, "D3cold"
		}},

		{id: "RL033", found: true, name: "GPU of a VM", set: func(h *topology.Host) {
			dev(h, gpu0).PowerState = "D3cold"
		}},
		{id: "RL033", found: true, name: "GPU of the host", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).PowerState, dev(h, gpu0).Driver = "D3cold", "nouveau"
		}},
		{id: "RL033", found: false, name: "D3hot", set: func(h *topology.Host) { dev(h, gpu0).PowerState = "D3hot" }},
		{id: "RL033", found: false, name: "USB controller without power", set: func(h *topology.Host) {
			beside(h)
			dev(h, "0000:06:01.0").PowerState = "D3cold"
		}},

		{id: "RL034", found: true, name: "more enabled than offered", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV.Enabled = new(9)
		}},
		{id: "RL034", found: true, name: "more there than offered", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV = &topology.SRIOV{Total: new(1), VFs: []topology.VF{{Index: 0}, {Index: 1}}}
		}},
		{id: "RL034", found: false, name: "all that are offered", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV.Enabled = new(8)
		}},
		{id: "RL034", found: false, name: "the offer is not known", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV.Enabled, dev(h, nic0).SRIOV.Total = new(8), nil
		}},

		{id: "RL035", found: true, name: "ConnectX without functions", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV.Total = new(0)
		}},
		{id: "RL035", found: true, name: "GPU of another maker without functions", set: func(h *topology.Host) {
			dev(h, gpu0).SRIOV = &topology.SRIOV{Total: new(0)}
		}},
		{id: "RL035", found: false, name: "the number is not known", set: func(h *topology.Host) {
			dev(h, nic0).SRIOV.Total = nil
		}},
		{id: "RL035", found: false, name: "ordinary NIC", set: func(h *topology.Host) {
			dev(h, "0000:01:00.0").SRIOV = &topology.SRIOV{Total: new(0)}
		}},

		{id: "RL038", found: true, name: "ConnectX-3 whose firmware offers functions", set: func(h *topology.Host) {
			n := nicAt(h, nic0)
			n.Model, n.Driver, n.SRIOV = "MT27500 Family [ConnectX-3]", "mlx4_core", nil
			n.Settings = map[string]string{"SRIOV_EN": "True(1)", "NUM_OF_VFS": "8"}
		}},
		{id: "RL038", found: false, name: "its functions are there", set: func(h *topology.Host) {
			n := nicAt(h, nic0)
			n.Driver, n.SRIOV = "mlx4_core", &topology.SRIOV{Enabled: new(8)}
			n.Settings = map[string]string{"SRIOV_EN": "True(1)", "NUM_OF_VFS": "8"}
		}},
		{id: "RL038", found: false, name: "ConnectX-5", set: func(h *topology.Host) {
			nicAt(h, nic0).Settings = map[string]string{"SRIOV_EN": "True(1)", "NUM_OF_VFS": "8"}
		}},

		{id: "RL036", found: true, name: "no driver", set: func(h *topology.Host) {
			dev(h, gpu0).Override, dev(h, gpu0).Driver = "vfio-pci", ""
		}},
		{id: "RL036", found: true, name: "another driver", set: func(h *topology.Host) {
			dev(h, nic0).Override = "vfio-pci"
		}},
		{id: "RL036", found: false, name: "in force", set: func(h *topology.Host) {
			dev(h, gpu0).Override = "vfio-pci"
		}},
		{id: "RL036", found: false, name: "the driver is not known", set: func(h *topology.Host) {
			d := dev(h, gpu0)
			d.Override, d.Driver, d.DriverKnown = "vfio-pci", "", false
		}},

		{id: "RL037", found: true, name: "BAR of 32 GiB", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 32 * gib
		}},
		{id: "RL037", found: true, name: "two GPUs with BARs of 16 GiB in one VM", set: func(h *topology.Host) {
			tenant(h, "vm00").Devices = append(tenant(h, "vm00").Devices, topology.TenantDevice{PCI: address(gpu1)})
		}},
		{id: "RL037", found: false, name: "BAR of 16 GiB"},
		{id: "RL037", found: false, name: "large BAR of a GPU that no VM has", set: func(h *topology.Host) {
			dev(h, gpu0).BARs[1].SizeBytes = 32 * gib
			h.Tenants = nil
		}},
	}
}
