package diagnose

import (
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

func noIOMMU(h *topology.Host) {
	h.IOMMU = topology.IOMMU{Enabled: new(false)}
	for i := range h.PCI {
		h.PCI[i].IOMMUGroup = nil
	}
}

func acs(h *topology.Host, a topology.ACS) {
	pcieSwitch(h, 8, 16)
	g := dev(h, "0000:09:00.0")
	g.Class, g.Vendor, g.Driver = new(topology.ID24(0x030200)), new(topology.VendorNVIDIA), "nvidia"
	for _, p := range []string{"0000:08:00.0", "0000:08:01.0"} {
		dev(h, p).ACS = &a
	}
}

func groupListing() *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceLspci}}
	for i, class := range []topology.ID24{0x030000, 0x040300, 0x010802} {
		a := topology.PCIAddr{Bus: uint8(1 + i/2), Function: uint8(i % 2)}
		h.PCI = append(h.PCI, topology.PCIDevice{Address: a, Class: &class, IOMMUGroup: new(1 + i/2)})
	}
	return h
}

func iommuCases() []testCase {
	return []testCase{
		{id: "RL020", found: true, name: "off, with cards to give away", set: func(h *topology.Host) {
			noIOMMU(h)
			withCmdline(h, "quiet")
		}},
		{id: "RL020", found: true, name: "asked for and not there", set: func(h *topology.Host) {
			noIOMMU(h)
			withCmdline(h, "intel_iommu=on iommu=pt")
		}},
		{id: "RL020", found: true, name: "asked for in a virtual machine", set: func(h *topology.Host) {
			noIOMMU(h)
			withCmdline(h, "intel_iommu=on")
			h.System.InVM = new(true)
		}},
		{id: "RL020", found: true, name: "switched off on the command line", set: func(h *topology.Host) {
			noIOMMU(h)
			withCmdline(h, "intel_iommu=off")
		}},
		{id: "RL020", found: true, name: "off on a laptop", from: laptop, set: noIOMMU},
		{id: "RL020", found: false, name: "on"},
		{id: "RL020", found: false, name: "not known", set: func(h *topology.Host) {
			noIOMMU(h)
			h.IOMMU.Enabled = nil
		}},
		{id: "RL020", found: false, name: "virtual machine that asks for none", set: func(h *topology.Host) {
			noIOMMU(h)
			withCmdline(h, "quiet")
			h.System.InVM = new(true)
		}},

		{id: "RL021", found: true, name: "GPU and drive in one group", set: func(h *topology.Host) {
			dev(h, nvme).IOMMUGroup = new(11)
		}},
		{id: "RL021", found: false, name: "GPU and drive in one group of a virtual machine",
			set: func(h *topology.Host) {
				dev(h, nvme).IOMMUGroup, h.System.InVM = new(11), new(true)
			}},
		{id: "RL021", found: true, name: "GPU and drive in one group of an emulated host", set: func(h *topology.Host) {
			dev(h, nvme).IOMMUGroup, h.System.InVM, h.System.Vendor = new(11), new(true), topology.VendorEmulated
		}},
		{id: "RL021", found: true, name: "virtual functions in the group of their NIC", set: func(h *topology.Host) {
			vf := *dev(h, nic0)
			vf.Address, vf.PF, vf.SRIOV = address("0000:41:01.0"), new(address(nic0)), nil
			h.PCI = append(h.PCI, vf)
		}},
		{id: "RL021", found: true, name: "ordinary NIC with a chipset device", from: laptop,
			set: func(h *topology.Host) {
				h.PCI = append(h.PCI, topology.PCIDevice{Address: address("0000:02:00.0"),
					Class: new(topology.ID24(0x020000)), IOMMUGroup: new(7)},
					topology.PCIDevice{Address: address("0000:03:00.0"), Class: new(topology.ID24(0x0c0330)),
						IOMMUGroup: new(7)})
			}},
		{id: "RL021", found: false, name: "GPU with its audio, and the bridge above", set: func(h *topology.Host) {
			dev(h, "0000:00:01.1").IOMMUGroup = new(10)
		}},
		{id: "RL021", found: false, name: "sound and USB of the chipset share a group", from: laptop,
			set: func(h *topology.Host) {
				h.PCI = append(h.PCI, topology.PCIDevice{Address: address("0000:00:14.0"),
					Class: new(topology.ID24(0x0c0330)), IOMMUGroup: new(7)},
					topology.PCIDevice{Address: address("0000:00:1b.0"), Class: new(topology.ID24(0x040300)),
						IOMMUGroup: new(7)})
			}},

		{id: "RL027", found: true, name: "a listing of a GPU with its audio, and of a drive", from: groupListing},
		{id: "RL027", found: true, name: "a listing in which a group is shared", from: groupListing,
			set: func(h *topology.Host) { h.PCI[2].IOMMUGroup = new(1) }},
		{id: "RL027", found: false, name: "one device, as of lspci -vmmk -s", from: groupListing,
			set: func(h *topology.Host) { h.PCI = h.PCI[:1] }},
		{id: "RL027", found: true, name: "a listing of a bridge alone", from: groupListing,
			set: func(h *topology.Host) {
				h.PCI, h.Provenance.Tool = h.PCI[:1], "IOMMU groups"
				h.PCI[0].Class = new(topology.ID24(0x060400))
			}},
		{id: "RL027", found: true, name: "a listing without names in which a group is shared", from: groupListing,
			set: func(h *topology.Host) {
				for i := range h.PCI {
					h.PCI[i].Class, h.PCI[i].IOMMUGroup = nil, new(1)
				}
			}},
		{id: "RL027", found: false, name: "lspci -vvv tells the links too", from: groupListing,
			set: func(h *topology.Host) {
				h.PCI[0].Link = &topology.Link{Width: new(16)}
			}},
		{id: "RL027", found: false, name: "a snapshot", from: groupListing, set: func(h *topology.Host) {
			h.Provenance.Kind = topology.SourceLive
		}},

		{id: "RL022", found: true, name: "the GPU's audio kept its driver", set: func(h *topology.Host) {
			dev(h, "0000:06:00.1").Driver = "snd_hda_intel"
		}},
		{id: "RL022", found: true, name: "a drive of the host is in the GPU's group", set: func(h *topology.Host) {
			dev(h, nvme).IOMMUGroup = new(11)
		}},
		{id: "RL022", found: false, name: "the audio has no driver", set: func(h *topology.Host) {
			dev(h, "0000:06:00.1").Driver = ""
		}},
		{id: "RL022", found: false, name: "a bridge on pcieport is in the group", set: func(h *topology.Host) {
			dev(h, "0000:00:01.1").IOMMUGroup = new(10)
		}},
		{id: "RL022", found: false, name: "another vfio driver", set: func(h *topology.Host) {
			dev(h, "0000:06:00.1").Driver = "nvgrace_gpu_vfio_pci"
		}},

		{id: "RL023", found: true, name: "GPU and NIC below one switch", set: func(h *topology.Host) {
			acs(h, topology.ACS{RequestRedirect: true})
		}},
		{id: "RL023", found: true, name: "direct translation without ATS in a device", set: func(h *topology.Host) {
			acs(h, topology.ACS{RequestRedirect: true, DirectTranslated: true})
			dev(h, "0000:0a:00.0").ATS = new(false)
		}},
		{id: "RL023", found: false, name: "translated requests go directly", set: func(h *topology.Host) {
			acs(h, topology.ACS{RequestRedirect: true, DirectTranslated: true})
			dev(h, "0000:0a:00.0").ATS = new(true)
		}},
		{id: "RL023", found: false, name: "ports do not redirect", set: func(h *topology.Host) {
			acs(h, topology.ACS{SourceValidation: true})
		}},
		{id: "RL023", found: false, name: "the GPU is kept for a virtual machine", set: func(h *topology.Host) {
			acs(h, topology.ACS{RequestRedirect: true})
			dev(h, "0000:09:00.0").Driver = "vfio-pci"
		}},
		{id: "RL023", found: false, name: "root ports redirect, which is not on the way inside a switch",
			set: func(h *topology.Host) {
				for _, p := range []string{"0000:00:01.1", "0000:20:03.1", "0000:40:03.1", "0000:60:03.1"} {
					dev(h, p).ACS = &topology.ACS{RequestRedirect: true}
				}
			}},

		{id: "RL024", found: true, name: "override on the command line", set: func(h *topology.Host) {
			withCmdline(h, "quiet pcie_acs_override=downstream,multifunction")
		}},
		{id: "RL024", found: false, name: "another PCI parameter", set: func(h *topology.Host) {
			withCmdline(h, "pci=realloc")
		}},

		{id: "RL025", found: true, name: "NIC of the host", set: func(h *topology.Host) {
			reserve(h, 20, "0x00000000bdf6f000 0x00000000bdf7efff direct")
		}},
		{id: "RL025", found: true, name: "GPU of a VM", set: func(h *topology.Host) {
			reserve(h, 10, "0x00000000bdf6f000 0x00000000bdf7efff direct")
		}},
		{id: "RL025", found: false, name: "relaxable region", set: func(h *topology.Host) {
			reserve(h, 20, "0x00000000bdf6f000 0x00000000bdf7efff direct-relaxable")
		}},
		{id: "RL025", found: false, name: "group of the management controller's screen", set: func(h *topology.Host) {
			reserve(h, 32, "0x00000000bdf6f000 0x00000000bdf7efff direct")
		}},
	}
}

func reserve(h *topology.Host, group int, line string) {
	h.IOMMU.Groups = slices.Concat(h.IOMMU.Groups,
		[]topology.IOMMUGroup{{ID: group, Reserved: []string{line, "0x00000000fee00000 0x00000000feefffff msi"}}})
}
