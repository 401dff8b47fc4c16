package build_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// The expected answers come from another solver, and from operators of such machines.
func TestCoresAreSplitAsDevicesAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, workload, node string
		want                 []int // cores per NUMA node, descending
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

// Ports of one card share a PCIe link and fail together, which has a cost and a note. If the lab names links, the ports
// of two nodes must reach each other, in matching order.
func TestPortsOfLabNodes(t *testing.T) {
	t.Parallel()
	const a0, a1, b0, b1 = "0000:41:00.0", "0000:41:00.1", "0000:61:00.0", "0000:61:00.1"
	parallel := fmt.Sprintf("links: [[%s, %s], [%s, %s]]\n", a0, b0, a1, b1)
	crossed := fmt.Sprintf("links: [[%s, %s], [%s, %s]]\n", a0, b1, a1, b0)
	node := func(rest string) string { return "{cpus: 8, memory: 8GiB, " + rest + "}" }
	for name, tt := range map[string]struct {
		links, nodes    string
		want            [][]string // one of the right answers; nil for any
		cards, unlinked int64      // sums of the terms' values
	}{
		"a card each":                     {nodes: "vm: " + node("count: 2, nics: 1")},
		"a card each, with GPUs":          {nodes: "vm: " + node("count: 2, gpus: 1, nics: 1")},
		"more nodes than cards":           {nodes: "vm: " + node("count: 3, nics: 1"), cards: 2},
		"virtual functions":               {nodes: "vm: " + node("count: 2, vfs: 1")},
		"one port for both is nic_shared": {nodes: "vm: " + node("count: 2, vfs: ['"+a0+"']")},
		"both ports of one node": {nodes: "vm: " + node("nics: ['"+a0+"', '"+a1+"']"),
			want: [][]string{{a0, a1}}},
		"virtual functions of the two ports": {
			nodes: "a: " + node("vfs: ['"+a0+"']") + "\n  b: " + node("vfs: ['"+a1+"']"), want: [][]string{{a0}, {a1}},
			cards: 2},
		"a cable": {links: "links: [[" + a1 + ", " + b0 + "]]\n", nodes: "vm: " + node("count: 2, nics: 1"),
			want: [][]string{{a1}, {b0}}},
		"a cable between the ports of a card": {links: "links: [[" + a0 + ", " + a1 + "]]\n",
			nodes: "vm: " + node("count: 2, nics: 1"), want: [][]string{{a0}, {a1}}, cards: 2},
		"a switch": {links: "links: [[" + a0 + ", " + a1 + ", " + b1 + "]]\n",
			nodes: "vm: " + node("count: 3, nics: 1"), want: [][]string{{a0}, {a1}, {b1}}, cards: 2},
		"virtual functions reach each other on one port and over the cable": {links: "links: [[" + a0 + ", " + b0 +
			"]]\n",
			nodes: "vm: " + node("count: 3, cpus: 4, vfs: 1")},
		"two cables": {links: parallel, nodes: "vm: " + node("count: 2, nics: 2"),
			want: [][]string{{a0, a1}, {b0, b1}}},
		"crossed cables": {links: crossed, nodes: "a: " + node("nics: ['"+a0+"', '"+a1+"']") + "\n  b: " +
			node("nics: ['"+b0+"', '"+b1+"']"), want: [][]string{{a0, a1}, {b1, b0}}},
		"no cable": {links: parallel, nodes: "a: " + node("nics: ['"+a0+"']") + "\n  b: " + node("nics: ['"+b1+"']"),
			want: [][]string{{a0}, {b1}}, unlinked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.ReplaceAll("name: ports\nworkload: rdma-latency\n"+tt.links+"nodes:\n  "+tt.nodes+"\n",
				"cpus: 8, memory: 8GiB, count: 3, cpus: 4", "memory: 8GiB, count: 3, cpus: 4")
			c := proved(t, epyc(t), parseLab(t, text), build.Options{})
			var ports [][]string
			for i := range c.pl.Nodes {
				var own []string
				for _, d := range c.pl.Nodes[i].Cards {
					if d.Kind != plan.KindGPU {
						own = append(own, d.ID)
					}
				}
				ports = append(ports, own)
			}
			sorted := slices.Clone(ports)
			slices.SortFunc(sorted, slices.Compare)
			if tt.want != nil && !cmp.Equal(tt.want, sorted) {
				t.Errorf("ports %v, want %v", ports, tt.want)
			}
			values := map[string]int64{}
			for _, term := range c.pl.Terms {
				values[term.Term] += term.Value
			}
			if values["card_shared"] != tt.cards || values["unlinked"] != tt.unlinked {
				t.Errorf("card_shared %d, unlinked %d on ports %v; want %d and %d", values["card_shared"],
					values["unlinked"], ports, tt.cards, tt.unlinked)
			}
			for says, want := range map[string]bool{"have ports of one card": tt.cards > 0,
				"do not reach each other": tt.unlinked > 0} {
				if slices.ContainsFunc(c.pl.Notes, func(s string) bool { return strings.Contains(s, says) }) != want {
					t.Errorf("notes %q; want one that says %q: %v", c.pl.Notes, says, want)
				}
			}
		})
	}
}

func TestLinksNamePortsThatAreThere(t *testing.T) {
	t.Parallel()
	for links, want := range map[string]string{
		"[0000:41:00.0, 0000:99:00.0]":                "no NIC 0000:99:00.0",
		"[0000:41:00.0, 0000:06:00.0]":                "no NIC 0000:06:00.0", // a GPU
		"[0000:41:00.0, enp65s0f0np0, 0000:61:00.0]":  "is named twice",
		"[enp65s0f0np0, enp97s0f0np0]":                "",
		"['41:00.1', '61:00.1'], [mlx5_0, '61:00.0']": "",
	} {
		l := parseLab(t, "name: links\nlinks: ["+links+"]\nnodes: {vm: {count: 2, cpus: 8, memory: 8GiB}}\n")
		_, err := build.Problem(epyc(t), l, build.Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", links, err, want)
		}
	}
}
