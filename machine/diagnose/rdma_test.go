package diagnose

import (
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

func keepGIDs(h *topology.Host, keep func(topology.GID) bool) {
	p := port1(h, nic0)
	p.GIDs = slices.DeleteFunc(p.GIDs, func(g topology.GID) bool { return !keep(g) })
}

func vf(h *topology.Host, guid string, p topology.RDMAPort) {
	f := *dev(h, nic0)
	f.Address, f.PF, f.SRIOV, f.IOMMUGroup = address("0000:41:00.2"), new(address(nic0)), nil, new(40)
	h.PCI = append(h.PCI, f)
	h.NICs = append(h.NICs, topology.NIC{Address: new(f.Address), PF: f.PF,
		Devices: []topology.RDMADevice{{Name: "mlx5_4", NodeType: "1: CA", NodeGUID: guid,
			Ports: []topology.RDMAPort{p}}}})
}

func flow(h *topology.Host, q *topology.QoS, counters map[string]uint64) {
	d := &nicAt(h, nic0).Ports[0]
	d.QoS, d.Flow = q, counters
}

func nvidia(h *topology.Host) {
	h.Tenants = nil
	for _, a := range []string{gpu0, gpu1} {
		dev(h, a).Driver, dev(h, a).DeviceName = "nvidia", "GA102GL [RTX A6000]"
	}
}

func rdmaCases() []testCase {
	return []testCase{
		{id: "RL090", found: true, name: "no v2 in the table", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Type != "RoCE v2" })
		}},
		{id: "RL090", found: false, name: "both versions"},
		{id: "RL090", found: false, name: "the type of an entry is not known", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Type != "RoCE v2" })
			port1(h, nic0).GIDs[0].Type = ""
		}},
		{id: "RL090", found: false, name: "InfiniBand, whose GIDs have the same type", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Type != "RoCE v2" })
			port1(h, nic0).LinkLayer = "InfiniBand"
		}},

		{id: "RL091", found: true, name: "link-local only", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Index < 2 })
		}},
		{id: "RL091", found: false, name: "IPv4"},
		{id: "RL091", found: false, name: "global IPv6", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Index < 2 })
			port1(h, nic0).GIDs[1].GID = "2001:0db8:0000:0000:0000:0000:0000:0001"
		}},
		{id: "RL091", found: false, name: "a GID that is no address", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Index < 2 })
			port1(h, nic0).GIDs[1].GID = "removed"
		}},
		{id: "RL091", found: false, name: "port that is down", set: func(h *topology.Host) {
			keepGIDs(h, func(g topology.GID) bool { return g.Index < 2 })
			port1(h, nic0).State = "DOWN"
		}},

		{id: "RL092", found: true, name: "carrier and no RDMA", set: func(h *topology.Host) {
			port1(h, nic0).State, port1(h, nic0).PhysState = "DOWN", "Disabled"
		}},
		{id: "RL092", found: true, name: "physical link up, network device not known", set: func(h *topology.Host) {
			port1(h, nic0).State = "DOWN"
			nicAt(h, nic0).Ports = nil
		}},
		{id: "RL092", found: false, name: "no cable"},
		{id: "RL092", found: false, name: "the state is not known", set: func(h *topology.Host) {
			port1(h, nic0).State = ""
		}},

		{id: "RL093", found: true, name: "INIT", set: func(h *topology.Host) {
			port1(h, nic0).LinkLayer, port1(h, nic0).State = "InfiniBand", "INIT"
		}},
		{id: "RL093", found: true, name: "virtual function down below an active port", set: func(h *topology.Host) {
			port1(h, nic0).LinkLayer = "InfiniBand"
			vf(h, "0011:2233:4455:6677", topology.RDMAPort{Number: 1, State: "DOWN", LinkLayer: "InfiniBand"})
		}},
		{id: "RL093", found: false, name: "active", set: func(h *topology.Host) {
			port1(h, nic0).LinkLayer = "InfiniBand"
		}},
		{id: "RL093", found: false, name: "no cable", set: func(h *topology.Host) {
			p := port1(h, "0000:41:00.1")
			p.LinkLayer, p.PhysState = "InfiniBand", "Polling"
		}},

		{id: "RL094", found: true, name: "zero", set: func(h *topology.Host) {
			vf(h, "0000:0000:0000:0000", topology.RDMAPort{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet"})
		}},
		{id: "RL094", found: false, name: "set", set: func(h *topology.Host) {
			vf(h, "0011:2233:4455:6677", topology.RDMAPort{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet"})
		}},
		{id: "RL094", found: false, name: "not known, as in a snapshot without identifiers",
			set: func(h *topology.Host) {
				vf(h, "", topology.RDMAPort{Number: 1})
			}},
		{id: "RL094", found: true, name: "zero in a text of ibv_devinfo, and no subnet manager is asked for",
			from: func() *topology.Host {
				return &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts},
					NICs: []topology.NIC{{
						Name: "mlx5_2", RDMA: []string{"mlx5_2"}, Devices: []topology.RDMADevice{{Name: "mlx5_2",
							NodeGUID: "0000:0000:0000:0000", Ports: []topology.RDMAPort{{Number: 1, State: "INIT",
								LinkLayer: "InfiniBand"}}}}}}}
			}},
		{id: "RL094", found: false, name: "zero of EFA, which has none", from: func() *topology.Host {
			return &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts}, NICs: []topology.NIC{{
				Name: "efa_0", RDMA: []string{"efa_0"}, Devices: []topology.RDMADevice{{Name: "efa_0",
					NodeGUID: "0000:0000:0000:0000", NodeType: "7: unspecified"}}}}}
		}},
		{id: "RL094", found: false, name: "zero of a physical function", set: func(h *topology.Host) {
			nicAt(h, nic0).Devices[0].NodeGUID = "0000:0000:0000:0000"
		}},

		{id: "RL095", found: true, name: "symbol errors and lost packets", set: func(h *topology.Host) {
			port1(h, nic0).Counters = map[string]uint64{"symbol_error": 12, "out_of_sequence": 3, "link_downed": 2}
		}},
		{id: "RL095", found: true, name: "what ethtool counts at a port", set: func(h *topology.Host) {
			nicAt(h, nic0).Ports[0].Counters = map[string]uint64{"rx_out_of_buffer": 7, "rx_prio3_discards": 3}
		}},
		{id: "RL095", found: false, name: "what programs drop", set: func(h *topology.Host) {
			nicAt(h, nic0).Ports[0].Counters = map[string]uint64{"rx_xdp_drop": 7, "tx_queue_dropped": 3}
		}},
		{id: "RL095", found: false, name: "the link went down", set: func(h *topology.Host) {
			port1(h, nic0).Counters = map[string]uint64{"link_downed": 2}
		}},
		{id: "RL095", found: false, name: "congestion was marked", set: func(h *topology.Host) {
			port1(h, nic0).Counters = map[string]uint64{"np_cnp_sent": 200, "np_ecn_marked_roce_packets": 7,
				"roce_slow_restart": 1}
		}},

		{id: "RL099", found: true, name: "trust pcp, PFC on 3, drops, pauses and losses", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "pcp", PFC: []int{3}, Buffers: make([]int, 8)}, map[string]uint64{
				"rx_prio0_pause": 148213, "tx_prio3_pause": 0,
				"rx_prio0_buf_discard": 88123, "rx_prio3_buf_discard": 5121,
				"tx_pause_storm_error_events": 3})
			nicAt(h, nic0).Ports[0].Counters = map[string]uint64{"rx_discards_phy": 93244}
			p := port1(h, nic0)
			p.Counters = map[string]uint64{"out_of_sequence": 35121, "packet_seq_err": 9912}
			p.Flow, p.TOS = map[string]uint64{"np_cnp_sent": 0, "rp_cnp_handled": 0}, new(0)
		}},
		{id: "RL095", found: false, name: "counters of RL099", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "pcp", PFC: []int{3}}, nil)
			port1(h, nic0).Counters = map[string]uint64{"out_of_sequence": 35121}
		}},
		{id: "RL099", found: true, name: "DSCP 26 is mapped to another priority", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "dscp", PFC: []int{3}, DSCP: map[int]int{26: 2}}, nil)
			port1(h, nic0).TOS = new(106)
		}},
		{id: "RL099", found: true, name: "all bytes in priority 0, and PFC on 3", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "dscp", PFC: []int{3}}, map[string]uint64{"rx_prio0_bytes": 900,
				"rx_prio3_bytes": 0})
		}},
		{id: "RL099", found: true, name: "all bytes in priority 0", set: func(h *topology.Host) {
			flow(h, nil, map[string]uint64{"rx_prio0_bytes": 900, "tx_prio0_bytes": 7, "rx_prio3_bytes": 0})
		}},
		{id: "RL099", found: true, name: "trust pcp and PFC on 3, where packets may have a tag",
			set: func(h *topology.Host) { flow(h, &topology.QoS{Trust: "pcp", PFC: []int{3}}, nil) }},
		{id: "RL099", found: false, name: "DSCP 26 is in priority 3, which has PFC", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "dscp", PFC: []int{3}}, map[string]uint64{"rx_prio3_bytes": 900,
				"rx_prio0_bytes": 300, "rx_prio3_pause": 12})
			port1(h, nic0).TOS = new(106)
		}},
		{id: "RL099", found: false, name: "no PFC and no loss", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "pcp", PFC: []int{}}, map[string]uint64{"rx_prio0_pause": 0})
		}},
		{id: "RL099", found: false, name: "the trust is not known", set: func(h *topology.Host) {
			flow(h, &topology.QoS{PFC: []int{3}}, nil)
		}},
		{id: "RL099", found: true, name: "all bytes in priority 0 of a port whose RDMA is not told",
			set: func(h *topology.Host) {
				nicAt(h, nic0).Devices = nil
				flow(h, nil, map[string]uint64{"rx_prio0_bytes": 900, "rx_prio0_discards": 7, "rx_prio3_bytes": 0})
			}},
		{id: "RL099", found: false, name: "drops of a port of Ethernet", set: func(h *topology.Host) {
			nicAt(h, nic0).Devices = nil
			flow(h, nil, map[string]uint64{"rx_prio0_bytes": 900, "rx_prio0_discards": 7, "rx_prio3_bytes": 0,
				"rx_vport_rdma_unicast_bytes": 0})
		}},
		{id: "RL099", found: false, name: "InfiniBand", set: func(h *topology.Host) {
			flow(h, &topology.QoS{Trust: "pcp", PFC: []int{3}}, nil)
			port1(h, nic0).LinkLayer = "InfiniBand"
		}},

		{id: "RL096", found: true, name: "dma-buf may do it", set: nvidia},
		{id: "RL096", found: true, name: "dma-buf cannot do it", set: func(h *topology.Host) {
			nvidia(h)
			h.GPUs[0].DMABuf = new(false)
		}},
		{id: "RL096", found: false, name: "cards that have no peer-to-peer", set: func(h *topology.Host) {
			twoCards(h, "GA102 [GeForce RTX 3090]")
		}},
		{id: "RL096", found: false, name: "the module is loaded", set: func(h *topology.Host) {
			nvidia(h)
			h.Kernel.Modules = []string{"nvidia", "nvidia_peermem"}
		}},
		{id: "RL096", found: false, name: "the driver says that it has dma-buf", set: func(h *topology.Host) {
			nvidia(h)
			h.GPUs[0].DMABuf, h.GPUs[1].DMABuf = new(true), new(true)
		}},
		{id: "RL096", found: false, name: "modules are not known", set: func(h *topology.Host) {
			nvidia(h)
			h.Kernel.ModulesKnown = false
		}},
		{id: "RL096", found: false, name: "GPUs are kept for virtual machines"},
		{id: "RL096", found: false, name: "RDMA in software only", set: func(h *topology.Host) {
			nvidia(h)
			for i := range h.NICs {
				for j := range h.NICs[i].Devices {
					h.NICs[i].Devices[j].Name = "rxe0"
				}
			}
		}},
	}
}
