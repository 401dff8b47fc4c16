package checks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func contextOf(t fataler) context.Context {
	if tb, ok := t.(testing.TB); ok {
		return tb.Context()
	}
	return context.Background()
}

func TestAPreparedHostPassesEveryCheck(t *testing.T) {
	for name, c := range map[string]*planCase{"two nodes with GPU and NIC": epyc(t),
		"eight nodes with virtual functions": r740(t)} {
		t.Run(name, func(t *testing.T) {
			got := c.host()
			wellFormed(t, got)
			if bad := notOK(got); len(bad) > 0 {
				t.Errorf("not ok:\n%s", strings.Join(bad, "\n"))
			}
			made := map[string]bool{}
			for _, f := range got {
				made[f.ID] = true
			}
			for _, k := range finding.Names(finding.Host) {
				vf := k == IDVFs || k == IDPF
				if made[k] != (!vf || len(c.p.VFs) > 0) && k != IDPCIeLink && k != IDPeerDMA {
					t.Errorf("%s made: %v", k, made[k])
				}
			}
			snapshot := Host(c.p, c.h, nil)
			wellFormed(t, snapshot)
			if bad := notOK(snapshot); len(bad) > 0 {
				t.Errorf("as a snapshot not ok:\n%s", strings.Join(bad, "\n"))
			}
			for _, f := range snapshot {
				if slices.Contains([]string{IDThreads, IDWorkqueues, IDHugetlbfs}, f.ID) {
					t.Errorf("%s of a snapshot", f.ID)
				}
			}
		})
	}
}

func TestANICOfAnEmulatedHostDoesNotReachAGPU(t *testing.T) {
	const pairs = "vm00 0000:06:00.0: cannot be resolved here: the emulated IOMMU translates; " +
		"vm01 0000:21:00.0: cannot be resolved here: the emulated IOMMU translates"
	for _, tt := range []struct {
		name string
		set  func(h *topology.Host)
		want string
	}{
		{"an emulated host", func(*topology.Host) {}, pairs},
		{"without an IOMMU", func(h *topology.Host) { h.IOMMU.Enabled = new(false) }, ""},
		{"whose IOMMU is not known", func(h *topology.Host) { h.IOMMU.Enabled = nil }, ""},
		{"another host", func(h *topology.Host) { h.System.Vendor = "Supermicro" }, ""},
		{"with displays in the place of GPUs", func(h *topology.Host) {
			for i := range h.GPUs {
				h.GPUs[i].Vendor = ""
			}
		}, ""},
		{"with GPUs that are none of its own", func(h *topology.Host) {
			for i := range h.GPUs {
				h.GPUs[i].Kind = topology.GPUDiscrete
			}
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := epyc(t)
			c.h.System.Vendor = topology.VendorEmulated
			for i := range c.h.GPUs {
				c.h.GPUs[i].Kind, c.h.GPUs[i].Vendor = topology.GPUStandIn, topology.VendorEmulated
			}
			tt.set(c.h)
			var got []string
			for _, f := range c.host() {
				if f.ID == IDPeerDMA {
					got = append(got, f.Subject+": "+f.Have)
					if f.Status != finding.OK {
						t.Errorf("%s is %s", f.Subject, f.Status)
					}
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHostMadeToThePlanPasses(t *testing.T) {
	hosts := []string{"epyc-7551p.ttar", "r740.ttar"}
	tried := 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(hosts).Draw(t, "host")
		h := exampleHost(t, name)
		device := "gpus: 0, nics: 0"
		count := rapid.IntRange(1, 4).Draw(t, "nodes")
		if name == hosts[0] && count <= 2 && rapid.Bool().Draw(t, "devices") {
			device = "gpus: 1, nics: 1"
		} else if name == hosts[1] && rapid.Bool().Draw(t, "vfs") {
			device = "vfs: 1"
		}
		text := fmt.Sprintf("name: some\nhugepages: %s\nworkload: %s\nnodes:\n  vm: {count: %d, cpus: %d, memory: "+
			"%dGiB, %s, smt: %s, guest_numa: %s}\n",
			rapid.SampledFrom([]string{"auto", "1GiB", "2MiB", "off"}).Draw(t, "pages"),
			rapid.SampledFrom([]string{"rdma-latency", "gpu-compute", "cpu-bandwidth", "mixed"}).Draw(t, "workload"),
			count, 2*rapid.IntRange(1, 6).Draw(t, "cpus"), rapid.IntRange(1, 24).Draw(t, "memory"), device,
			rapid.SampledFrom([]string{"auto", "on", "off"}).Draw(t, "smt"),
			rapid.SampledFrom([]string{"auto", "on", "off"}).Draw(t, "numa"))
		p, ok := planned(t, h, "some.yaml", []byte(text))
		if !ok {
			t.Skip("does not fit")
		}
		tried++
		prepare(t, p, h)
		got := Host(p, h, quiet(p, h))
		wellFormed(t, got)
		domains := Domains(p, h, started(t, p, h))
		wellFormed(t, domains)
		guests := Guests(p, h, seen(t, p, h))
		wellFormed(t, guests)
		if bad := slices.Concat(notOK(got), notOK(domains), notOK(guests)); len(bad) > 0 {
			t.Fatalf("%s\nnot ok:\n%s", text, strings.Join(bad, "\n"))
		}
	})
	if tried == 0 {
		t.Error("no plan was tried")
	}
}

func TestEachFaultOfAHostIsFound(t *testing.T) {
	cpus := func(list string) *topology.CPUSet {
		s, err := topology.ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	drop := func(line *string, word string) *string { return new(strings.ReplaceAll(*line, word, "")) }
	tests := []struct {
		name   string
		host   func(*testing.T) *planCase
		change func(c *planCase)
		want   []string
	}{
		{"a CPU is offline", epyc, func(c *planCase) {
			c.h.CPUs.Online = c.h.CPUs.Online.Difference(topology.CPUs(40, 41))
		},
			[]string{"failed host-cpus | host | 0-39,42-63; missing: 40-41"}},
		{"nothing isolates", epyc, func(c *planCase) { c.h.CPUs.Isolated = cpus("") },
			[]string{"failed isolated | host | nothing isolates them; not isolated: " +
				"1-14,16-22,24-30,33-46,48-54,56-62"}},
		{"nothing isolates, and the plan leaves siblings idle", r740, func(c *planCase) {
			c.h.CPUs.Isolated = cpus("")
		},
			[]string{"failed isolated | host | nothing isolates them; not isolated: ",
				"failed isolated-siblings | host | siblings that are not isolated: "}},
		{"which CPUs are isolated is not known", epyc, func(c *planCase) { c.h.CPUs.Isolated = nil },
			[]string{"unknown isolated | host | not known", "unknown isolated-siblings | host | not known"}},
		{"nothing is known of its CPUs", epyc, func(c *planCase) { c.h.CPUs = topology.CPUStates{} },
			[]string{"unknown host-cpus", "unknown isolated | host", "unknown isolated-siblings", "unknown nohz-full"}},
		{"a list that ends too early", epyc, func(c *planCase) {
			c.h.CPUs.Isolated = new(c.h.CPUs.Isolated.Difference(topology.CPUs(8)))
		},
			[]string{"failed isolated | host | the kernel isolates"}},
		{"a sibling is not isolated", r740, func(c *planCase) {
			idle := given(c.p, c.h)
			for i := range c.p.Nodes {
				idle = idle.Difference(topology.CPUs(c.p.Nodes[i].VCPUs...))
			}
			c.h.CPUs.Isolated = new(c.h.CPUs.Isolated.Difference(topology.CPUs(idle.Min())))
		}, []string{"failed isolated-siblings | host | siblings that are not isolated: "}},
		{"the tick is on", epyc, func(c *planCase) {
			c.h.CPUs.NoHzFull = cpus("")
		}, []string{"failed nohz-full | host | none; the tick is on 1-14,16-22,24-30,33-46,48-54,56-62"}},
		{"a kernel that cannot stop the tick", epyc, func(c *planCase) { c.h.CPUs.NoHzFull = nil },
			[]string{"failed nohz-full | host | the kernel cannot stop the tick"}},
		{"nohz_full cannot be read", epyc, func(c *planCase) {
			c.h.CPUs.NoHzFull = nil
			c.h.Unread = []topology.Unread{{Path: "/sys/devices/system/cpu/nohz_full", Why: "permission denied"}}
		}, []string{"unknown nohz-full"}},
		{"callbacks stay", epyc, func(c *planCase) { c.h.Kernel.Cmdline = drop(c.h.Kernel.Cmdline, "rcu_nocbs=") },
			[]string{"failed kernel-args | rcu_nocbs=1-14,16-22,24-30,33-46,48-54,56-62 | not there"}},
		{"the host's devices are translated", epyc, func(c *planCase) {
			c.h.Kernel.Cmdline = drop(c.h.Kernel.Cmdline, "iommu=pt")
			for i := range c.h.IOMMU.Groups {
				c.h.IOMMU.Groups[i].Type = "DMA-FQ"
			}
		},
			[]string{"failed kernel-args | iommu=pt | not there"}},
		{"the host's devices are passed through without an argument", epyc, func(c *planCase) {
			c.h.Kernel.Cmdline = drop(c.h.Kernel.Cmdline, "iommu=pt")
			for i := range c.h.IOMMU.Groups {
				c.h.IOMMU.Groups[i].Type = "identity"
			}
		}, nil},
		{"the command line is not known", epyc, func(c *planCase) { c.h.Kernel.Cmdline = nil },
			[]string{"unknown kernel-args | iommu=pt | not known", "unknown kernel-args | rcu_nocbs="}},
		{"a program was put on a CPU of a node", epyc, func(c *planCase) {
			c.run.Threads = append(c.run.Threads, facts.Thread{PID: 4711, TID: 4712, Name: "stress-ng\x1b[2J",
				Allowed: topology.CPUs(8), LastCPU: 8})
		}, []string{"failed foreign-threads | host | 1 foreign thread: 4712 stress-ng\\x1b[2J (may use 8, last on 8)"}},
		{"a program that may go everywhere has gone there", epyc, func(c *planCase) {
			c.run.Threads = append(c.run.Threads, facts.Thread{PID: 4711, TID: 4711, Name: "make",
				Allowed: c.h.CPUs.Online, LastCPU: 9})
		}, []string{"failed foreign-threads | host | 1 foreign thread: 4711 make (may use 0-63, last on 9)"}},
		{"threads are not known", epyc, func(c *planCase) { c.run.Threads = nil }, []string{"unknown foreign-threads"}},
		{"an interrupt is served there", epyc, func(c *planCase) {
			c.run.Interrupts = append(c.run.Interrupts, facts.Interrupt{Number: 130, CPUs: topology.CPUs(0, 8),
				Counts: map[int]uint64{8: 18823}, Action: "mlx5_comp0"})
		}, []string{"failed interrupts | host | 1 foreign interrupt: 130 mlx5_comp0 on 8 (18823 served there)"}},
		{"interrupts are not known", epyc, func(c *planCase) {
			c.run.Interrupts = nil
		}, []string{"unknown interrupts"}},
		{"in a snapshot an interrupt can be served nowhere else", epyc, func(c *planCase) {
			c.run = nil
			c.h.IRQs = []topology.IRQ{{Number: 130, CPUs: topology.CPUs(8), Count: new(uint64(7)), Device: "nvme0q9"},
				{Number: 131, CPUs: topology.CPUs(8), Count: new(uint64(0)), Device: "nvme0q8"},
				{Number: 132, CPUs: topology.CPUs(0, 8), Count: new(uint64(9)), Device: "nvme0q7"},
				{Number: 133, CPUs: topology.CPUs(8), Count: new(uint64(9)), Device: c.p.Nodes[0].Devices[0]}}
		}, []string{"failed interrupts | host | 1 foreign interrupt: 130 nvme0q9 on 8 (7 served)"}},
		{"work queues may use all CPUs", epyc, func(c *planCase) {
			c.run.Workqueues = &c.h.CPUs.Online
		}, []string{"failed workqueues | host | 0-63"}},
		{"work queues are not known", epyc, func(c *planCase) {
			c.run.Workqueues = nil
		}, []string{"unknown workqueues"}},
		{"the governor saves power", epyc, func(c *planCase) {
			for i := range c.h.Cores {
				c.h.Cores[i].Governor = "powersave"
			}
		}, []string{"failed governor | host | powersave on "}},
		{"a NUMA node has too few pages, and none left", epyc, func(c *planCase) {
			pool := &c.h.NUMANodes[1].Hugepages[len(c.h.NUMANodes[1].Hugepages)-1]
			pool.Total, pool.Free = 4, new(uint64(4))
		}, []string{"failed hugepages | NUMA node 1 | 4 of 1 GiB", "failed hugepages-free | NUMA node 1 | 4 of 1 GiB"}},
		{"somebody has the pages", epyc, func(c *planCase) {
			c.h.NUMANodes[1].Hugepages[len(c.h.NUMANodes[1].Hugepages)-1].Free = new(uint64(0))
		}, []string{"failed hugepages-free | NUMA node 1 | 0 of 1 GiB"}},
		{"the lab itself has the pages", epyc, func(c *planCase) {
			for i := range c.h.NUMANodes {
				for k := range c.h.NUMANodes[i].Hugepages {
					c.h.NUMANodes[i].Hugepages[k].Free = new(uint64(0))
				}
			}
			for _, n := range c.p.Nodes {
				c.h.Tenants = append(c.h.Tenants, topology.Tenant{Name: c.p.Lab + "." + n.Name, State: "running"})
			}
		}, nil},
		{"there is no such NUMA node", epyc, func(c *planCase) {
			c.h.NUMANodes = slices.DeleteFunc(c.h.NUMANodes, func(n topology.NUMANode) bool { return n.ID == 3 })
		}, []string{"failed hugepages | NUMA node 3 | the host has no NUMA node 3",
			"failed hugepages-free | NUMA node 3 | the host has no NUMA node 3"}},
		{"the kernel has no pages of the size", epyc, func(c *planCase) {
			c.h.NUMANodes[2].Hugepages = []topology.HugepagePool{{SizeBytes: 2 << 20}}
		}, []string{"failed hugepages | NUMA node 2 | no pages of that size",
			"failed hugepages-free | NUMA node 2 | no pages of that size"}},
		{"pages are not known", epyc, func(c *planCase) { c.h.NUMANodes[2].Hugepages = nil },
			[]string{"unknown hugepages | NUMA node 2 | not known", "unknown hugepages-free | NUMA node 2 | not " +
				"known"}},
		{"no hugetlbfs of the size", epyc, func(c *planCase) { c.run.HugeMounts = c.run.HugeMounts[:1] },
			[]string{"failed hugetlbfs | pages of 1 GiB | /dev/hugepages has pages of 2 MiB"}},
		{"mounts are not known", epyc, func(c *planCase) { c.run.HugeMounts = nil }, []string{"unknown hugetlbfs"}},
		{"the IOMMU is off", epyc, func(c *planCase) {
			c.h.IOMMU.Enabled = new(false)
		}, []string{"failed iommu | host | off"}},
		{"the IOMMU is not known", epyc, func(c *planCase) { c.h.IOMMU.Enabled = nil }, []string{"unknown iommu"}},
		{"a card is gone", epyc, func(c *planCase) {
			gone := c.p.Nodes[0].Cards[0].ID
			c.h.PCI = slices.DeleteFunc(c.h.PCI, func(d topology.PCIDevice) bool { return d.Address.String() == gone })
		}, []string{"failed device | vm00 0000:06:00.0 | not there",
			"failed iommu-group | vm00 0000:06:00.0 | not there",
			"failed vfio-driver | vm00 0000:06:00.0 | not there"}},
		{"a card hangs", epyc, func(c *planCase) {
			c.device(t, 0, 0).Dead = true
		}, []string{"failed device | vm00 0000:06:00.0 | every register reads as ones"}},
		{"a card is in another slot", epyc, func(c *planCase) { c.device(t, 0, 0).NUMANode = new(3) },
			[]string{"failed device | vm00 0000:06:00.0 | there, on NUMA node 3"}},
		{"the host does not tell where a card is", epyc, func(c *planCase) { c.device(t, 0, 0).NUMANode = nil },
			[]string{"unknown device | vm00 0000:06:00.0 | there; the host does not tell its NUMA node"}},
		{"the audio function is on its driver", epyc, func(c *planCase) { c.device(t, 0, 1).Driver = "snd_hda_intel" },
			[]string{"failed vfio-driver | vm00 0000:06:00.1 | snd_hda_intel"}},
		{"a stranger in the group", epyc, func(c *planCase) {
			group := c.device(t, 0, 0).IOMMUGroup
			c.h.PCI = append(c.h.PCI, topology.PCIDevice{Address: topology.PCIAddr{Bus: 0x77}, IOMMUGroup: group,
				Driver: "xhci_hcd", DriverKnown: true})
		}, []string{"failed iommu-group | vm00 0000:06:00.0 | group "}},
		{"a stranger in the group without a driver", epyc, func(c *planCase) {
			group := c.device(t, 0, 0).IOMMUGroup
			c.h.PCI = append(c.h.PCI, topology.PCIDevice{Address: topology.PCIAddr{Bus: 0x77}, IOMMUGroup: group,
				DriverKnown: true})
		}, nil},
		{"no driver is bound", epyc, func(c *planCase) {
			c.device(t, 1, 0).Driver = ""
		}, []string{"failed vfio-driver | vm01 0000:21:00.0 | no driver"}},
		{"a vendor's own driver of VFIO", r740, func(c *planCase) { c.device(t, 1, 0).Driver = "mlx5_vfio_pci" }, nil},
		{"the driver is not known", epyc, func(c *planCase) {
			c.device(t, 1, 0).Driver, c.device(t, 1, 0).DriverKnown = "", false
		},
			[]string{"unknown vfio-driver | vm01 0000:21:00.0"}},
		{"a NIC's link is narrow", epyc, func(c *planCase) {
			c.h.System.InVM, c.h.Provenance.Emulated = new(false), false
			c.nic(t).Link.Width = new(4)
		},
			[]string{"failed pcie-link | vm00 0000:41:00.0 | 8 GT/s x4: PCIe link width below what both ends can do"}},
		{"a link is not known", epyc, func(c *planCase) {
			c.nic(t).Link = nil
		}, []string{"unknown pcie-link | vm00 0000:41:00.0"}},
		{"a GPU's link is not known", epyc, func(c *planCase) {
			c.device(t, 0, 0).Link = nil
		}, []string{"unknown pcie-link | vm00 0000:06:00.0"}},
		{"a stand-in for a GPU has no link", epyc, func(c *planCase) {
			c.device(t, 0, 0).Link = nil
			for i := range c.h.GPUs {
				c.h.GPUs[i].Kind = topology.GPUStandIn
			}
		}, nil},
		{"virtual functions are gone after a boot", r740, func(c *planCase) {
			pf := find(c.h, *c.h.NICs[slices.IndexFunc(c.h.NICs, func(n topology.NIC) bool {
				return n.ID() == c.p.VFs[0].PF
			})].Address)
			pf.SRIOV.Enabled, pf.SRIOV.VFs = new(0), nil
		}, []string{"failed device | vm0", "failed iommu-group | vm0", "failed vfio-driver | vm0",
			"failed sriov-vfs | 0000:3b:00.0 | 0 of "}},
		{"the port has no carrier", r740, func(c *planCase) {
			i := slices.IndexFunc(c.h.NICs, func(n topology.NIC) bool { return n.ID() == c.p.VFs[0].PF })
			c.h.NICs[i].Ports[0].State, c.h.NICs[i].Ports[0].Carrier = "down", new(false)
		}, []string{"failed pf-link | 0000:3b:00.0 "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.host(t)
			tt.change(c)
			got := c.host()
			wellFormed(t, got)
			matches(t, notOK(got), tt.want)
		})
	}
}

func matches(t *testing.T, got, want []string) {
	t.Helper()
	used := map[string]bool{}
	for _, g := range got {
		i := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(g, w) })
		if i < 0 {
			t.Errorf("not expected: %s", g)
			continue
		}
		used[want[i]] = true
	}
	for _, w := range want {
		if !used[w] {
			t.Errorf("missing: %s", w)
		}
	}
}

func (c *planCase) device(t *testing.T, i, k int) *topology.PCIDevice {
	t.Helper()
	return deviceOf(t, c.p, c.h, c.p.Nodes[i].Devices[k])
}

func (c *planCase) nic(t *testing.T) *topology.PCIDevice {
	t.Helper()
	i := slices.IndexFunc(c.p.Nodes[0].Cards, func(d plan.NodeDevice) bool { return d.Kind == plan.KindNIC })
	return deviceOf(t, c.p, c.h, c.p.Nodes[0].Cards[i].ID)
}

func TestIsolationByControlGroups(t *testing.T) {
	unprepared := func(t *testing.T) (*planCase, topology.CPUSet, topology.CPUSet) {
		c := epyc(t)
		c.h.CPUs.Isolated, c.h.CPUs.NoHzFull = &topology.CPUSet{}, &topology.CPUSet{}
		c.h.Kernel.Cmdline = new("root=/dev/nvme0n1p2 ro iommu=pt")
		lab := given(c.p, c.h)
		return c, lab, c.h.CPUs.Online.Difference(lab)
	}
	groups := func(others, guests topology.CPUSet, partition string) []facts.Cgroup {
		return []facts.Cgroup{
			{Path: "dev-hugepages.mount", CPUs: others.Union(guests)}, // empty
			{Path: "init.scope", CPUs: others, Partition: "member", Populated: true},
			{Path: "machine.slice", CPUs: guests, Partition: partition, Populated: true},
			{Path: "machine.slice/machine-qemu-1.scope", CPUs: guests, Partition: "member", Populated: true},
			{Path: "system.slice", CPUs: others, Partition: "member", Populated: true},
			{Path: "user.slice", CPUs: others, Partition: "member", Populated: true},
		}
	}
	tests := []struct {
		name  string
		make  func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup
		want  []string
		force string // part of the reported isolation
	}{
		{"the other slices are kept to the host's CPUs", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			return groups(keep, c.h.CPUs.Online, "member")
		}, nil, "control groups: init.scope, system.slice, user.slice may use "},
		{"an isolated partition", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			return groups(keep, lab, "isolated")
		}, nil,
			"machine.slice is a partition (isolated) with "},
		{"a partition that balances load inside", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			return groups(keep, lab, "root")
		}, nil,
			"machine.slice is a partition (root) with "},
		{"a partition that the kernel does not keep", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			return groups(c.h.CPUs.Online, lab, "isolated invalid (Cpu list in cpuset.cpus not exclusive)")
		}, []string{"failed isolated | host | nothing isolates them", "failed nohz-full",
			"failed kernel-args | rcu_nocbs="}, ""},
		{"one slice may use all", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			g := groups(keep, c.h.CPUs.Online, "member")
			g[5].CPUs = c.h.CPUs.Online
			return g
		}, []string{"failed isolated | host | nothing isolates them", "failed nohz-full",
			"failed kernel-args | rcu_nocbs="}, ""},
		{"a sibling is left to the host", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup {
			return groups(keep.Union(topology.CPUs(40)), lab.Difference(topology.CPUs(40)), "isolated")
		}, []string{"failed isolated | host | control groups: ", "failed nohz-full", "failed kernel-args | rcu_nocbs="},
			""},
		{"no groups at all", func(c *planCase, lab, keep topology.CPUSet) []facts.Cgroup { return nil },
			[]string{"failed isolated | host | nothing isolates them", "failed nohz-full",
				"failed kernel-args | rcu_nocbs="}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, lab, keep := unprepared(t)
			c.run.Cgroups = tt.make(c, lab, keep)
			got := c.host()
			wellFormed(t, got)
			matches(t, notOK(got), tt.want)
			i := slices.IndexFunc(got, func(f finding.Finding) bool { return f.ID == IDIsolated })
			if !strings.Contains(got[i].Have, tt.force) {
				t.Errorf("in force: %q, want %q", got[i].Have, tt.force)
			}
		})
	}
	c := epyc(t)
	got := c.host()
	if i := slices.IndexFunc(got, func(f finding.Finding) bool {
		return f.ID == IDIsolated
	}); !strings.HasPrefix(got[i].Have, "the kernel isolates 1-14,16-22") {
		t.Errorf("in force: %q", got[i].Have)
	}
}

func TestThreadsOfTheLabAreNotForeign(t *testing.T) {
	c := epyc(t)
	lab := topology.CPUs(c.p.Nodes[0].VCPUs...)
	c.run.Threads = append(c.run.Threads,
		facts.Thread{PID: 5000, TID: 5001, Name: "CPU 0/KVM", Allowed: topology.CPUs(lab.Min()), LastCPU: lab.Min()},
		facts.Thread{PID: 5002, TID: 5002, Name: "vhost-5000", Kernel: true, Allowed: lab, LastCPU: lab.Min()},
		facts.Thread{PID: 5004, TID: 5004, Name: "kvm-nx-lpage-recovery-5000", Kernel: true, Allowed: lab,
			LastCPU: lab.Min()},
		facts.Thread{PID: 5005, TID: 5005, Name: "kvm-pit/5000", Kernel: true, Allowed: lab, LastCPU: lab.Min()},
		// not the kernel's
		facts.Thread{PID: 5003, TID: 5003, Name: "vhost-5000", Allowed: lab, LastCPU: lab.Min()})
	c.own = []int{5000}
	matches(t, notOK(c.host()), []string{"failed foreign-threads | host | 1 foreign thread: 5003 vhost-5000"})
	c.own = nil
	matches(t, notOK(c.host()), []string{"failed foreign-threads | host | 5 foreign threads: 5001 CPU 0/KVM"})
}

func TestThreadsOfAnInterruptOrANUMANodeAreNotForeign(t *testing.T) {
	c := epyc(t)
	lab := topology.CPUs(c.p.Nodes[0].VCPUs...)
	for _, name := range []string{"kswapd1", "kcompactd3", "irq/25-pciehp"} {
		c.run.Threads = append(c.run.Threads, facts.Thread{PID: 140, TID: 140, Name: name, Kernel: true, Allowed: lab,
			LastCPU: lab.Min()})
	}
	matches(t, notOK(c.host()), nil)
	for _, name := range []string{"kswapd1", "irq/25-pciehp"} { // programs
		c.run.Threads = append(c.run.Threads, facts.Thread{PID: 141, TID: 141, Name: name, Allowed: lab,
			LastCPU: lab.Min()})
	}
	matches(t, notOK(c.host()), []string{"failed foreign-threads | host | 2 foreign threads: 141 kswapd1"})
}

func TestAHostilePlanIsJudgedAndDoesNotPanic(t *testing.T) {
	c := epyc(t)
	p := c.p
	p.Nodes[0].VCPUs = []int{-1, 1 << 30, 5}
	p.Nodes[0].Cells = []plan.Cell{{VCPUs: 1 << 40, FirstVCPU: -3}, {FirstVCPU: 1 << 62, VCPUs: 1 << 62}}
	p.Nodes[0].GuestNUMA, p.Nodes[0].SMT, p.Nodes[0].Threads = true, true, 1<<62
	p.Nodes[0].Devices = []string{"", "x/vf", "0000:41:00.0/vf999999999999999999999", "/vf-1", "0000:ff:1f.7"}
	p.Nodes[0].Memory = []plan.NodeMemory{{NUMANode: -1, Bytes: 1 << 63, PageBytes: 3}}
	p.Nodes[1].Cards = []plan.NodeDevice{{ID: "?", Kind: "vf"}, {}}
	p.Hugepages = append(p.Hugepages, plan.Hugepages{NUMANode: -1, PageBytes: 0, Count: -5},
		plan.Hugepages{NUMANode: 0, PageBytes: 1 << 30, Count: -1 << 63, Held: -1})
	p.VFs = []plan.PFCount{{PF: "", Count: -1}, {PF: "0000:41:00.0", Count: 1 << 30}}
	p.KernelArgs = []string{"", "=", "nohz_full=x", "rcu_nocbs=", "iommu", "intel_iommu=on=on"}
	for _, run := range []*facts.Running{nil, {}, c.run} {
		wellFormed(t, Host(p, c.h, run))
		wellFormed(t, Host(p, &topology.Host{}, run))
	}
	wellFormed(t, Domains(p, c.h, []Domain{{Node: "vm00", State: "running", PID: 1, VCPUs: []int{1},
		Process: &facts.Process{}}}))
	odd := topology.Host{Cores: []topology.Core{{}}, NUMANodes: []topology.NUMANode{{ID: 1}}}
	wellFormed(t, Guests(p, c.h, map[string]*facts.Node{"vm00": {Host: odd}}))
	wellFormed(t, Guests(&plan.Plan{Nodes: []plan.Node{{Name: "vm00"}}}, &topology.Host{},
		map[string]*facts.Node{"vm00": {}}))
}

func TestThisMachineCanBeJudged(t *testing.T) {
	run, err := inspect.ReadRunning(t.Context(), os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	c := epyc(t)
	got := Host(c.p, c.h, run)
	wellFormed(t, got)
	if diff := cmp.Diff(got, Host(c.p, c.h, run)); diff != "" {
		t.Errorf("the same twice gives another answer:\n%s", diff)
	}
}

func TestAJournalThatDoesNotKnowAll(t *testing.T) {
	for _, c := range []struct {
		strays []string
		err    error
		want   []string
	}{
		{nil, nil, nil},
		{[]string{"/etc/udev/rules.d/10-rackless-pair.rules", "0000:41:00.0 is kept for vfio-pci"}, nil,
			[]string{"failed prepare-journal | host | not in it: /etc/udev/rules.d/10-rackless-pair.rules, " +
				"0000:41:00.0 is kept for vfio-pci"}},
		{nil, errors.New("journal is damaged: line 1 is missing"),
			[]string{"failed prepare-journal | host | journal is damaged: line 1 is missing"}},
	} {
		matches(t, notOK([]finding.Finding{Journal(c.strays, c.err)}), c.want)
	}
}
