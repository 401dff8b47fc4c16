package diagnose

import "github.com/rackless/rackless/machine/topology"

func stop(h *topology.Host, name string) { tenant(h, name).State = "shut off" }

func give(h *topology.Host, name, addr string) {
	t := tenant(h, name)
	t.Devices = append(t.Devices, topology.TenantDevice{PCI: address(addr)})
}

func freePages(h *topology.Host, byNode ...uint64) {
	var sum uint64
	for i, n := range byNode {
		h.NUMANodes[i].Hugepages[1].Free = new(n)
		sum += n
	}
	h.Memory.Hugepages[1].Free = new(sum)
}

func tenantResCases() []testCase {
	return []testCase{
		{id: "RL070", found: true, name: "node that does not exist", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes = new(cpus("0,4"))
		}},
		{id: "RL070", found: true, name: "node without memory", set: func(h *topology.Host) {
			h.NUMANodes[2].MemoryBytes = new(uint64(0))
		}},
		{id: "RL070", found: true, name: "more memory than the nodes have", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryBytes, tenant(h, "vm00").MemoryMode = new(uint64(200*gib)), ""
		}},
		{id: "RL070", found: false, name: "enough"},
		{id: "RL070", found: true, name: "a node that does not exist is preferred", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes, tenant(h, "vm00").MemoryMode = new(cpus("4")), "preferred"
		}},
		{id: "RL070", found: true, name: "a cell larger than its node", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2).Cells[1].MemoryBytes = new(uint64(100 * gib))
		}},
		{id: "RL070", found: true, name: "two cells on one node", set: func(h *topology.Host) {
			t := cells(h, "0", "0", own0, own2)
			t.Cells[0].MemoryBytes, t.Cells[1].MemoryBytes = new(uint64(40*gib)), new(uint64(40*gib))
		}},
		{id: "RL070", found: true, name: "not bound, and more than the host has", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryBytes, tenant(h, "vm00").MemoryNodes = new(uint64(900*gib)), nil
			h.Memory.TotalBytes = new(uint64(256 * gib))
		}},
		{id: "RL070", found: false, name: "cells that fit", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2)
		}},
		{id: "RL070", found: false, name: "more than the node that is only preferred", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes, tenant(h, "vm00").MemoryMode = new(cpus("0")), "preferred"
			tenant(h, "vm00").MemoryBytes = new(uint64(100 * gib))
		}},
		{id: "RL070", found: false, name: "nodes of the host are not known", set: func(h *topology.Host) {
			h.NUMANodes = nil
		}},

		{id: "RL071", found: true, name: "CPUs of nodes 0 and 2, memory of node 1", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes = new(cpus("1"))
		}},
		{id: "RL071", found: true, name: "cells the other way round", set: func(h *topology.Host) {
			cells(h, "2", "0", own0, own2)
		}},
		{id: "RL071", found: true, name: "interleaved over a node without its CPUs", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes, tenant(h, "vm00").MemoryMode = new(cpus("0-2")), "interleave"
		}},
		{id: "RL071", found: true, name: "not pinned, with a set elsewhere", set: func(h *topology.Host) {
			t := tenant(h, "vm00")
			t.Pins, t.Floating, t.MemoryNodes = nil, new(cpus("0-7,32-39")), new(cpus("3"))
		}},
		{id: "RL071", found: false, name: "cells where their CPUs are", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2)
		}},
		{id: "RL071", found: false, name: "interleaved over the nodes of its CPUs", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryMode = "interleave"
		}},
		{id: "RL071", found: false, name: "memory of one of the nodes", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes = new(cpus("2"))
		}},
		{id: "RL071", found: false, name: "not bound", set: func(h *topology.Host) {
			tenant(h, "vm00").MemoryNodes = nil
		}},

		{id: "RL072", found: true, name: "GPU of node 1 for CPUs of nodes 0 and 2", set: func(h *topology.Host) {
			give(h, "vm00", gpu1)
		}},
		{id: "RL072", found: true, name: "virtual function of a far NIC", set: func(h *topology.Host) {
			vf := *dev(h, nic1)
			vf.Address, vf.PF, vf.SRIOV, vf.Driver = address("0000:61:00.2"), new(address(nic1)), nil, "vfio-pci"
			h.PCI = append(h.PCI, vf)
			give(h, "vm00", "0000:61:00.2")
		}},
		{id: "RL072", found: false, name: "near"},
		{id: "RL072", found: false, name: "a far drive", set: func(h *topology.Host) { give(h, "vm00", nvme) }},
		{id: "RL072", found: false, name: "not pinned", set: func(h *topology.Host) {
			give(h, "vm00", gpu1)
			tenant(h, "vm00").Pins = nil
		}},

		{id: "RL073", found: true, name: "free pages are on other nodes", set: func(h *topology.Host) {
			stop(h, "vm00")
			freePages(h, 4, 16, 4, 16)
		}},
		{id: "RL073", found: true, name: "default size, not bound", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Hugepages, tenant(h, "vm00").MemoryNodes = new(uint64(0)), nil
		}},
		{id: "RL073", found: true, name: "no pool of the size", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Hugepages = new(uint64(16 << 20))
		}},
		{id: "RL073", found: true, name: "of a cell on its node", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2)
			stop(h, "vm00")
			freePages(h, 24, 0, 8, 0)
		}},
		{id: "RL073", found: false, name: "of each cell on its node", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2)
			stop(h, "vm00")
			freePages(h, 16, 0, 16, 0)
		}},
		{id: "RL073", found: false, name: "its start sets them aside", set: func(h *topology.Host) {
			stop(h, "vm00")
			freePages(h, 0, 0, 0, 0)
			tenant(h, "vm00").PagesAtStart = true
		}},
		{id: "RL073", found: false, name: "enough on its nodes", set: func(h *topology.Host) {
			stop(h, "vm00")
			freePages(h, 16, 0, 16, 0)
		}},
		{id: "RL073", found: true, name: "less than a page", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").MemoryBytes = new(uint64(768 << 20))
		}},
		{id: "RL073", found: false, name: "it runs, and has them"},
		{id: "RL073", found: false, name: "free pages are not known", set: func(h *topology.Host) {
			stop(h, "vm00")
			for i := range h.NUMANodes {
				h.NUMANodes[i].Hugepages[1].Free = nil
			}
		}},
		{id: "RL073", found: false, name: "only the default size was read", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").MemoryNodes = nil
			h.Memory.Hugepages = h.Memory.Hugepages[:1]
			for i := range h.NUMANodes {
				h.NUMANodes[i].Hugepages = nil
			}
		}},
		{id: "RL073", found: false, name: "ordinary memory", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Hugepages = nil
		}},

		{id: "RL074", found: true, name: "both run", set: func(h *topology.Host) { give(h, "vm00", gpu1) }},
		{id: "RL074", found: true, name: "one is shut off", set: func(h *topology.Host) {
			give(h, "vm00", gpu1)
			stop(h, "vm00")
		}},
		{id: "RL074", found: false, name: "a device each"},
		{id: "RL074", found: false, name: "named twice by the same VM", set: func(h *topology.Host) {
			give(h, "vm00", gpu0)
		}},

		{id: "RL075", found: true, name: "the disk of the host", set: func(h *topology.Host) {
			give(h, "vm00", nvme)
			stop(h, "vm00")
		}},
		{id: "RL075", found: true, name: "the default route of the host", set: func(h *topology.Host) {
			give(h, "vm00", "0000:01:00.0")
			stop(h, "vm00")
		}},
		{id: "RL075", found: true, name: "the screen of the host", set: func(h *topology.Host) {
			stop(h, "vm00")
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = new(true), "nvidia"
		}},
		{id: "RL075", found: true, name: "the only screen", set: func(h *topology.Host) {
			without(h, "0000:02:")
			without(h, "0000:21:")
			stop(h, "vm00")
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = nil, "nvidia"
		}},
		{id: "RL075", found: false, name: "the only screen of an excerpt", set: func(h *topology.Host) {
			without(h, "0000:02:")
			without(h, "0000:21:")
			stop(h, "vm00")
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = nil, "nvidia"
			h.Provenance.Kind = topology.SourceTexts
		}},
		{id: "RL075", found: false, name: "a screen that was given up", set: func(h *topology.Host) {
			dev(h, gpu0).BootVGA = new(true)
		}},
		{id: "RL075", found: false, name: "one of several screens", set: func(h *topology.Host) {
			stop(h, "vm00")
			dev(h, gpu0).BootVGA, dev(h, gpu0).Driver = nil, "nvidia"
		}},
		{id: "RL075", found: false, name: "a disk without file systems of the host", set: func(h *topology.Host) {
			give(h, "vm00", nvme)
			h.Storage[0].Mounts = nil
		}},

		{id: "RL078", found: true, name: "a slot that is empty", set: func(h *topology.Host) {
			give(h, "vm00", "0000:99:00.0")
		}},
		{id: "RL078", found: false, name: "all are there"},
		{id: "RL078", found: false, name: "not all functions were listed", set: func(h *topology.Host) {
			give(h, "vm00", "0000:99:00.0")
			h.Provenance.Kind = topology.SourceHwloc
		}},

		{id: "RL079", found: true, name: "the audio function stays with the host", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Devices = []topology.TenantDevice{{PCI: address(gpu0), Managed: true}}
			dev(h, gpu0).Driver, dev(h, "0000:06:00.1").Driver = "nvidia", "snd_hda_intel"
		}},
		{id: "RL079", found: false, name: "all functions go with it", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Devices = []topology.TenantDevice{{PCI: address(gpu0), Whole: true}}
			dev(h, gpu0).Driver, dev(h, "0000:06:00.1").Driver = "nvidia", "snd_hda_intel"
		}},
		{id: "RL079", found: false, name: "no driver works on the other", set: func(h *topology.Host) {
			stop(h, "vm00")
			tenant(h, "vm00").Devices = []topology.TenantDevice{{PCI: address(gpu0), Managed: true}}
			dev(h, gpu0).Driver, dev(h, "0000:06:00.1").Driver = "nvidia", ""
		}},

		{id: "RL076", found: true, name: "persistence mode is on", set: func(h *topology.Host) {
			stop(h, "vm00")
			dev(h, gpu0).Driver = "nvidia"
			h.GPUs[0].PersistMode = new(true)
		}},
		{id: "RL076", found: false, name: "persistence mode is off", set: func(h *topology.Host) {
			stop(h, "vm00")
			dev(h, gpu0).Driver = "nvidia"
			h.GPUs[0].PersistMode = new(false)
		}},
		{id: "RL076", found: false, name: "no VM has the GPU", set: func(h *topology.Host) {
			h.Tenants = nil
			dev(h, gpu0).Driver = "nvidia"
			h.GPUs[0].PersistMode = new(true)
		}},
		{id: "RL076", found: false, name: "on vfio-pci already", set: func(h *topology.Host) {
			stop(h, "vm00")
			h.GPUs[0].PersistMode = new(true)
		}},
	}
}
