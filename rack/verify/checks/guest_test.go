package checks

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func coresOf(n int, core func(cpu int) int) []topology.Core {
	var all []topology.Core
	for cpu := range n {
		if core(cpu) == len(all) {
			all = append(all, topology.Core{})
		}
		c := &all[core(cpu)]
		c.CPUs = c.CPUs.Union(topology.CPUs(cpu))
	}
	return all
}

func address(s string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

func function(f *facts.Node, a string) *topology.PCIDevice {
	return topology.NewTree(&f.Host).Device(address(a))
}

func removeFunction(f *facts.Node, a string) {
	f.PCI = slices.DeleteFunc(f.PCI, func(d topology.PCIDevice) bool { return d.Address == address(a) })
}

func addMLX5(f *facts.Node) {
	f.NICs = append(f.NICs, topology.NIC{Devices: []topology.RDMADevice{{Name: "mlx5_0"}}})
}

// seen matches the plan exactly.
func seen(t fataler, p *plan.Plan, h *topology.Host) map[string]*facts.Node {
	t.Helper()
	all := map[string]*facts.Node{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		cpus := topology.CPURange(0, len(n.VCPUs)-1)
		f := &facts.Node{Cards: map[string]*int{}}
		f.CPUs.Online = cpus
		f.PCI = []topology.PCIDevice{
			{Address: address("0000:00:01.0"), Class: new(topology.ID24(0x030000)), Vendor: new(topology.ID16(0x1234))},
			{Address: address("0000:00:02.0"), Class: new(topology.ID24(0x020000)),
				Vendor: new(topology.VendorRedHat)},
		}
		threads := 1
		if n.SMT {
			threads = n.Threads
		}
		f.Cores = coresOf(len(n.VCPUs), func(cpu int) int { return cpu / threads })
		if n.GuestNUMA {
			for _, c := range n.Cells {
				f.NUMANodes = append(f.NUMANodes, topology.NUMANode{ID: c.Cell, CPUs: cellCPUs(&c),
					Distances: c.Distances, MemoryBytes: new(c.Bytes - c.Bytes/50)})
			}
		} else {
			f.NUMANodes = []topology.NUMANode{{CPUs: cpus, Distances: []int{10},
				MemoryBytes: new(n.MemoryBytes - n.MemoryBytes/50)}}
		}
		port := 0
		for k := range n.Cards {
			card := &n.Cards[k]
			node := -1
			if n.GuestNUMA && card.Cell != nil {
				node = *card.Cell
			}
			for m, id := range card.Functions {
				d := deviceOf(t, p, h, id)
				g := topology.PCIDevice{Address: address(fmt.Sprintf("0000:%02x:00.%d", 0x20+k, m)), Class: d.Class,
					Vendor: d.Vendor}
				if node >= 0 {
					g.NUMANode = &node
				}
				if card.Kind != plan.KindVF && d.Link != nil {
					g.Link = best(d.Link)
				}
				f.PCI = append(f.PCI, g)
			}
			if card.Kind != plan.KindGPU && port < len(n.NICs) {
				name := n.NICs[port].Name
				f.NICs = append(f.NICs, topology.NIC{Name: name, Ports: []topology.Netdev{{Name: name}}})
				f.Cards[name] = &node
				port++
			}
		}
		all[n.Name] = f
	}
	return all
}

// twoCells has two lab nodes that see two NUMA nodes, with a GPU on one and a NIC on the other.
func twoCells(t *testing.T) *planCase {
	t.Helper()
	h := exampleHost(t, "epyc-7551p.ttar")
	p, ok := planned(t, h, "cells.yaml", []byte("name: cells\nhost: {reserve: {cores: 4}}\nnodes:\n  vm: {count: 2, "+
		"cpus: 28, memory: 32GiB, gpus: 1, nics: 1, smt: on, guest_numa: on}\n"))
	if !ok || !p.Nodes[0].GuestNUMA || len(p.Nodes[0].Cells) != 2 || !p.Nodes[0].SMT {
		t.Fatalf("the plan is not what this test is about: %v", ok)
	}
	prepare(t, p, h)
	return &planCase{p: p, h: h, run: quiet(p, h)}
}

func TestEachFaultOfAGuestIsFound(t *testing.T) {
	gpu, nic := "0000:20:00.0", "0000:21:00.0" // in the guest
	tests := []struct {
		name   string
		change func(c *planCase, f *facts.Node)
		want   []string
	}{
		{"all is as planned", func(c *planCase, f *facts.Node) {}, nil},
		{"a CPU is missing", func(c *planCase, f *facts.Node) {
			f.CPUs.Online = topology.CPURange(0, 26)
		}, []string{"failed guest-cpus | vm00 | 27 CPUs: 0-26"}},
		{"CPUs are not known", func(c *planCase, f *facts.Node) { f.CPUs.Online = topology.CPUSet{} },
			[]string{"unknown guest-cpus"}},
		{"no siblings, as on AMD without topoext", func(c *planCase, f *facts.Node) {
			f.Cores = coresOf(28, func(cpu int) int { return cpu })
		}, []string{"failed guest-siblings | vm00 | 28 cores; not as in the plan: 0, 1, 2, 3 and 24 more"}},
		{"siblings as the host numbers them", func(c *planCase, f *facts.Node) {
			f.Cores = coresOf(28, func(cpu int) int { return cpu % 14 })
		}, []string{"failed guest-siblings | vm00 | 14 cores; not as in the plan: 0,14, "}},
		{"cores are not known", func(c *planCase, f *facts.Node) {
			f.Cores = nil
		}, []string{"unknown guest-siblings"}},
		{"one NUMA node only", func(c *planCase, f *facts.Node) {
			f.NUMANodes = f.NUMANodes[:1]
		}, []string{"failed guest-numa | vm00 | node 0 with CPUs "}},
		{"a NUMA node too many", func(c *planCase, f *facts.Node) {
			f.NUMANodes = append(f.NUMANodes, topology.NUMANode{ID: 2})
		}, []string{"failed guest-numa | vm00 | "}},
		{"NUMA nodes are not known", func(c *planCase, f *facts.Node) {
			f.NUMANodes = nil
		}, []string{"unknown guest-numa"}},
		{"cells with the host's numbers", func(c *planCase, f *facts.Node) {
			f.NUMANodes[0].CPUs, f.NUMANodes[1].CPUs = f.NUMANodes[1].CPUs, f.NUMANodes[0].CPUs
		},
			[]string{"failed guest-numa"}},
		{"distances of the default", func(c *planCase, f *facts.Node) {
			f.NUMANodes[0].Distances = []int{10, 20}
		}, []string{"failed guest-numa"}},
		{"memory is elsewhere", func(c *planCase, f *facts.Node) {
			f.NUMANodes[0].MemoryBytes = new(uint64(4 << 30))
		}, []string{"failed guest-numa"}},
		{"more memory than its cell", func(c *planCase, f *facts.Node) {
			f.NUMANodes[0].MemoryBytes = new(uint64(40 << 30))
		}, []string{"failed guest-numa"}},
		{"the GPU has no room", func(c *planCase, f *facts.Node) { removeFunction(f, gpu) },
			[]string{"failed guest-devices | vm00 GPU of vendor 0x10de | 0",
				"failed guest-device-node | vm00 GPU of vendor 0x10de | none", "unknown guest-link | vm00 GPU"}},
		{"one NIC more", func(c *planCase, f *facts.Node) {
			d := *function(f, nic)
			d.Address = address("0000:30:00.0")
			f.PCI = append(f.PCI, d)
		},
			[]string{"failed guest-devices | vm00 NIC of vendor 0x15b3 | 2", "failed guest-link | vm00 NIC"}},
		{"the GPU is on the first bus", func(c *planCase, f *facts.Node) { function(f, gpu).NUMANode = nil },
			[]string{"failed guest-device-node | vm00 GPU of vendor 0x10de | none"}},
		{"the NIC is on the other node", func(c *planCase, f *facts.Node) {
			f.Cards["eth0"] = new(1 - *f.Cards["eth0"])
		},
			[]string{"failed guest-device-node | vm00 eth0 | node "}},
		{"the NIC of the name is paravirtual", func(c *planCase, f *facts.Node) {
			delete(f.Cards, "eth0")
		}, []string{"failed guest-device-node | vm00 eth0 | not on a card"}},
		{"there is no NIC of the name", func(c *planCase, f *facts.Node) {
			f.NICs = nil
		}, []string{"failed guest-device-node | vm00 eth0 | no such device"}},
		{"the NIC's node is not known", func(c *planCase, f *facts.Node) {
			f.Cards["eth0"] = nil
		}, []string{"unknown guest-device-node | vm00 eth0"}},
		{"the NIC's link fell to Gen 1", func(c *planCase, f *facts.Node) { function(f, nic).Link.SpeedGTs = new(2.5) },
			[]string{"failed guest-link | vm00 NIC of vendor 0x15b3 | 2.5 GT/s x8"}},
		{"the GPU is idle", func(c *planCase, f *facts.Node) { function(f, gpu).Link.SpeedGTs = new(2.5) }, nil},
		{"the GPU has lost lanes", func(c *planCase, f *facts.Node) {
			function(f, gpu).Link.Width = new(8)
		}, []string{"failed guest-link | vm00 GPU of vendor 0x10de | 8 GT/s x8"}},
		{"no way from NIC to GPU memory", func(c *planCase, f *facts.Node) {
			f.NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54"
			addMLX5(f)
		}, []string{"failed gpudirect | vm00 | nvidia without nvidia_peermem"}},
		{"the way of the module", func(c *planCase, f *facts.Node) {
			f.NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54"
			f.Kernel.Modules = []string{"nvidia_peermem"}
			addMLX5(f)
		}, nil},
		{"the way of the open driver", func(c *planCase, f *facts.Node) {
			f.NVIDIA = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86"
			addMLX5(f)
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := twoCells(t)
			nodes := seen(t, c.p, c.h)
			tt.change(c, nodes["vm00"])
			got := Guests(c.p, c.h, nodes)
			wellFormed(t, got)
			matches(t, notOK(got), tt.want)
		})
	}
	t.Run("the host does not tell what a card is", func(t *testing.T) {
		c := twoCells(t)
		nodes := seen(t, c.p, c.h)
		deviceOf(t, c.p, c.h, c.p.Nodes[1].Cards[0].ID).Class = nil
		got := Guests(c.p, c.h, nodes)
		wellFormed(t, got)
		matches(t, notOK(got), []string{"unknown guest-devices | vm01 0000:21:00.0 | the host does not tell " +
			"what it is"})
	})
	t.Run("the host is elsewhere", func(t *testing.T) {
		c := twoCells(t)
		got := slices.Concat(Guests(c.p, nil, seen(t, c.p, c.h)), Domains(c.p, nil, started(t, c.p, c.h)))
		wellFormed(t, got)
		matches(t, notOK(got), []string{"unknown vfio-held | vm00 | ", "unknown vfio-held | vm01 | "})
	})
	t.Run("it does not answer", func(t *testing.T) {
		c := twoCells(t)
		nodes := seen(t, c.p, c.h)
		delete(nodes, "vm01")
		got := Guests(c.p, c.h, nodes)
		wellFormed(t, got)
		matches(t, notOK(got), []string{"unknown guest-cpus | vm01 | it does not answer"})
	})
}

func TestEveryCheckOfGuestsIsMade(t *testing.T) {
	c := twoCells(t)
	nodes := seen(t, c.p, c.h)
	nodes["vm00"].NVIDIA, nodes["vm00"].Kernel.Modules = "x", []string{"nvidia_peermem"}
	addMLX5(nodes["vm00"])
	all := slices.Concat(Guests(c.p, c.h, nodes), Domains(c.p, c.h, started(t, c.p, c.h)), c.host())
	for _, id := range finding.Names() {
		vf := id == IDVFs || id == IDPF || id == IDPeerDMA // from other examples
		if made := slices.ContainsFunc(all, func(f finding.Finding) bool {
			return f.ID == id
		}); !made && !vf && !slices.Contains(finding.Names(finding.Lab, finding.Adapter, finding.GPU,
			finding.Setup), id) {
			t.Errorf("%s is not made", id)
		}
	}
}

func TestTheRDMADeviceOfANICIsFound(t *testing.T) {
	n := testLab(t, 2, 1).Nodes[0]
	const (
		soft     = "net/eth0/mtu 1500\n"
		card     = soft + "net/eth0/class 0x020000\n"
		mlx5     = "rdma/mlx5_0/node_guid 1\n"
		byGID    = mlx5 + "rdma/mlx5_1/1/gid/0 fe80::1 eth0 RoCE v2\n"
		byParent = mlx5 + "rdma/mlx5_1/parent eth0\n"
	)
	tests := []struct {
		name, facts, want string
		found             bool
	}{
		{"soft RoCE by its name", soft + "rdma/rxe0/node_guid 1\n", "rxe0", true},
		{"soft RoCE by its parent", soft + "rdma/rxe7/parent eth0\n", "rxe7", true},
		{"a card's by its GIDs", card + byGID, "mlx5_1", true},
		{"a card's by the network device of its function", card + byParent, "mlx5_1", true},
		{"a card's beside a stranger called rxe0", card + "rdma/rxe0/parent eth9\n" + byGID, "mlx5_1", true},
		{"none", soft, "rxe0", false},
		{"none of a card", card + mlx5, "RDMA device of eth0", false},
		{"no such NIC", "", "rxe0", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := facts.Parse([]byte(tt.facts))
			if err != nil {
				t.Fatal(err)
			}
			if got := rdmaDeviceOf(f, n, 0); got.name != tt.want || (got.port != nil) != tt.found {
				t.Errorf("got %q, %v", got.name, got.port)
			}
		})
	}
}

// verify reports the reason, and up fails after waiting for the driver.
func TestSoftRoCEInPlaceOfAnAdaptersRDMA(t *testing.T) {
	const eth0 = "net/eth0/mtu 4200\nnet/eth0/class 0x020000\n"
	const rxe0, mlx5 = "rdma/rxe0/parent eth0\n", "rdma/mlx5_0/parent eth0\nrdma/mlx5_0/1/state 4: ACTIVE\n"
	for _, tt := range []struct {
		name, facts, later string
		image, says        string // kernel messages
		have, fix          string // "" if all is well
	}{
		{name: "its driver's", facts: eth0 + mlx5},
		{name: "both", facts: eth0 + rxe0 + mlx5},
		{name: "its driver's, after a while", facts: eth0 + rxe0, later: eth0 + rxe0 + mlx5},
		{"soft", eth0 + rxe0, eth0 + rxe0, "", "module mlx5_ib is not loaded\n",
			"soft RoCE (rxe0) in its place: module mlx5_ib is not loaded", "in the node: rdma link delete rxe0, then " +
				"gunzip -c /lib/modules/mlx5_ib.ko.gz >/tmp/mlx5_ib.ko && insmod /tmp/mlx5_ib.ko"},
		{"soft, and a full node", eth0 + rxe0, eth0 + rxe0, "debian-13",
			"[    3.1] mlx5_ib.rdma mlx5_core.rdma.0: probe with driver mlx5_ib.rdma failed with error -12\n",
			"soft RoCE (rxe0) in its place: [    3.1] mlx5_ib.rdma mlx5_core.rdma.0: probe with driver mlx5_ib.rdma " +
				"failed with error -12", "in the node: rdma link delete rxe0, then modprobe mlx5_ib"},
		{"none", eth0, eth0, "debian-13", "", "no such device", "in the node: modprobe mlx5_ib"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeLab(t, testLab(t, 1, 1))
				n := &f.lab.Nodes[0]
				n.NIC, n.Image = lab.NICConnectX4Lx, tt.image
				parse := func(text string) *facts.Node {
					parsed, err := facts.Parse([]byte(text))
					if err != nil {
						t.Fatal(err)
					}
					return parsed
				}
				first := parse(tt.facts)
				later := first
				if tt.later != "" {
					later = parse(tt.later)
				}
				f.nodes[n.Name].facts, f.nodes[n.Name].adapters = later, tt.says
				got, err := AdapterRDMA(t.Context(), *n, first, f)
				if tt.have == "" {
					if err != nil || got == nil {
						t.Fatalf("%v, %v", got, err)
					}
				} else if want := "node vm00: the RDMA device of eth0, a ConnectX-4 Lx: " + tt.have + "; " +
					tt.fix; err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				_, findings := nodeFindings(t.Context(), f.lab, *n, f, false)
				i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == IDPort })
				port := findings[i]
				switch {
				case tt.have == "" && port.Subject != n.Name+" mlx5_0":
					t.Errorf("%+v", port)
				case tt.have != "" && (port.Status != finding.Failed || port.Have != tt.have || port.Fix != tt.fix):
					t.Errorf("%+v", port)
				}
			})
		})
	}
}

func TestTrafficCountsByTheCountersOfThePort(t *testing.T) {
	l := testLab(t, 2, 1)
	f := newFakeLab(t, l)
	for _, n := range f.nodes {
		rdmaDev(n.facts, "rxe0").Name = "mlx5_0"
		n.facts.Cards = map[string]*int{"eth0": nil}
		n.facts.Counters = map[string]facts.Counters{"mlx5_0": {
			Port: map[string]uint64{portCounterSent: 5, portCounterRcved: 5},
		}}
	}
	got := checkLab(t, f, IDTraffic, IDPort, IDGID)
	i := slices.IndexFunc(got, func(f finding.Finding) bool { return f.ID == IDTraffic })
	if got[i].Status != finding.OK || got[i].Have != "vm00 sent 41, received 41 packets; vm01 sent 41, received "+
		"41 packets" {
		t.Errorf("got %+v", got[i])
	}
	for _, f := range got {
		if f.ID == IDPort && (f.Subject != "vm00 mlx5_0" && f.Subject != "vm01 mlx5_0" || f.Status != finding.OK) {
			t.Errorf("got %+v", f)
		}
	}
}

func TestANodeWithoutANICIsInNoRing(t *testing.T) {
	l := testLab(t, 3, 1)
	l.Nodes[1].NICs = nil
	f := newFakeLab(t, l)
	got := traffic(t.Context(), l, []*facts.Node{f.nodes["vm00"].facts, f.nodes["vm01"].facts, f.nodes["vm02"].facts},
		nil, f)
	if len(got) != 1 || got[0].Subject != "vm00 -> vm02" || got[0].Status != finding.OK {
		t.Errorf("got %+v", got)
	}
}
