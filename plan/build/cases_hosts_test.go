package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

func (c *solved) nodesWithMemory(i int) map[int]int {
	all := map[int]int{}
	for _, m := range c.pl.Nodes[i].Memory {
		all[m.NUMANode] += int(m.Bytes >> 30)
	}
	return all
}

// oneGroup has no access control between its devices.
func oneGroup() machine {
	return machine{desc: "pack:1 core:8 pu:2", gib: []int{64}, devices: []device{{"gpu", 0, 7, 0}, {"gpu", 0, 7, 0},
		{"nic", 0, 7, 0}, {"nic", 0, 7, 0}}}
}

func TestOneIOMMUGroupForEverything(t *testing.T) {
	t.Parallel()
	t.Run("one lab node gets all of it, whatever it asks for", func(t *testing.T) {
		t.Parallel()
		c := proved(t, oneGroup().host(t), labOf(1, gpus(some(1)), nics(some(1))), build.Options{})
		got := slices.Sorted(slices.Values(c.pl.Nodes[0].Devices))
		want := []string{"0000:10:00.0", "0000:10:00.1", "0000:11:00.0", "0000:11:00.1", "0000:12:00.0", "0000:13:00.0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("functions (-want +got):\n%s", diff)
		}
	})
	t.Run("two cannot share it, and the group is named", func(t *testing.T) {
		t.Parallel()
		text := whyNot(t, oneGroup().host(t), labOf(2, gpus(some(1))))
		for _, part := range []string{"vm00", "vm01", "IOMMU group 7"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not name %s", text, part)
			}
		}
	})
	t.Run("with the host's disk in it nobody gets anything, and the disk is named", func(t *testing.T) {
		t.Parallel()
		m := oneGroup()
		m.devices = append(m.devices, device{"disk", 0, 7, 0})
		text := whyNot(t, m.host(t), labOf(1, gpus(some(1))))
		for _, part := range []string{"IOMMU group 7", "disk nvme4n1"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not name %s", text, part)
			}
		}
	})
}

func TestMemoryOnOneNodeOnly(t *testing.T) {
	t.Parallel()
	m := machine{desc: "pack:2 numa:1 core:8 pu:2", gib: []int{64, 0}, distances: socketDistances(2, 1, 10, 21)}
	t.Run("what fits goes where the memory is", func(t *testing.T) {
		t.Parallel()
		c := proved(t, m.host(t), with(labOf(1, cpus(8), memory(16*lab.GiB)), reserve(2)), build.Options{})
		if nodes, _ := c.nodesOf(0); !slices.Equal(nodes, []int{0}) {
			t.Errorf("cores on nodes %v; want node 0, which has the memory", nodes)
		}
	})
	t.Run("cores beyond it join the cell of the memory", func(t *testing.T) {
		t.Parallel()
		c := proved(t, m.host(t), with(labOf(1, cpus(24), memory(16*lab.GiB)), reserve(2)), build.Options{})
		n := &c.pl.Nodes[0]
		if diff := cmp.Diff(map[int]int{0: 16}, c.nodesWithMemory(0)); diff != "" {
			t.Errorf("memory (-want +got):\n%s", diff)
		}
		if len(n.Cells) != 1 || n.Cells[0].VCPUs != 24 || n.GuestNUMA {
			t.Errorf("cells %+v; want one with all 24 virtual CPUs", n.Cells)
		}
	})
	t.Run("more than the node has is refused", func(t *testing.T) {
		t.Parallel()
		text := whyNot(t, m.host(t), with(labOf(2, cpus(8), memory(40*lab.GiB)), reserve(2)))
		if !strings.Contains(text, "64") {
			t.Errorf("%q does not say that 64 GiB are there", text)
		}
	})
	t.Run("hugepages that somebody uses stay his, and the kernel is asked for both", func(t *testing.T) {
		t.Parallel()
		m := m
		m.gib = []int{64, 64}
		m.change = func(h *topology.Host) {
			h.NUMANodes[0].Hugepages = []topology.HugepagePool{pool(gib, 60, 4)}
			h.NUMANodes[1].Hugepages = []topology.HugepagePool{pool(gib, 0, 0)}
		}
		c := proved(t, m.host(t), with(labOf(1, cpus(8), memory(16*lab.GiB)), reserve(2)), build.Options{})
		want := []plan.Hugepages{{NUMANode: 0, PageBytes: gib, Held: 56}, {NUMANode: 1, PageBytes: gib, Count: 16}}
		if diff := cmp.Diff(want, c.pl.Hugepages); diff != "" {
			t.Errorf("hugepages (-want +got):\n%s", diff)
		}
		if !slices.Contains(c.pl.KernelArgs, "hugepages=0:56,1:16") {
			t.Errorf("kernel arguments %q", c.pl.KernelArgs)
		}
	})
}

// Such nodes hold HBM, CXL memory, or a GPU's own.
func TestNodesWithoutCPUs(t *testing.T) {
	t.Parallel()
	cxl := machine{desc: "pack:2 [numa(memory=16GiB)] [numa(memory=64GiB)] core:8 pu:2",
		change: func(h *topology.Host) {
			d := [][]int{{10, 24, 21, 34}, {24, 10, 34, 21}, {21, 34, 10, 38}, {34, 21, 38, 10}}
			order := []int{0, 2, 1, 3} // a socket's nodes would be consecutive
			for i := range h.NUMANodes {
				h.NUMANodes[i].Distances = nil
				for j := range h.NUMANodes {
					h.NUMANodes[i].Distances = append(h.NUMANodes[i].Distances, d[order[i]][order[j]])
				}
				if h.NUMANodes[i].CPUs.IsEmpty() {
					h.NUMANodes[i].Kind = "cxl"
				}
			}
		}}
	withCPUs := func(h *topology.Host) (ids []int) {
		for _, n := range h.NUMANodes {
			if !n.CPUs.IsEmpty() {
				ids = append(ids, n.ID)
			}
		}
		return ids
	}
	t.Run("what fits stays on memory beside the cores", func(t *testing.T) {
		t.Parallel()
		h := cxl.host(t)
		c := proved(t, h, with(labOf(2, cpus(8), memory(16*lab.GiB)), reserve(2)), build.Options{})
		for i := range c.pl.Nodes {
			nodes, _ := c.nodesOf(i)
			if diff := cmp.Diff(map[int]int{nodes[0]: 16}, c.nodesWithMemory(i)); diff != "" ||
				!slices.Contains(withCPUs(h), nodes[0]) {
				t.Errorf("%s: cores on %v, memory (-want +got):\n%s", c.pl.Nodes[i].Name, nodes, diff)
			}
			if c.pl.Nodes[i].GuestNUMA {
				t.Errorf("%s: %d cells", c.pl.Nodes[i].Name, len(c.pl.Nodes[i].Cells))
			}
		}
	})
	t.Run("what does not fit goes to the nearest, and the guest sees it as a cell without CPUs", func(t *testing.T) {
		t.Parallel()
		h := cxl.host(t)
		c := proved(t, h, with(labOf(1, cpus(8), memory(24*lab.GiB)), reserve(2), workload(lab.WorkloadRDMALatency)),
			build.Options{})
		n := &c.pl.Nodes[0]
		if len(n.Cells) != 2 || n.Cells[0].VCPUs+n.Cells[1].VCPUs != 8 {
			t.Errorf("cells %+v; want two", n.Cells)
		}
		sum := 0
		for node, size := range c.nodesWithMemory(0) {
			sum += size
			if nodes, _ := c.nodesOf(0); !slices.Contains(nodes, node) && h.NUMANodes[node].Kind != "cxl" {
				t.Errorf("memory on node %d, cores on %v", node, nodes)
			}
		}
		if sum != 24 {
			t.Errorf("%d GiB; want 24", sum)
		}
	})
	t.Run("a GPU's own memory and persistent memory back no guest", func(t *testing.T) {
		t.Parallel()
		m := cxl
		m.change = func(h *topology.Host) {
			for i := range h.NUMANodes {
				if h.NUMANodes[i].CPUs.IsEmpty() {
					h.NUMANodes[i].Kind = []string{"gpu", "nvdimm"}[i/2]
				}
			}
		}
		text := whyNot(t, m.host(t), with(labOf(1, cpus(8), memory(40*lab.GiB)), reserve(2)))
		if !strings.Contains(text, "32") {
			t.Errorf("%q does not say that 32 GiB can be given", text)
		}
	})
	t.Run("fast memory is taken where the ordinary is full", func(t *testing.T) {
		t.Parallel()
		m := machine{desc: "pack:1 [numa(memory=16GiB)] [numa(memory=16GiB)] core:8 pu:2",
			kinds:     map[int]string{1: "hbm"},
			distances: [][]int{{10, 13}, {13, 10}}}
		c := proved(t, m.host(t), with(labOf(1, cpus(8), memory(20*lab.GiB)), reserve(2)), build.Options{})
		if diff := cmp.Diff(map[int]int{0: 16, 1: 4}, c.nodesWithMemory(0)); diff != "" {
			t.Errorf("memory (-want +got):\n%s", diff)
		}
	})
}

// Sub-NUMA clustering (SNC) and nodes per socket (NPS).
func TestSeveralNodesToASocket(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		sockets, nodes    int
		l3s, cores        int // per node
		near, far         int
		lab               *lab.Lab
		wantNodes         int // of a lab node
		wantSameSocket    bool
		wantSharedL3Terms int64
	}{
		{"NPS4: a lab node of one node's size is on one node", 2, 4, 2, 4, 12, 32,
			labOf(4, cpus(12), memory(16*lab.GiB)), 1, true, 0},
		{"NPS4: one of two nodes' size stays in its socket", 2, 4, 2, 4, 12, 32, labOf(2, cpus(28), memory(32*lab.GiB)),
			2, true, 0},
		{"SNC2: two lab nodes have a socket each rather than half of both", 2, 2, 1, 8, 11, 21,
			labOf(2, cpus(28), memory(32*lab.GiB)), 2, true, 0},
		{"SNC4 on one socket: one lab node on all of it", 1, 4, 1, 6, 12, 12, labOf(1, cpus(44), memory(64*lab.GiB)), 4,
			true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := machine{desc: fmt.Sprintf("pack:%d numa:%d l3:%d core:%d pu:2", tt.sockets, tt.nodes, tt.l3s,
				tt.cores),
				distances: socketDistances(tt.sockets, tt.nodes, tt.near, tt.far)}
			for range tt.sockets * tt.nodes {
				m.gib = append(m.gib, 64)
			}
			c := proved(t, m.host(t), with(tt.lab, reserve(2)), build.Options{})
			for i := range c.pl.Nodes {
				nodes, _ := c.nodesOf(i)
				if len(nodes) != tt.wantNodes {
					t.Errorf("%s is on nodes %v; want %d", c.pl.Nodes[i].Name, nodes, tt.wantNodes)
				}
				for _, n := range nodes {
					if n/tt.nodes != nodes[0]/tt.nodes {
						t.Errorf("%s is on nodes %v of two sockets", c.pl.Nodes[i].Name, nodes)
					}
				}
			}
			if got := c.sum(plan.TermL3Shared); got != tt.wantSharedL3Terms {
				t.Errorf("shared L3 caches cost %d; want %d", got, tt.wantSharedL3Terms)
			}
			if got := c.sum(plan.TermMemoryDistance); got != 0 {
				t.Errorf("memory away from its cores costs %d", got)
			}
		})
	}
}

func hybrid(t *testing.T) *topology.Host {
	return machine{desc: "pack:1 l3:1 core:14 pu:2", gib: []int{64}, change: func(h *topology.Host) {
		cpu := 0
		for i := range h.Cores {
			k := &h.Cores[i]
			k.Kind, k.CPUs = topology.KindPerformance, topology.CPUs(cpu, cpu+1)
			if i >= 6 {
				k.Kind, k.CPUs = topology.KindEfficiency, topology.CPUs(cpu)
			}
			cpu += k.CPUs.Len()
		}
		all := topology.CPURange(0, cpu-1)
		h.CPUs.Online, h.NUMANodes[0].CPUs, h.Packages[0].CPUs, h.L3[0].CPUs = all, all, all, all
	}}.host(t)
}

func TestHybridCores(t *testing.T) {
	t.Parallel()
	small := func(c *solved, i int) (n int) {
		for _, id := range c.r.Placement.Nodes[i].Cores {
			if c.p.Cores[id].Efficiency {
				n++
			}
		}
		return n
	}
	t.Run("a lab node gets the large cores, and the host the small ones", func(t *testing.T) {
		t.Parallel()
		c := proved(t, hybrid(t), with(labOf(1, cpus(12), memory(8*lab.GiB)), reserve(2)), build.Options{})
		if got := small(c, 0); got != 0 || !c.pl.Nodes[0].SMT {
			t.Errorf("%d small cores, SMT %v; want none and true", got, c.pl.Nodes[0].SMT)
		}
		if got := c.pl.Housekeeping.CPUs.String(); got != "12-19" {
			t.Errorf("the host keeps CPUs %s; want the small cores, 12-19", got)
		}
	})
	t.Run("with siblings only large cores will do", func(t *testing.T) {
		t.Parallel()
		text := whyNot(t, hybrid(t), with(labOf(1, cpus(16), memory(8*lab.GiB), smt(lab.On)), reserve(2)))
		if !strings.Contains(text, "core") {
			t.Errorf("%q", text)
		}
	})
	t.Run("without them the rest is small", func(t *testing.T) {
		t.Parallel()
		c := proved(t, hybrid(t), with(labOf(1, cpus(10), memory(8*lab.GiB), smt(lab.Off)), reserve(2)),
			build.Options{})
		if got := small(c, 0); got != 4 {
			t.Errorf("%d small cores; want 4 beside the 6 large ones", got)
		}
	})
}

// One lab node per socket has all resources on it.
func TestTwoToEightSockets(t *testing.T) {
	t.Parallel()
	for _, sockets := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(sockets), func(t *testing.T) {
			t.Parallel()
			m := machine{desc: fmt.Sprintf("pack:%d numa:1 l3:1 core:12 pu:2", sockets),
				distances: socketDistances(sockets, 1, 10, 21)}
			for n := range sockets {
				m.gib = append(m.gib, 128)
				m.devices = append(m.devices, device{"gpu", n, 0, 0}, device{"nic", n, 0, 8})
			}
			l := with(labOf(sockets, cpus(20), memory(96*lab.GiB), gpus(some(1)), nics(some(1))), reserve(2*sockets),
				workload(lab.WorkloadGPUCollective))
			c := proved(t, m.host(t), l, build.Options{})
			for i := range c.pl.Nodes {
				n := &c.pl.Nodes[i]
				nodes, _ := c.nodesOf(i)
				for _, d := range n.Cards {
					if len(nodes) != 1 || *d.NUMANode != nodes[0] {
						t.Errorf("%s: cores on %v, %s on node %d", n.Name, nodes, d.ID, *d.NUMANode)
					}
				}
				if diff := cmp.Diff(map[int]int{nodes[0]: 96}, c.nodesWithMemory(i)); diff != "" {
					t.Errorf("%s: memory (-want +got):\n%s", n.Name, diff)
				}
			}
			// Root ports of one host bridge: two steps (PHB) of 900 for each lab node.
			if want := int64(sockets * 2 * 900); c.pl.Cost != want {
				t.Errorf("cost %d; want %d", c.pl.Cost, want)
			}
			vf := with(labOf(2*sockets, cpus(8), memory(32*lab.GiB), vfs(some(1))), reserve(sockets))
			if c := proved(t, m.host(t), vf, build.Options{}); c.sum(plan.TermDeviceNearest) != 0 {
				t.Errorf("%d lab nodes with a virtual function: some are away from their NIC for %d", 2*sockets,
					c.sum(plan.TermDeviceNearest))
			}
		})
	}
}
