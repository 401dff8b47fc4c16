package advise

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

var compare = cmp.Options{
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
	cmp.Comparer(func(a, b topology.CPUSet) bool { return a.Equal(b) }),
}

func TestAMoveThatNoHandCanMakeIsNone(t *testing.T) {
	t.Parallel()
	epyc, h20 := readHost(t, "epyc-7551p.ttar"), readHost(t, "h20.txt")
	for _, c := range []struct {
		name string
		h    *topology.Host
		m    move
	}{
		{"no such card", epyc, move{device: "0000:99:00.0"}},
		{"no such other card", epyc, move{device: "0000:41:00.0", other: "0000:99:00.0"}},
		{"two functions of one card", epyc, move{device: "0000:41:00.0", other: "0000:41:00.1"}},
		{"a module with NVLink", h20, move{device: "GPU0", node: 1}},
		{"a card for a module with NVLink", h20, move{device: "NIC0", other: "GPU0"}},
	} {
		if c.m.apply(c.h) != nil {
			t.Errorf("%s: %+v was made", c.name, c.m)
		}
	}
}

func TestASwapExchangesPathsAndNUMANodes(t *testing.T) {
	t.Parallel()
	after := moved(t, readHost(t, "epyc-7551p.ttar"), move{device: "0000:41:00.0", other: "0000:21:00.0"})
	tree := topology.NewTree(after)
	for _, c := range []struct {
		a, b string
		want topology.PathClass
	}{
		{"0000:41:00.0", "0000:06:00.0", topology.PathSYS},
		{"0000:21:00.0", "0000:61:00.0", topology.PathSYS},
		{"0000:41:00.0", "0000:41:00.1", topology.PathPIX},
	} {
		if got := tree.Path(c.a, c.b).Class; got != c.want {
			t.Errorf("path %s to %s is %s, want %s", c.a, c.b, got, c.want)
		}
	}
	nodes := map[string]int{}
	for _, g := range after.GPUs {
		if g.NUMANode != nil {
			nodes[g.ID()] = *g.NUMANode
		}
	}
	for _, n := range after.NICs {
		if n.NUMANode != nil {
			nodes[n.ID()] = *n.NUMANode
		}
	}
	for id, want := range map[string]int{"0000:41:00.0": 1, "0000:41:00.1": 1, "0000:21:00.0": 2, "0000:06:00.0": 0,
		"0000:61:00.0": 3} {
		if nodes[id] != want {
			t.Errorf("%s is on NUMA node %d, want %d", id, nodes[id], want)
		}
	}
	for _, g := range after.IOMMU.Groups {
		for _, a := range g.Devices {
			if d := tree.Device(a); d == nil || d.IOMMUGroup == nil || *d.IOMMUGroup != g.ID {
				t.Errorf("IOMMU group %d lists %s, which says otherwise", g.ID, a)
			}
		}
	}
}

func TestOnAHostKnownByItsMatrixASwapExchangesRows(t *testing.T) {
	t.Parallel()
	after := moved(t, readHost(t, "h20.txt"), move{device: "NIC0", other: "NIC2"})
	for _, c := range []struct{ a, b, want string }{
		{"GPU1", "NIC2", "PIX"}, {"GPU4", "NIC0", "PIX"}, {"GPU0", "NIC0", "SYS"}, {"NIC0", "NIC3", "NODE"},
		{"GPU0", "GPU1", "NV18"},
	} {
		if got := after.Path(c.a, c.b).Label(); got != c.want {
			t.Errorf("path %s to %s is %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

func TestAMovedCardIsOnTheNodeAndNotBelowItsOldPort(t *testing.T) {
	t.Parallel()
	after := moved(t, readHost(t, "epyc-7551p.ttar"), move{device: "0000:41:00.1"})
	tree := topology.NewTree(after)
	for _, id := range []string{"0000:41:00.0", "0000:41:00.1"} {
		if got := tree.Path(id, "0000:06:00.0").Class; got != topology.PathPHB {
			t.Errorf("path of %s to the GPU is %s, want PHB", id, got)
		}
	}
	h20 := moved(t, readHost(t, "h20.txt"), move{device: "NIC0", node: 1})
	if got := h20.Path("GPU4", "NIC0").Class; got != topology.PathUnknown {
		t.Errorf("a matrix says nothing of a card that was moved: got %s", got)
	}
}

func TestACardGoesBelowAFreePortAndNotBelowATakenOne(t *testing.T) {
	t.Parallel()
	h := readHost(t, "epyc-7551p.ttar")
	gpu, nic := "0000:06:00.0", "0000:41:00.0"
	at, _ := topology.ParsePCIAddr(gpu)
	up := topology.NewTree(h).Ancestors(at)
	if len(up) == 0 {
		t.Fatal("the GPU is below no port")
	}
	port := up[0].Address
	free := func(h *topology.Host) bool {
		return slices.ContainsFunc(freePorts(h, 0, cardOf(h, nic)), func(p *topology.PCIDevice) bool {
			return p.Address == port
		})
	}
	if free(h) {
		t.Errorf("port %s of the GPU counts as free", port)
	}
	h = without(t, h, gpu)
	if !free(h) {
		t.Errorf("port %s does not count as free without the GPU", port)
	}
	h = moved(t, h, move{device: nic, below: &port})
	at, _ = topology.ParsePCIAddr(nic)
	if d := topology.NewTree(h).Device(at); d.Parent == nil || *d.Parent != port || *d.NUMANode != 0 {
		t.Errorf("the card is at %+v, want below %s on NUMA node 0", d, port)
	}
	if free(h) {
		t.Errorf("port %s counts as free below the card", port)
	}
}

func realHosts(t *testing.T) map[string]*topology.Host {
	t.Helper()
	hosts := map[string]*topology.Host{"epyc": readHost(t, "epyc-7551p.ttar"), "h20": readHost(t, "h20.txt")}
	files, err := filepath.Glob("../../machine/inspect/testdata/corpus/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1<<20 || info.IsDir() {
			continue
		}
		if h, err := inspect.ReadFile(t.Context(), f); err == nil && len(h.GPUs)+len(h.NICs) > 1 {
			hosts[filepath.Base(f)] = h
		}
	}
	return hosts
}

func TestTwoSwapsAreNoneAndNoMoveChangesItsInput(t *testing.T) {
	t.Parallel()
	swapped := 0
	for name, h := range realHosts(t) {
		ids := []string{"0000:00:1f.9"}
		for i := range h.GPUs {
			ids = append(ids, h.GPUs[i].ID())
		}
		for i := range h.NICs {
			ids = append(ids, h.NICs[i].ID())
		}
		var ports []*topology.PCIAddr
		for i := range h.PCI {
			if h.PCI[i].IsBridge() {
				ports = append(ports, &h.PCI[i].Address)
			}
		}
		ports = append(ports, nil)
		was := deepCopy(h)
		rapid.Check(t, func(t *rapid.T) {
			m := move{device: rapid.SampledFrom(ids).Draw(t, "a"),
				node: rapid.IntRange(0, len(h.NUMANodes)).Draw(t, "node")}
			if rapid.Bool().Draw(t, "swap") {
				m.other = rapid.SampledFrom(ids).Draw(t, "b")
			} else {
				m.below = rapid.SampledFrom(ports).Draw(t, "port")
			}
			after := m.apply(h)
			same(t, was, h, name, m, "changed its host")
			if after == nil || m.other == "" {
				return
			}
			swapped++
			again := m.apply(after)
			if again == nil {
				t.Fatalf("%s: %+v cannot be made twice", name, m)
			}
			same(t, h, again, name, m, "twice is not what there was")
		})
	}
	if swapped == 0 {
		t.Error("nothing was swapped")
	}
}

// Reflection takes a tenth of the time of cmp.
func same(t *rapid.T, want, got *topology.Host, name string, m move, what string) {
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: %+v %s:\n%s", name, m, what, cmp.Diff(want, got, compare))
	}
}

func TestACopySharesNothingThatCanBeWritten(t *testing.T) {
	t.Parallel()
	type inner struct{ N *int }
	type outer struct {
		A []inner
		M map[string][]int
		P *inner
		S topology.CPUSet
	}
	n := 1
	v := outer{A: []inner{{&n}}, M: map[string][]int{"x": {1}}, P: &inner{&n}, S: topology.CPUs(1)}
	c := deepCopy(v)
	*c.A[0].N, c.M["x"][0], *c.P.N = 7, 7, 7
	if n != 1 || v.M["x"][0] != 1 {
		t.Errorf("writing to the copy changed what it was made of: %d, %v", n, v.M)
	}
	if !c.S.Equal(v.S) || deepCopy((*int)(nil)) != nil || deepCopy([]int(nil)) != nil ||
		deepCopy(map[int]int(nil)) != nil {
		t.Error("a copy is not equal to what it was made of")
	}
}
