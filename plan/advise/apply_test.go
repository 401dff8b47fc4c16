package advise

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

var compare = cmp.Options{
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
	cmp.Comparer(func(a, b topology.CPUSet) bool { return a.Equal(b) }),
}

func TestAnEditOfTheLabChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	h, before := readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml")
	for _, c := range []struct {
		edit   string
		change func(l *lab.Lab)
	}{
		{"reserve 8", func(l *lab.Lab) { l.Reserve.Cores = new(8) }},
		{"cpus vm00 14", func(l *lab.Lab) { l.Nodes[0].CPUs = 14 }},
		{"cpus vm01 auto", func(l *lab.Lab) { l.Nodes[1].AutoCPUs = true }},
		{"memory vm00 64GiB", func(l *lab.Lab) { l.Nodes[0].Memory = 64 * lab.GiB }},
		{"memory vm00 auto", func(l *lab.Lab) { l.Nodes[0].AutoMemory = true }},
		{"workload gpu-compute", func(l *lab.Lab) { l.Workload = lab.WorkloadGPUCompute }},
		{"smt off", func(l *lab.Lab) { l.Nodes[0].SMT, l.Nodes[1].SMT = lab.Off, lab.Off }},
		{"guest-numa off vm01", func(l *lab.Lab) { l.Nodes[1].GuestNUMA = lab.Off }},
		{"hugepages 2MiB", func(l *lab.Lab) { l.Hugepages = lab.Hugepages2MiB }},
		{"without tenants", func(l *lab.Lab) { l.Tenants = lab.TenantsIgnore }},
		{"remove node vm00", func(l *lab.Lab) { l.Nodes = l.Nodes[1:] }},
	} {
		t.Run(c.edit, func(t *testing.T) {
			want := deepCopy(before)
			c.change(want)
			_, got := edited(t, h, before, c.edit)
			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnAddedNodeIsTheOneThatTheFileWouldHave(t *testing.T) {
	t.Parallel()
	const two = "name: x\nnodes:\n  vm00: {nics: 2, cpus: 4}\n  vm01: {nics: 1}\n"
	h := readHost(t, "epyc-7551p.ttar")
	_, got := edited(t, h, parseLab(t, two), "add node vm02 like vm00")
	want := parseLab(t, two+"  vm02: {nics: 2, cpus: 4}\n")
	// The file gives the third node the third address of each subnet; what an edit sees is that .2
	// of the second one is free.
	want.Nodes[2].NICs[1].Addr = netip.MustParsePrefix("10.0.1.2/24")
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Error(diff)
	}
	_, got = edited(t, h, parseLab(t, two), "add node vm02")
	if n := got.Nodes[2]; n.CPUs != lab.DefaultCPUs || len(n.NICs) != 1 {
		t.Errorf("without like it is %+v, want a copy of the last", n)
	}
}

func TestARemovedNodeLeavesItsAffinities(t *testing.T) {
	t.Parallel()
	l := parseLab(t, "name: x\nnodes:\n  a: {}\n  b: {}\n  c: {}\n")
	l.Affinity = []lab.Affinity{{Nodes: []string{"a", "b"}, NUMA: lab.Same}, {Nodes: []string{"a", "b", "c"},
		NUMA: lab.Different}}
	_, got := edited(t, readHost(t, "h20.txt"), l, "remove node b")
	want := []lab.Affinity{{Nodes: []string{"a", "c"}, NUMA: lab.Different}}
	if diff := cmp.Diff(want, got.Affinity); diff != "" {
		t.Error(diff)
	}
}

func TestAnEditThatDoesNotFitIsAnErrorWithWhatThereIs(t *testing.T) {
	t.Parallel()
	epyc, h20 := readHost(t, "epyc-7551p.ttar"), readHost(t, "h20.txt")
	pair, one := readLab(t, "epyc-pair.yaml"), parseLab(t, "name: x\nnodes:\n  a: {}\n")
	full := parseLab(t, "name: x\nfabric: {subnet: 10.0.0.0/30}\nnodes:\n  a: {}\n  b: {}\n")
	for _, c := range []struct {
		edit string
		h    *topology.Host
		l    *lab.Lab
		want string
	}{
		{"swap 0000:41:00.0 0000:99:00.0", epyc, pair,
			`"0000:99:00.0": the host has no such device; its GPUs: 0000:06:00.0`},
		{"swap 0000:41:00.0 0000:41:00.1", epyc, pair, "is the same card as 0000:41:00.0"},
		{"swap NIC0 GPU9", h20, pair, "its GPUs: GPU0, GPU1"},
		{"swap NIC0 GPU0", h20, pair, `"GPU0": is joined to other GPUs by NVLink`},
		{"move GPU0 to 1", h20, pair, "joined to other GPUs by NVLink"},
		{"move NIC0 to 0", h20, pair, "is on NUMA node 0 already"},
		{"move NIC0 to 7", h20, pair, `"7": the host has no such NUMA node; its NUMA nodes: 0, 1`},
		{"move NIC0 below 0000:00:01.0", h20, pair, "no PCI tree"},
		{"move 0000:41:00.0 below NIC0", epyc, pair, "name the port by its address"},
		{"move 0000:41:00.0 below 0000:06:00.0", epyc, pair, "is no port"},
		{"move 0000:41:00.0 below 0000:ff:1f.7", epyc, pair, "the host has no such port"},
		{"cpus vm07 4", epyc, pair, `"vm07": the lab has no such node; its nodes: vm00, vm01`},
		{"add node vm01", epyc, pair, "the lab has a node of this name"},
		{"add node vm02 like vm09", epyc, pair, `"vm09": the lab has no such node`},
		{"remove node vm09", epyc, pair, `"vm09": the lab has no such node`},
		{"remove node a", epyc, one, "is the only node of the lab"},
		{"add node c", epyc, full, "no address left"},
	} {
		t.Run(c.edit, func(t *testing.T) {
			e, err := ParseEdit(c.edit)
			if err != nil {
				t.Fatal(err)
			}
			h, l, err := e.Apply(c.h, c.l)
			var edit *EditError
			if !errors.As(err, &edit) || h != nil || l != nil {
				t.Fatalf("got %v, want an *EditError and nothing else", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %q\nwant %q in it", err, c.want)
			}
		})
	}
	if _, _, err := (Edit{Op: "shrink"}).Apply(epyc, pair); err == nil || !strings.Contains(err.Error(), "is no edit") {
		t.Errorf("an edit that no parser made: got %v, want an error", err)
	}
}

func TestTheDiskThatTheHostLivesOnCannotBeTakenAway(t *testing.T) {
	t.Parallel()
	h := readHost(t, "epyc-7551p.ttar")
	for _, d := range h.Storage {
		if d.PCI == nil || len(d.Mounts) == 0 {
			continue
		}
		_, _, err := Edit{Op: OpWithout, Device: d.PCI.String()}.Apply(h, readLab(t, "pair.yaml"))
		if err == nil || !strings.Contains(err.Error(), "the host uses it: disk "+d.Name) {
			t.Errorf("without %s: got %v, want an error that names the disk", d.PCI, err)
		}
		return
	}
	t.Fatal("the host has no disk with mounts")
}

func TestASwapExchangesPathsAndNUMANodes(t *testing.T) {
	t.Parallel()
	before, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "pair.yaml")
	after, _ := edited(t, before, l, "swap 0000:41:00.0 0000:21:00.0")
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
	before, l := readHost(t, "h20.txt"), readLab(t, "pair.yaml")
	after, _ := edited(t, before, l, "swap NIC0 NIC2")
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
	before, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "pair.yaml")
	after, _ := edited(t, before, l, "move 0000:41:00.1 to 0")
	tree := topology.NewTree(after)
	for _, id := range []string{"0000:41:00.0", "0000:41:00.1"} {
		if got := tree.Path(id, "0000:06:00.0").Class; got != topology.PathPHB {
			t.Errorf("path of %s to the GPU is %s, want PHB", id, got)
		}
	}
	h20, _ := edited(t, readHost(t, "h20.txt"), l, "move NIC0 to 1")
	if got := h20.Path("GPU4", "NIC0").Class; got != topology.PathUnknown {
		t.Errorf("a matrix says nothing of a card that was moved: got %s", got)
	}
}

func TestACardGoesBelowAFreePortAndNotBelowATakenOne(t *testing.T) {
	t.Parallel()
	h, l := readHost(t, "epyc-7551p.ttar"), readLab(t, "pair.yaml")
	tree := topology.NewTree(h)
	gpu, _ := topology.ParsePCIAddr("0000:06:00.0")
	up := tree.Ancestors(gpu)
	if len(up) == 0 {
		t.Fatal("the GPU is below no port")
	}
	port := up[0].Address.String()
	_, _, err := Edit{Op: OpMoveBelow, Device: "0000:41:00.0", Other: port}.Apply(h, l)
	if err == nil || !strings.Contains(err.Error(), "0000:06:00.0 is below it already") {
		t.Errorf("below a taken port: got %v, want an error", err)
	}
	h, l = edited(t, h, l, "without 0000:06:00.0", "move 0000:41:00.0 below "+port)
	nic, _ := topology.ParsePCIAddr("0000:41:00.0")
	if d := topology.NewTree(h).Device(nic); d.Parent == nil || d.Parent.String() != port || *d.NUMANode != 0 {
		t.Errorf("the card is at %+v, want below %s on NUMA node 0", d, port)
	}
	// The port is free again once the card has gone elsewhere, and the next card finds it by the NUMA node alone.
	h, _ = edited(t, h, l, "without 0000:41:00.0", "move 0000:61:00.0 to 0")
	other, _ := topology.ParsePCIAddr("0000:61:00.0")
	if d := topology.NewTree(h).Device(other); d.Parent == nil || d.Parent.String() != port {
		t.Errorf("the second card is below %v, want %s", d.Parent, port)
	}
}

func TestACardThatIsGoneIsGoneEverywhere(t *testing.T) {
	t.Parallel()
	h, _ := edited(t, readHost(t, "epyc-7551p.ttar"), readLab(t, "pair.yaml"), "without 0000:21:00.1")
	for _, d := range h.PCI {
		if strings.HasPrefix(d.Address.String(), "0000:21:00.") {
			t.Errorf("%s is still there", d.Address)
		}
	}
	for _, g := range h.GPUs {
		if g.ID() == "0000:21:00.0" {
			t.Errorf("GPU %s is still there", g.ID())
		}
	}
	for _, g := range h.IOMMU.Groups {
		for _, a := range g.Devices {
			if strings.HasPrefix(a.String(), "0000:21:00.") {
				t.Errorf("IOMMU group %d still lists %s", g.ID, a)
			}
		}
	}
	h20, _ := edited(t, readHost(t, "h20.txt"), readLab(t, "pair.yaml"), "without GPU3")
	if len(h20.GPUs) != 7 || h20.Path("GPU3", "NIC0").Class != topology.PathUnknown {
		t.Errorf("%d GPUs are left, want 7 and no path to GPU3", len(h20.GPUs))
	}
}

// realHosts are the examples and the machines of inspect's corpus that have cards.
func realHosts(t *testing.T) map[string]*topology.Host {
	t.Helper()
	hosts := map[string]*topology.Host{"epyc": readHost(t, "epyc-7551p.ttar"), "h20": readHost(t, "h20.txt")}
	files, err := filepath.Glob("../../inspect/testdata/corpus/*/*")
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

func TestTwoSwapsAreNoneAndNoEditChangesItsInput(t *testing.T) {
	t.Parallel()
	l := readLab(t, "epyc-pair.yaml")
	swapped := 0
	for name, h := range realHosts(t) {
		ids := []string{"0000:00:1f.9"}
		for i := range h.GPUs {
			ids = append(ids, h.GPUs[i].ID())
		}
		for i := range h.NICs {
			ids = append(ids, h.NICs[i].ID())
		}
		for i := range h.PCI {
			ids = append(ids, h.PCI[i].Address.String())
		}
		was, lab0 := deepCopy(h), deepCopy(l)
		rapid.Check(t, func(t *rapid.T) {
			device := rapid.SampledFrom(ids)
			node := rapid.IntRange(0, len(h.NUMANodes))
			e := rapid.OneOf(
				rapid.Custom(func(t *rapid.T) Edit {
					return Edit{Op: OpSwap, Device: device.Draw(t, "a"), Other: device.Draw(t, "b")}
				}),
				rapid.Custom(func(t *rapid.T) Edit {
					return Edit{Op: OpMove, Device: device.Draw(t, "a"), Count: node.Draw(t, "node")}
				}),
				rapid.Custom(func(t *rapid.T) Edit {
					return Edit{Op: OpMoveBelow, Device: device.Draw(t, "a"), Other: device.Draw(t, "port")}
				}),
				rapid.Custom(func(t *rapid.T) Edit { return Edit{Op: OpWithout, Device: device.Draw(t, "a")} }),
				rapid.Just(Edit{Op: OpAddNode, Node: "vm02"}),
				rapid.Just(Edit{Op: OpSMT, Setting: lab.Off}),
				rapid.Just(Edit{Op: OpRemoveNode, Node: "vm00"}),
			).Draw(t, "edit")
			after, _, err := e.Apply(h, l)
			same(t, was, h, name, e, "changed its host")
			same(t, lab0, l, name, e, "changed its lab")
			if err != nil || e.Op != OpSwap {
				return
			}
			swapped++
			again, _, err := e.Apply(after, l)
			if err != nil {
				t.Fatalf("%s: %s twice: %v", name, e, err)
			}
			same(t, h, again, name, e, "twice is not what there was")
		})
	}
	if swapped == 0 {
		t.Error("nothing was swapped")
	}
}

// same compares by reflection, which takes a tenth of the time that cmp does, and shows the difference by cmp.
func same[T any](t *rapid.T, want, got T, name string, e Edit, what string) {
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: %s %s:\n%s", name, e, what, cmp.Diff(want, got, compare))
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
