package diagnose

import "github.com/rackless/rackless/machine/topology"

// hybrid makes the last eight cores efficiency cores with one thread, and pins a tenant in order.
func hybrid(h *topology.Host, on string) {
	for i := range h.Cores {
		c := &h.Cores[i]
		c.Kind = topology.KindPerformance
		if i >= 24 {
			c.Kind, c.CPUs = topology.KindEfficiency, topology.CPUs(i)
		}
	}
	h.CPUs.Isolated, h.CPUs.NoHzFull, h.Kernel.Cmdline = nil, nil, nil
	t := topology.Tenant{Name: "vm", State: "running", GuestThreads: 2}
	for cpu := range cpus(on).All() {
		t.Pins = append(t.Pins, topology.Pin{VCPU: t.VCPUs, CPUs: topology.CPUs(cpu)})
		t.VCPUs++
	}
	h.Tenants = []topology.Tenant{t}
}

func sockets(model string) func(*topology.Host) {
	return func(h *topology.Host) {
		one := h.NUMANodes[0]
		one.CPUs = cpus("0-63")
		h.NUMANodes = []topology.NUMANode{one}
		for i := range h.PCI {
			h.PCI[i].NUMANode = new(0)
		}
		h.System.CPUModel = model
		h.Packages = []topology.Package{{ID: 0, CPUs: cpus("0-15,32-47")}, {ID: 1, CPUs: cpus("16-31,48-63")}}
	}
}

// function is known by its name alone.
func function(name string, carrier *bool, kind string) func(*topology.Host) {
	return func(h *topology.Host) {
		h.Provenance.Kind = kind
		h.NICs = append(h.NICs, topology.NIC{Name: name, Ports: []topology.Netdev{{Name: name, State: "down",
			Carrier: carrier}}})
	}
}

func shapeCases() []testCase {
	bothPorts := func(gbps float64) func(*topology.Host) {
		return func(h *topology.Host) {
			for _, a := range []string{nic0, "0000:41:00.1"} {
				p := port1(h, a)
				p.State, p.RateGbps = "ACTIVE", &gbps
			}
		}
	}
	return []testCase{
		{id: "RL006", found: true, name: "two ports of 50 Gb/s behind Gen3 x8", set: bothPorts(50)},
		{id: "RL006", found: false, name: "two ports of 25 Gb/s behind Gen3 x8", set: bothPorts(25)},
		{id: "RL006", found: false, name: "one port of 100 Gb/s", set: func(h *topology.Host) {
			port1(h, nic0).RateGbps = new(100.0)
		}},
		{id: "RL006", found: false, name: "a narrow link, which is RL002", set: func(h *topology.Host) {
			bothPorts(50)(h)
			train(h, nic0, 8, 4)
		}},

		{id: "RL015", found: true, name: "interleaved", set: sockets("AMD EPYC 7551 32-Core Processor")},
		{id: "RL015", found: true, name: "numa=off", set: func(h *topology.Host) {
			sockets("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz")(h)
			withCmdline(h, "quiet numa=off")
		}},
		{id: "RL015", found: false, name: "a common bus",
			set: sockets("Intel(R) Xeon(R) CPU           E5345  @ 2.33GHz")},
		{id: "RL015", found: false, name: "a virtual machine", set: func(h *topology.Host) {
			sockets("AMD EPYC 7551 32-Core Processor")(h)
			h.System.InVM = new(true)
		}},
		{id: "RL015", found: false, name: "a text that lists one node of two", set: func(h *topology.Host) {
			sockets("AMD EPYC 7551 32-Core Processor")(h)
			h.NodeCount = new(2)
		}},

		{id: "RL066", found: true, name: "on two efficiency cores", set: func(h *topology.Host) { hybrid(h, "24-27") }},
		{id: "RL088", found: true, name: "on cores of both kinds", set: func(h *topology.Host) { hybrid(h, "22-25") }},
		{id: "RL088", found: false, name: "on efficiency cores only",
			set: func(h *topology.Host) { hybrid(h, "24-27") }},
		{id: "RL088", found: false, name: "one pinned to both kinds", set: func(h *topology.Host) {
			hybrid(h, "22-23")
			pin(h, "vm", 0, "22-25")
		}},

		{id: "RL098", found: true, name: "InfiniBand by the name", set: func(h *topology.Host) {
			function("ibp65s0v7", nil, topology.SourceTexts)(h)
			nic := h.NICs[0]
			nic.Ports = []topology.Netdev{{Name: "ibp65s0", State: "up"}}
			h.NICs[0] = nic
		}},
		{id: "RL098", found: true, name: "Ethernet without a carrier",
			set: function("enp65s0f0v3", new(false), topology.SourceLive)},
		{id: "RL098", found: false, name: "Ethernet that is not switched on",
			set: function("enp65s0f0v3", nil, topology.SourceLive)},
		{id: "RL098", found: false, name: "the physical function is down too",
			set: function("enp65s0f1v3", new(false), topology.SourceLive)},
		{id: "RL098", found: false, name: "another device",
			set: function("enp66s0f0v3", new(false), topology.SourceLive)},

		{id: "RL063", found: false, name: "pins in a description whose end is missing", set: func(h *topology.Host) {
			t := tenant(h, "vm00")
			t.Pins, t.Cut = t.Pins[:4], true
		}},
		{id: "RL064", found: false, name: "emulatorpin may be in the missing end", set: func(h *topology.Host) {
			t := tenant(h, "vm00")
			t.EmulatorCPUs, t.Cut = nil, true
		}},
		{id: "RL067", found: false, name: "cells may be in the missing end", set: func(h *topology.Host) {
			t := tenant(h, "vm00")
			t.GuestNodes, t.Cut = new(0), true
		}},

		{id: "RL011", found: true, name: "a port that the path carries", set: func(h *topology.Host) {
			for i := range h.NICs {
				for j := range h.NICs[i].Ports {
					h.NICs[i].Ports[j].SpeedMbps = new(int64(10_000))
				}
			}
		}},
		{id: "RL011", found: true, name: "a module of a board", set: func(h *topology.Host) {
			dev(h, gpu0).DeviceName = "GH100 [H100 SXM5 80GB]"
		}},
		{id: "RL012", found: true, name: "GPUs with more NVLinks than a bridge has", from: func() *topology.Host {
			h := matrix([]int{0, 0}, topology.PathNVLink)()
			h.Reported[0].Links = 18
			h.NICs = []topology.NIC{{Name: "NIC0", NUMANode: new(0)}}
			for i := range h.GPUs {
				h.Reported = append(h.Reported, topology.Path{A: h.GPUs[i].Name, B: "NIC0", Class: topology.PathNODE})
			}
			return h
		}},
		{id: "RL012", found: true, name: "another root of the NIC's own node", set: func(h *topology.Host) {
			dev(h, nic0).NUMANode, dev(h, "0000:41:00.1").NUMANode = new(0), new(0)
			dev(h, "0000:40:03.1").NUMANode = new(0)
		}},
	}
}
