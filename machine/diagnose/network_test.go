package diagnose

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func bond(h *topology.Host, mode, hash string) *topology.Bond {
	nicAt(h, "0000:41:00.1").Ports[0].SpeedMbps = new(int64(25_000))
	h.Bonds = append(h.Bonds, topology.Bond{Name: "bond0", Mode: mode, HashPolicy: hash,
		Members: []string{"enp65s0f0np0", "enp65s0f1np1"},
		RDMA:    []string{"mlx5_bond_0"}, MTU: new(4200)})
	return &h.Bonds[len(h.Bonds)-1]
}

func mtu(h *topology.Host, addr string, bytes int) { nicAt(h, addr).Ports[0].MTU = &bytes }

func networkCases() []testCase {
	return []testCase{
		{id: "RL080", found: true, name: "LACP with ports in the hash", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer3+4")
		}},
		{id: "RL080", found: true, name: "LACP with addresses only", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer2")
		}},
		{id: "RL080", found: true, name: "members of unknown speed", set: func(h *topology.Host) {
			bond(h, "balance-xor", "")
			nicAt(h, nic0).Ports[0].SpeedMbps = nil
			nicAt(h, "0000:41:00.1").Ports[0].SpeedMbps = nil
		}},
		{id: "RL080", found: false, name: "active-backup has one link by design", set: func(h *topology.Host) {
			bond(h, "active-backup", "")
		}},
		{id: "RL080", found: false, name: "one member", set: func(h *topology.Host) {
			b := bond(h, "802.3ad", "layer2")
			b.Members = b.Members[:1]
		}},
		{id: "RL080", found: false, name: "NICs that are not for RDMA", set: func(h *topology.Host) {
			b := bond(h, "802.3ad", "layer2")
			b.Members, b.RDMA = []string{"eno1", "eno2"}, nil
		}},

		{id: "RL081", found: true, name: "25 and 10 Gb/s", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer3+4")
			nicAt(h, "0000:41:00.1").Ports[0].SpeedMbps = new(int64(10_000))
		}},
		{id: "RL081", found: false, name: "alike", set: func(h *topology.Host) { bond(h, "802.3ad", "layer3+4") }},
		{id: "RL081", found: false, name: "one link is down", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer3+4")
			nicAt(h, "0000:41:00.1").Ports[0].SpeedMbps = nil
		}},

		{id: "RL082", found: true, name: "1500 on both NICs", set: func(h *topology.Host) {
			mtu(h, nic0, 1500)
			mtu(h, nic1, 1500)
		}},
		{id: "RL082", found: true, name: "different MTUs", set: func(h *topology.Host) {
			mtu(h, nic0, 4191)
			mtu(h, nic1, 1500)
		}},
		{id: "RL082", found: true, name: "too small for any", set: func(h *topology.Host) { mtu(h, nic0, 68) }},
		{id: "RL082", found: true, name: "MTU of the bond that the port stands on", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer3+4").MTU = new(1500)
			for i := range port1(h, nic0).GIDs {
				port1(h, nic0).GIDs[i].Netdev = "bond0"
			}
		}},
		{id: "RL082", found: false, name: "4192 is enough", set: func(h *topology.Host) { mtu(h, nic0, 4192) }},
		{id: "RL082", found: false, name: "port that is down"},
		{id: "RL082", found: false, name: "InfiniBand", set: func(h *topology.Host) {
			mtu(h, nic0, 2044)
			port1(h, nic0).LinkLayer = "InfiniBand"
		}},
		{id: "RL082", found: false, name: "iWARP", set: func(h *topology.Host) {
			mtu(h, nic0, 1500)
			nicAt(h, nic0).Devices[0].NodeType = "4: RNIC"
		}},
		{id: "RL082", found: false, name: "the MTU is not known", set: func(h *topology.Host) {
			nicAt(h, nic0).Ports[0].MTU = nil
		}},

		{id: "RL083", found: true, name: "all on CPU 30", set: func(h *topology.Host) {
			for i := range h.IRQs {
				h.IRQs[i].CPUs = cpus("30")
			}
		}},
		{id: "RL083", found: true, name: "queues named by the network device", set: func(h *topology.Host) {
			h.IRQs = nil
			for i := range 4 {
				interrupt(h, 100+i, "30", "enp97s0f0np0-"+string(rune('0'+i)))
			}
		}},
		{id: "RL083", found: false, name: "on four CPUs"},
		{id: "RL083", found: false, name: "three interrupts are too few to judge", set: func(h *topology.Host) {
			h.IRQs = h.IRQs[1:4]
			for i := range h.IRQs {
				h.IRQs[i].CPUs = cpus("30")
			}
		}},

		{id: "RL084", found: true, name: "served on node 0", set: func(h *topology.Host) {
			for i := range h.IRQs {
				h.IRQs[i].CPUs = cpus([]string{"0", "1", "32", "33"}[i%4])
			}
		}},
		{id: "RL084", found: false, name: "one of them is near", set: func(h *topology.Host) {
			for i := range h.IRQs {
				h.IRQs[i].CPUs = cpus([]string{"0", "1", "32", "30"}[i%4])
			}
		}},
		{id: "RL084", found: false, name: "the NIC's node is not known", set: func(h *topology.Host) {
			dev(h, nic1).NUMANode, dev(h, nic1).LocalCPUs, dev(h, "0000:60:03.1").NUMANode = nil, nil, nil
			for i := range h.IRQs {
				h.IRQs[i].CPUs = cpus("0")
			}
		}},

		{id: "RL085", found: true, name: "one card, and the default route over it", set: func(h *topology.Host) {
			without(h, "0000:61:")
			h.Routes[0].Netdev, h.Routes[0].PCI = "br0", []string{"0000:41:00.1"}
		}},
		{id: "RL085", found: false, name: "another card is there", set: func(h *topology.Host) {
			h.Routes[0].PCI = []string{"0000:41:00.1"}
		}},
		{id: "RL085", found: false, name: "the default route is elsewhere", set: func(h *topology.Host) {
			without(h, "0000:61:")
		}},

		{id: "RL086", found: true, name: "round robin", set: func(h *topology.Host) {
			bond(h, "balance-rr", "").RDMA = nil
		}},
		{id: "RL086", found: true, name: "ports of two cards", set: func(h *topology.Host) {
			b := bond(h, "802.3ad", "layer3+4")
			b.RDMA, b.Members = nil, []string{"enp65s0f0np0", "enp97s0f0np0"}
		}},
		{id: "RL086", found: false, name: "the NIC follows", set: func(h *topology.Host) {
			bond(h, "802.3ad", "layer3+4")
		}},
		{id: "RL086", found: false, name: "ports of one card that could follow", set: func(h *topology.Host) {
			bond(h, "active-backup", "").RDMA = nil
		}},
		{id: "RL086", found: false, name: "RDMA in software", set: func(h *topology.Host) {
			bond(h, "balance-rr", "").RDMA = nil
			nicAt(h, nic0).Devices[0].Name, nicAt(h, "0000:41:00.1").Devices[0].Name = "rxe0", "rxe1"
		}},
	}
}

func TestTheRDMAMTUIsTheLargestThatFits(t *testing.T) {
	t.Parallel()
	for mtu, want := range map[int]int{9000: 4096, 4200: 4096, 4192: 4096, 4191: 2048, 2144: 2048, 2143: 1024,
		1500: 1024, 1120: 1024, 1119: 512, 608: 512,
		607: 256, 352: 256, 351: 0, 0: 0, -1: 0} {
		if got := roceMTU(mtu); got != want {
			t.Errorf("roceMTU(%d) = %d, want %d", mtu, got, want)
		}
	}
}
