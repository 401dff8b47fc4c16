package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan/build"
)

// How cores are split over NUMA nodes: by the devices there, else evenly where it costs the same.
// Right answers are those of another solver and of people who run such machines.
func TestCoresAreSplitAsDevicesAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, workload, node string
		want                 []int // cores, most first
	}{
		{hostH20, "gpu-collective", "cpus: 80, memory: 400GiB, gpus: 8, nics: 4", []int{20, 20}},
		{hostH20, "gpu-collective", "cpus: 80, memory: 400GiB, gpus: 6, nics: 2", []int{27, 13}}, // 4 + 2 GPUs
		{hostH20, "mixed", "cpus: 60, memory: 60GiB, gpus: 5, nics: 1", []int{24, 6}},
		{hostH20, "gpu-compute", "cpus: 100, memory: 60GiB, gpus: 2, nics: 0", []int{48, 2}}, // both on one NUMA node
		{hostH20, "rdma-latency", "cpus: 112, memory: 56GiB, nics: 0", []int{28, 28}},        // a tie
		{hostEPYC, "rdma-latency", "cpus: 16, memory: 16GiB, gpus: 1, nics: 1", []int{4, 4}},
		{hostEPYC, "cpu-bandwidth", "cpus: 16, memory: 64GiB, nics: 0", []int{4, 4}},
		{hostEPYC, "cpu-bandwidth", "cpus: 42, memory: 42GiB, nics: 0", []int{7, 7, 7}},
		{hostEPYC, "cpu-bandwidth", "cpus: 14, memory: 14GiB, nics: 0", []int{7}}, // one is enough
	} {
		t.Run(tt.host+" "+tt.workload+" "+tt.node, func(t *testing.T) {
			t.Parallel()
			lab := fmt.Sprintf("name: split\nworkload: %s\nnodes: {vm: {%s}}\n", tt.workload, tt.node)
			c := proved(t, readHost(t, tt.host), parseLab(t, lab), build.Options{})
			_, on := c.nodesOf(0)
			var cores []int
			for node, n := range on {
				cores = append(cores, n)
				for _, m := range c.pl.Nodes[0].Memory {
					want := c.pl.Nodes[0].MemoryBytes / uint64(c.p.Requests[0].Cores) * uint64(n)
					if m.NUMANode == node && max(m.Bytes, want)-min(m.Bytes, want) > c.p.PageBytes {
						t.Errorf("%d bytes beside %d cores, want about %d", m.Bytes, n, want)
					}
				}
			}
			slices.Sort(cores)
			slices.Reverse(cores)
			if diff := cmp.Diff(tt.want, cores); diff != "" {
				t.Errorf("cores by NUMA node (-want +got):\n%s%v", diff, c.pl.Terms)
			}
		})
	}
}

// Two lab nodes on the two ports of one card share a PCIe link, and fail together: where another
// card is as good, each has one of its own.
func TestLabNodesHaveACardEachWhereItCostsNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		lab := fmt.Sprintf("name: pair\nworkload: rdma-latency\n"+
			"nodes: {vm: {count: %d, cpus: 8, memory: 8GiB, gpus: 0, nics: 1}}\n", n)
		c := proved(t, epyc(t), parseLab(t, lab), build.Options{})
		cards := map[string]bool{}
		for i := range n {
			for _, d := range c.r.Placement.Nodes[i].NICs {
				card, _, _ := strings.Cut(c.p.Devices[d].ID, ".")
				cards[card] = true
			}
		}
		said := slices.ContainsFunc(c.pl.Notes, func(s string) bool { return strings.Contains(s, "ports of one card") })
		if said != (n > 2) {
			t.Errorf("%d lab nodes on %v, and the notes are %q", n, cards, c.pl.Notes)
		}
		if len(cards) != 2 {
			t.Errorf("%d lab nodes have ports of %d cards (%v), want 2", n, len(cards), cards)
		}
	}
	text := "name: pair\nworkload: rdma-latency\nnodes: {vm: {count: 2, cpus: 8, memory: 8GiB, gpus: 1, nics: 1}}\n"
	c := proved(t, epyc(t), parseLab(t, text), build.Options{})
	if one, two := c.nicOf(t, 0), c.nicOf(t, 1); one[:8] == two[:8] {
		t.Errorf("vm00 has %s and vm01 %s", one, two)
	}
}
