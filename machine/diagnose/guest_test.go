package diagnose

import "github.com/rackless/rackless/machine/topology"

func guest(h *topology.Host, threads, cells, switches int) *topology.Tenant {
	t := tenant(h, "vm00")
	t.GuestThreads, t.GuestNodes, t.GuestSwitches = threads, new(cells), new(switches)
	return t
}

func pinTo(t *topology.Tenant, list ...int) {
	t.Pins, t.VCPUs = nil, len(list)
	for i, c := range list {
		t.Pins = append(t.Pins, topology.Pin{VCPU: i, CPUs: topology.CPUs(c)})
	}
}

// own0 and own2 are vm00's virtual CPUs on nodes 0 and 2.
const own0, own2 = "0-5,14-19", "6-13,20-27"

func cells(h *topology.Host, first, second string, vcpus ...string) *topology.Tenant {
	t := guest(h, 2, 2, 0)
	t.Cells = []topology.TenantCell{
		{VCPUs: cpus(vcpus[0]), MemoryBytes: new(uint64(16 * gib)), MemoryNodes: new(cpus(first)),
			Hugepages: new(uint64(gib))},
		{VCPUs: cpus(vcpus[1]), MemoryBytes: new(uint64(16 * gib)), MemoryNodes: new(cpus(second)),
			Hugepages: new(uint64(gib))}}
	return t
}

// belowSwitch gives vm00 GPU 0 and a port of NIC 0 below redirecting ports.
func belowSwitch(h *topology.Host) {
	pcieSwitch(h, 8, 16)
	for _, at := range [][2]string{{gpu0, "0000:08:00.0"}, {nic0, "0000:08:01.0"}} {
		dev(h, at[0]).Parent, dev(h, at[0]).NUMANode = new(address(at[1])), new(0)
		dev(h, at[0]).Driver = "vfio-pci"
		dev(h, at[1]).ACS = &topology.ACS{RequestRedirect: true}
	}
	t := tenant(h, "vm00")
	t.Devices = append(t.Devices, topology.TenantDevice{PCI: address(nic0)})
}

func guestCases() []testCase {
	return []testCase{
		{id: "RL066", found: true, name: "CPUs in a row, siblings 32 apart", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 2, 3, 34, 35)
		}},
		{id: "RL066", found: true, name: "siblings of its CPUs are the emulator's", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 32, 33, 34, 35)
		}},
		{id: "RL066", found: false, name: "sibling beside sibling", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 2, 34, 3, 35)
		}},
		{id: "RL066", found: false, name: "siblings the other way round", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 34, 2, 35, 3)
		}},
		{id: "RL066", found: false, name: "a guest of one thread a core", set: func(h *topology.Host) {
			pinTo(guest(h, 1, 1, 0), 2, 3, 4, 5)
		}},
		{id: "RL066", found: false, name: "a host without SMT", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 2, 3)
			for i := range h.Cores {
				h.Cores[i].CPUs = topology.CPUs(h.Cores[i].CPUs.Min())
			}
		}},

		{id: "RL066", found: true, name: "the fourth thread of a core is another's", set: func(h *topology.Host) {
			pinTo(guest(h, 4, 1, 0), 2, 34, 3, 35)
			for i := range h.Cores {
				if h.Cores[i].CPUs.Contains(2) {
					h.Cores[i].CPUs = cpus("2-3,34")
				}
			}
		}},

		{id: "RL069", found: true, name: "siblings are cores of the guest", set: func(h *topology.Host) {
			pinTo(guest(h, 0, 1, 0), 2, 34, 3, 35)
		}},
		{id: "RL069", found: false, name: "a thread of each core", set: func(h *topology.Host) {
			pinTo(guest(h, 1, 1, 0), 2, 3, 4, 5)
		}},
		{id: "RL069", found: false, name: "the guest knows", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 1, 0), 2, 34, 3, 35)
		}},
		{id: "RL069", found: false, name: "it is not told what the guest sees", set: func(h *topology.Host) {
			pinTo(tenant(h, "vm00"), 2, 34, 3, 35)
		}},

		{id: "RL067", found: true, name: "pinned to two nodes, no cells", set: func(h *topology.Host) {
			guest(h, 2, 0, 0)
		}},
		{id: "RL067", found: true, name: "not pinned, with devices of two nodes", set: func(h *topology.Host) {
			t := guest(h, 2, 0, 0)
			t.Pins, t.MemoryNodes = nil, nil
			t.Devices = append(t.Devices, topology.TenantDevice{PCI: address(nic0)})
		}},
		{id: "RL067", found: false, name: "a cell for each node", set: func(h *topology.Host) { guest(h, 2, 2, 0) }},
		{id: "RL067", found: true, name: "a cell on two nodes", set: func(h *topology.Host) {
			cells(h, "0,2", "0,2", "0-14", "15-27")
		}},
		{id: "RL087", found: true, name: "cells, and devices of two nodes on one bus", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2).GuestExpanders = new(0)
			give(h, "vm00", nic0)
		}},
		{id: "RL087", found: false, name: "cells, and a bus for the devices of each", set: func(h *topology.Host) {
			cells(h, "0", "2", own0, own2).GuestExpanders = new(2)
			give(h, "vm00", nic0)
		}},
		{id: "RL067", found: true, name: "a set over two nodes, and larger than one", set: func(h *topology.Host) {
			t := guest(h, 2, 0, 0)
			t.VCPUs, t.Pins, t.Floating = 20, nil, new(cpus("0-15,32-47"))
		}},
		{id: "RL067", found: false, name: "a set over two nodes, and room on one", set: func(h *topology.Host) {
			t := guest(h, 2, 0, 0)
			t.VCPUs, t.Pins, t.Floating = 4, nil, new(cpus("0-15,32-47"))
		}},
		{id: "RL067", found: false, name: "on one node", set: func(h *topology.Host) {
			pinTo(guest(h, 2, 0, 0), 2, 34, 3, 35)
		}},
		{id: "RL067", found: false, name: "small, not pinned", set: func(h *topology.Host) {
			t := guest(h, 2, 0, 0)
			t.VCPUs, t.Pins, t.MemoryNodes = 4, nil, nil
		}},

		{id: "RL077", found: true, name: "GPU and NIC of one switch at root ports", set: func(h *topology.Host) {
			belowSwitch(h)
			guest(h, 2, 2, 0)
		}},
		{id: "RL077", found: false, name: "a switch in the guest", set: func(h *topology.Host) {
			belowSwitch(h)
			guest(h, 2, 2, 1)
		}},
		{id: "RL077", found: false, name: "GPU and NIC far apart on the host", set: func(h *topology.Host) {
			t := guest(h, 2, 2, 0)
			t.Devices = append(t.Devices, topology.TenantDevice{PCI: address(nic0)})
		}},

		{id: "RL026", found: true, name: "GPU and NIC of one guest below ports that redirect", set: belowSwitch},
		{id: "RL026", found: false, name: "with ATS and Direct Translated P2P", set: func(h *topology.Host) {
			belowSwitch(h)
			dev(h, nic0).ATS = new(true)
			for _, p := range []string{"0000:08:00.0", "0000:08:01.0"} {
				dev(h, p).ACS.DirectTranslated = true
			}
		}},
		{id: "RL026", found: false, name: "the NIC is another VM's", set: func(h *topology.Host) {
			belowSwitch(h)
			t := tenant(h, "vm00")
			t.Devices = t.Devices[:len(t.Devices)-1]
		}},

		{id: "RL026", found: true, name: "GPU and NIC that are set aside for guests", set: func(h *topology.Host) {
			belowSwitch(h)
			h.Tenants = nil
		}},
		{id: "RL026", found: false, name: "the NIC stays with the host", set: func(h *topology.Host) {
			belowSwitch(h)
			h.Tenants = nil
			dev(h, nic0).Driver = "mlx5_core"
		}},

		{id: "RL057", found: true, name: "nohz_full alone", set: func(h *topology.Host) {
			isolate(h, "")
			withCmdline(h, "nohz_full=2-29,34-61 rcu_nocbs=2-29,34-61")
		}},
		{id: "RL057", found: true, name: "more of nohz_full than is isolated", set: func(h *topology.Host) {
			isolate(h, "2-7")
			withCmdline(h, "isolcpus=2-7 nohz_full=2-9")
		}},
		{id: "RL057", found: false, name: "both the same"},
		{id: "RL057", found: false, name: "isolcpus that is not in force is RL052", set: func(h *topology.Host) {
			isolate(h, "")
			withCmdline(h, "isolcpus=2-9 nohz_full=2-9")
		}},
	}
}

func twoCards(h *topology.Host, model string) {
	nvidia(h)
	for _, g := range []string{gpu0, gpu1} {
		dev(h, g).DeviceName = model
	}
}

func matrix(nodes []int, cells ...topology.PathClass) func() *topology.Host {
	return func() *topology.Host {
		h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTopo}}
		id, cells := []string{"GPU0", "GPU1", "GPU2", "GPU3"}[:len(nodes)], cells // fresh copies for each host
		for i, n := range nodes {
			h.GPUs = append(h.GPUs, topology.GPU{Name: id[i], NUMANode: new(n)})
			if h.NUMANode(n) == nil {
				h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n})
			}
			for j := i + 1; j < len(nodes); j++ {
				h.Reported = append(h.Reported, topology.Path{A: id[i], B: id[j], Class: cells[0]})
				cells = cells[1:]
			}
		}
		return h
	}
}

func desktop(cpu string) func(*topology.Host) {
	return func(h *topology.Host) {
		twoCards(h, "GA102GL [RTX A6000]")
		h.System.CPUModel = cpu
		for i := range h.PCI {
			h.PCI[i].Root, h.PCI[i].NUMANode = "pci0000:00", new(0)
		}
	}
}

func pathCases() []testCase {
	const nv, sys, node = topology.PathNVLink, topology.PathSYS, topology.PathNODE
	return []testCase{
		{id: "RL014", found: true, name: "two GPUs of one node", from: matrix([]int{1, 1}, sys)},
		{id: "RL014", found: false, name: "two GPUs of two nodes", from: matrix([]int{0, 1}, sys)},
		{id: "RL014", found: false, name: "NODE on one node", from: matrix([]int{1, 1}, node)},

		{id: "RL097", found: true, name: "two lanes of HDR", set: func(h *topology.Host) {
			p := port1(h, nic0)
			p.LinkLayer, p.RateGbps, p.Lanes = "InfiniBand", new(100.0), 2
		}},
		{id: "RL097", found: false, name: "four lanes of EDR", set: func(h *topology.Host) {
			p := port1(h, nic0)
			p.LinkLayer, p.RateGbps, p.Lanes = "InfiniBand", new(100.0), 4
		}},

		{id: "RL104", found: true, name: "two cards of the host", set: func(h *topology.Host) {
			twoCards(h, "AD102 [GeForce RTX 4090]")
		}},
		{id: "RL104", found: true, name: "two cards of one VM", set: func(h *topology.Host) {
			t := tenant(h, "vm00")
			t.Devices = append(t.Devices, topology.TenantDevice{PCI: address(gpu1)})
		}},
		{id: "RL104", found: false, name: "a card for each VM"},
		{id: "RL104", found: false, name: "cards for workstations", set: func(h *topology.Host) {
			twoCards(h, "AD102GL [RTX 6000 Ada Generation]")
		}},
		{id: "RL104", found: false, name: "cards of before Turing", set: func(h *topology.Host) {
			twoCards(h, "GP102 [GeForce GTX 1080 Ti]")
		}},
		{id: "RL104", found: false, name: "NVLink between them", set: func(h *topology.Host) {
			twoCards(h, "GA102 [GeForce RTX 3090]")
			h.Reported = []topology.Path{{A: gpu0, B: gpu1, Class: nv, Links: 4}}
		}},

		{id: "RL105", found: true, name: "one of four", from: matrix([]int{0, 0, 1, 1}, nv, nv, sys, nv, sys, sys)},
		{id: "RL105", found: true, name: "one beside a pair", from: matrix([]int{0, 0, 0}, nv, node, node)},
		{id: "RL105", found: false, name: "all of them", from: matrix([]int{0, 0, 1}, nv, nv, nv)},
		{id: "RL105", found: false, name: "none of them", from: matrix([]int{0, 0, 1}, node, sys, sys)},
		{id: "RL105", found: false, name: "two pairs", from: matrix([]int{0, 0, 1, 1}, nv, sys, sys, sys, sys, nv)},

		{id: "RL106", found: true, name: "a root port that carries out none", set: func(h *topology.Host) {
			amdCard(h, 8, 16, "amdgpu")
			dev(h, "0000:20:03.1").NoAtomics = true
		}},
		{id: "RL106", found: true, name: "a card that does without", set: func(h *topology.Host) {
			amdCard(h, 8, 16, "amdgpu")
			dev(h, "0000:20:03.1").NoAtomics = true
			dev(h, "0000:25:00.0").DeviceName = "Vega 20 [Instinct MI50]"
		}},
		{id: "RL106", found: false, name: "ports that pass them", set: func(h *topology.Host) {
			amdCard(h, 8, 16, "amdgpu")
		}},
		{id: "RL106", found: false, name: "a GPU of NVIDIA", set: func(h *topology.Host) {
			dev(h, "0000:20:03.1").NoAtomics = true
		}},

		{id: "RL107", found: true, name: "a GPU in a guest without room", set: func(h *topology.Host) {
			h.System.InVM = new(true)
			dev(h, gpu0).BARs[1].Unassigned = true
		}},
		{id: "RL107", found: false, name: "a ROM without an address", set: func(h *topology.Host) {
			dev(h, gpu0).BARs = append(dev(h, gpu0).BARs, topology.BAR{Index: 6, Unassigned: true})
		}},

		{id: "RL108", found: true, name: "a Core processor", set: desktop("12th Gen Intel(R) Core(TM) i9-12900K")},
		{id: "RL108", found: false, name: "a server processor",
			set: desktop("Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz")},
		{id: "RL108", found: false, name: "a processor of AMD", set: desktop("AMD Ryzen 9 7950X 16-Core Processor")},
	}
}
