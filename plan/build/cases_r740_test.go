package build_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// As published. Both NICs and the disk are on node 0, on which the host keeps one of its four cores.
func TestOneLabNodeOnNearlyAllOfTheR740(t *testing.T) {
	t.Parallel()
	c := proved(t, readHost(t, hostR740), labFile(t, "r740-one.yaml"), build.Options{})
	_, cores := c.nodesOf(0)
	if diff := cmp.Diff(map[int]int{0: 23, 1: 21}, cores); diff != "" {
		t.Errorf("cores by node (-want +got):\n%s", diff)
	}
	n := &c.pl.Nodes[0]
	if len(n.VCPUs) != 44 || n.SMT {
		t.Errorf("%d virtual CPUs, SMT %v; want a whole core for each of 44", len(n.VCPUs), n.SMT)
	}
	// In proportion to the cores: 160 GiB by 23 to 21.
	want := []plan.NodeMemory{{NUMANode: 0, Bytes: 84 << 30, PageBytes: 1 << 30}, {NUMANode: 1, Bytes: 76 << 30,
		PageBytes: 1 << 30}}
	if diff := cmp.Diff(want, n.Memory); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	if len(n.Cards) != 1 || n.Cards[0].Kind != plan.KindVF || !strings.HasPrefix(n.Cards[0].ID, "0000:3b:00.") ||
		*n.Cards[0].Cell != 0 {
		t.Errorf("devices %+v; want a virtual function of the ConnectX-5 on cell 0", n.Cards)
	}
	if len(c.pl.VFs) != 1 || c.pl.VFs[0].Count != 1 {
		t.Errorf("virtual functions %+v; want 1 of one port", c.pl.VFs)
	}
	// Each of the 21 far cores is 11 units away. A unit weighs 216 over 44 cores, rounded. The second node costs 300.
	if c.pl.Cost != 21*11*5+300 {
		t.Errorf("cost %d; want %d", c.pl.Cost, 21*11*5+300)
	}
}

// There are few enough splits to try all.
func TestEightLabNodesOnTheR740(t *testing.T) {
	t.Parallel()
	c := proved(t, readHost(t, hostR740), labFile(t, "r740-eight.yaml"), build.Options{})
	ports := map[string]int{}
	for i := range c.pl.Nodes {
		ports[c.nicOf(t, i)]++
	}
	if diff := cmp.Diff(map[string]int{"0000:3b:00.0": 4, "0000:3b:00.1": 4}, ports); diff != "" {
		t.Errorf("lab nodes on each port (-want +got):\n%s", diff)
	}
	least, tried := int64(-1), 0
	var near [8]int // descending, because the lab nodes are equal
	var split func(i, left, most int)
	split = func(i, left, most int) {
		if i == len(near) {
			if left > 23-16 {
				return
			}
			for first := range 9 {
				pl := r740Split(c.p, near, first)
				tried++
				if cost := plan.Cost(plan.Evaluate(c.p, pl)); least < 0 || cost < least {
					least = cost
				}
			}
			return
		}
		for near[i] = min(left, most); near[i] >= 0; near[i]-- {
			split(i+1, left-near[i], near[i])
		}
		near[i] = 0
	}
	split(0, 23, 5) // node 0 has 24 cores, and the host keeps one
	if c.pl.Cost != least {
		t.Errorf("cost %d; the best of %d splits costs %d", c.pl.Cost, tried, least)
	}
}

// near is the number of cores on node 0; first lab nodes use the first port.
func r740Split(p *plan.Problem, near [8]int, first int) *plan.Placement {
	var cores [2][]int
	for _, k := range p.Cores {
		cores[k.NUMANode] = append(cores[k.NUMANode], k.ID)
	}
	var nics []int
	for d := range p.Devices {
		if p.Devices[d].VFs > 0 {
			nics = append(nics, d)
		}
	}
	pl := &plan.Placement{}
	for i, k := range near {
		n := plan.NodePlacement{Cores: slices.Concat(cores[0][:k], cores[1][:5-k])}
		slices.Sort(n.Cores)
		cores[0], cores[1] = cores[0][k:], cores[1][5-k:]
		n.Memory = memoryOn(0, int64(4*k), 1, int64(4*(5-k))) // 20 GiB
		n.VFs = []plan.VFCount{{Device: nics[0], Count: 1}}
		if i >= first {
			n.VFs[0].Device = nics[1]
		}
		pl.Nodes = append(pl.Nodes, n)
	}
	return pl
}

// A port without a cable has an unknown rate. If the other port of the card is up, no lab node may need it.
func TestAPortWithoutALinkIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostR740)
	for i := range h.NICs {
		if n := &h.NICs[i]; n.Address.String() == "0000:3b:00.0" {
			n.SpeedMbps = nil
			for k := range n.Ports {
				n.Ports[k].SpeedMbps, n.Ports[k].State, n.Ports[k].Carrier = nil, "down", new(false)
			}
			for k := range n.Devices {
				n.Devices[k].Ports = nil
			}
		}
	}
	c := proved(t, h, labFile(t, "r740-one.yaml"), build.Options{})
	if got := c.nicOf(t, 0); got != "0000:3b:00.1" {
		t.Errorf("the virtual function is of %s; want the port with a link", got)
	}
}
