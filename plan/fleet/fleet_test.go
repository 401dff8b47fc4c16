package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/synthetic"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// smallHost has two packages of one NUMA node with four cores of two threads, 16 GiB, a GPU and a
// NIC with four virtual functions each.
func smallHost(t testing.TB) *topology.Host {
	t.Helper()
	h, err := synthetic.Host("pack:2 numa:1(memory=16GiB) core:4 pu:2")
	if err != nil {
		t.Fatal(err)
	}
	four, rate := 4, int64(100_000)
	for node := range 2 {
		h.GPUs = append(h.GPUs, topology.GPU{Name: fmt.Sprintf("GPU%d", node), Kind: "discrete", NUMANode: &node})
		h.NICs = append(h.NICs, topology.NIC{
			Name: fmt.Sprintf("NIC%d", node), Netdevs: []string{}, RDMA: []string{fmt.Sprintf("mlx5_%d", node)},
			NUMANode: &node, SpeedMbps: &rate,
			SRIOV: &topology.SRIOV{Total: &four, VFs: []topology.VF{}},
		})
	}
	return h
}

// request makes a lab of one node: "cpus memory gpus vfs".
func request(t testing.TB, name, asks string) *lab.Lab {
	t.Helper()
	f := strings.Fields(asks)
	l, err := lab.Parse(name, fmt.Appendf(nil, "name: %s\nhugepages: 2MiB\nnodes: {vm: {cpus: %s, memory: %sGiB, "+
		"gpus: %s, vfs: %s}}", name, f[0], f[1], f[2], f[3]))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newFleet(t testing.TB, policy string, hosts int) *Fleet {
	t.Helper()
	f, err := New(policy)
	if err != nil {
		t.Fatal(err)
	}
	h := smallHost(t)
	for i := range hosts {
		if err := f.Add(fmt.Sprintf("h%d", i), h); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// place places a lab that has to fit, and checks its plan by the rules.
func place(t testing.TB, f *Fleet, l *lab.Lab) *Placed {
	t.Helper()
	p, err := f.Place(t.Context(), l)
	if err != nil {
		t.Fatalf("%s: %v", l.Name, err)
	}
	pl := p.Plan
	if pl.Cost != p.Cost {
		t.Errorf("%s: the plan costs %d, the search said %d", l.Name, pl.Cost, p.Cost)
	}
	return p
}

func TestLabsShareAHostUntilItIsFull(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{BestFit, Nova} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, policy, 3)
			var hosts []string
			for i := range 4 {
				hosts = append(hosts, place(t, f, request(t, fmt.Sprintf("r%d", i), "6 8 1 1")).Host)
			}
			if diff := cmp.Diff([]string{"h0", "h0", "h1", "h1"}, hosts); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestNothingIsHeldTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t, BestFit, 2)
	cpus, devices := map[string]string{}, map[string]string{}
	for i, asks := range []string{"2 2 0 1", "4 4 1 1", "2 1 0 2", "2 4 1 1", "4 6 0 1", "2 2 1 1"} {
		l := request(t, fmt.Sprintf("r%d", i), asks)
		p := place(t, f, l)
		node := p.Plan.Nodes[0]
		for c := range topology.CPUs(node.VCPUs...).Union(node.EmulatorCPUs).All() {
			key := fmt.Sprintf("%s CPU %d", p.Host, c)
			if other := cpus[key]; other != "" {
				t.Errorf("%s is of %s and of %s", key, other, l.Name)
			}
			cpus[key] = l.Name
		}
		for _, d := range node.Devices {
			key := p.Host + " " + d
			if other := devices[key]; other != "" {
				t.Errorf("%s is of %s and of %s", key, other, l.Name)
			}
			devices[key] = l.Name
		}
	}
}

func TestWhatIsReleasedCanBeHadAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, BestFit, 1)
	first := f.hosts[0].left
	a := place(t, f, request(t, "a", "6 8 1 2"))
	b := place(t, f, request(t, "b", "6 8 1 2"))
	if a.Host != b.Host {
		t.Fatalf("%s and %s", a.Host, b.Host)
	}
	if _, err := f.Place(t.Context(), request(t, "c", "2 1 1 1")); !errors.Is(err, ErrFull) {
		t.Fatalf("a third GPU of two: %v", err)
	}
	if err := f.Release("a"); err != nil {
		t.Fatal(err)
	}
	place(t, f, request(t, "c", "2 1 1 1"))
	for _, name := range []string{"b", "c"} {
		if err := f.Release(name); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(first, f.hosts[0].left, cmp.AllowUnexported(amounts{})); diff != "" {
		t.Errorf("after all are gone (-before +after)\n%s", diff)
	}
	if got := f.hosts[0].devices[2].FreeVFs; !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("free virtual functions are %v", got)
	}
}

func TestAFleetSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := newFleet(t, BestFit, 1)
	place(t, f, request(t, "a", "2 1 0 1"))
	for name, tt := range map[string]struct {
		do   func() error
		want string
	}{
		"a name twice": {func() error { _, err := f.Place(t.Context(), request(t, "a", "2 1 0 1")); return err },
			"lab a is on h0 already"},
		"release of nothing": {func() error { return f.Release("x") }, "no lab x is placed"},
		"more than any host has": {func() error {
			_, err := f.Place(t.Context(), request(t, "big", "2 1 3 1"))
			return err
		},
			"no host has room for lab big"},
		"an unknown policy": {func() error { _, err := New("worst"); return err }, `no policy "worst"`},
	} {
		if err := tt.do(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Place(ctx, request(t, "late", "2 1 0 1")); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func TestStrandedGPUsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, BestFit, 2)
	place(t, f, request(t, "gpu", "2 1 1 1"))
	before, err := f.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Counts{Policy: BestFit, Hosts: 2, Used: 1, Labs: 1, GPUs: 4, Free: 1, CoresFree: 6}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("one GPU is free and can be had (-want +got)\n%s", diff)
	}
	place(t, f, request(t, "hog", "10 1 0 1"))
	after, err := f.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Stranded != 1 {
		t.Errorf("all cores but the host's are gone, and %d GPUs are stranded: %+v", after.Stranded, after)
	}
}

func TestTheSameRequestsGiveTheSamePlaces(t *testing.T) {
	t.Parallel()
	run := func() (out []string) {
		f := newFleet(t, BestFit, 4)
		for i := range 12 {
			p, err := f.Place(t.Context(), request(t, fmt.Sprintf("r%d", i), []string{"2 2 0 1", "4 4 1 1",
				"6 1 0 2"}[i%3]))
			if err != nil {
				out = append(out, err.Error())
				continue
			}
			out = append(out, fmt.Sprint(p.Host, p.Cost, p.Outcome.Placement))
		}
		return out
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Errorf("two runs differ\n%s", diff)
	}
}

// TestWhatALabHoldsIsHeld places and releases labs in a random order, on machines with cards of several functions, and
// adds up what is held.
func TestWhatALabHoldsIsHeld(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(1, 2))
	h := smallHost(t)
	for i := range h.NICs { // both NICs are ports of cards whose other ports have no virtual functions
		other := h.NICs[i]
		group := i
		other.Name, other.RDMA, other.SRIOV = fmt.Sprintf("NIC%d.1", i), []string{}, nil
		for k, nic := range []*topology.NIC{&h.NICs[i], &other} {
			a, err := topology.ParsePCIAddr(fmt.Sprintf("%04x:01:00.%d", i, k))
			if err != nil {
				t.Fatal(err)
			}
			nic.Address = &a
			h.PCI = append(h.PCI, topology.PCIDevice{Address: a, NUMANode: nic.NUMANode, IOMMUGroup: &group})
		}
		h.NICs = append(h.NICs, other)
	}
	h.Complete()
	f, err := New(BestFit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := f.Add(fmt.Sprintf("h%d", i), h); err != nil {
			t.Fatal(err)
		}
	}
	there := map[string]*Placed{}
	placed := 0
	for i := range 600 {
		for name := range there {
			if draw.IntN(3) == 0 {
				if err := f.Release(name); err != nil {
					t.Fatal(err)
				}
				delete(there, name)
			}
		}
		name := fmt.Sprintf("r%d", i)
		l, err := lab.Parse(name, fmt.Appendf(nil, `name: %s
hugepages: %s
host: {reserve: {cores: %d, memory: %dGiB, numa_nodes: {%d: {cores: %d}}}}
nodes: {vm: {count: %d, cpus: %d, memory: %dGiB, gpus: %d, nics: %d, vfs: %d}}`, name,
			[]string{"off", "2MiB", "1GiB"}[draw.IntN(3)], 2+draw.IntN(2), 1+draw.IntN(6), draw.IntN(2), 1+draw.IntN(2),
			1+draw.IntN(2), 1+draw.IntN(6), 1+draw.IntN(4), draw.IntN(2), draw.IntN(2), draw.IntN(2)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Place(t.Context(), l)
		if err != nil {
			continue
		}
		placed++
		there[name] = p
		sumUp(t, h, there)
	}
	if placed < 150 {
		t.Errorf("%d labs found a place", placed)
	}
}

// sumUp checks that nothing is held twice on any host, and that every lab's wishes for the host are kept.
func sumUp(t *testing.T, h *topology.Host, there map[string]*Placed) {
	t.Helper()
	owner, ports := map[string]string{}, map[string]bool{}
	hold := func(lab, what string) {
		if other, held := owner[what]; held && other != lab {
			t.Fatalf("%s is of %s and of %s", what, other, lab)
		}
		owner[what] = lab
	}
	cores, memory := map[string]int{}, map[string]uint64{}
	for name, p := range there {
		for _, n := range p.Plan.Nodes {
			for c := range topology.CPUs(n.VCPUs...).All() {
				hold(name, fmt.Sprintf("%s core %d", p.Host, c/2))
			}
			for c := range n.EmulatorCPUs.Union(n.IOThreadCPUs).All() {
				hold("emulator of "+name, fmt.Sprintf("%s core %d", p.Host, c/2))
			}
			cores[p.Host] += n.Cores
			for _, m := range n.Memory {
				memory[fmt.Sprint(p.Host, m.NUMANode)] += m.Bytes
			}
			for _, c := range n.Cards {
				for _, d := range c.Functions {
					hold(name+" "+n.Name, p.Host+" "+d)
				}
				if c.VF != nil {
					ports[p.Host+" "+c.ID] = true
				}
			}
		}
	}
	for port := range ports { // a card serves whole or by virtual functions
		for _, function := range []string{".0", ".1"} {
			if by, held := owner[port[:len(port)-2]+function]; held {
				t.Fatalf("%s of %s gives virtual functions, and %s has it", function, port, by)
			}
		}
	}
	for name, p := range there {
		l := p.Lab
		if left := 8 - cores[p.Host]; left < *l.Reserve.Cores {
			t.Fatalf("%s wants %d cores left, there are %d", name, *l.Reserve.Cores, left)
		}
		for i, n := range h.NUMANodes {
			if have := memory[fmt.Sprint(p.Host, i)]; have+uint64(*l.Reserve.Memory)/2 > *n.MemoryBytes {
				t.Fatalf("%s wants %v left, %d of %d are given on node %d", name, *l.Reserve.Memory, have,
					*n.MemoryBytes, i)
			}
		}
	}
}
