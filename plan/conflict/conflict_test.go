package conflict

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/plan"
)

type situation struct{ *plan.Problem }

func bruteOracle(calls *int) func(context.Context, *plan.Problem) (bool, error) {
	return func(_ context.Context, p *plan.Problem) (bool, error) {
		*calls++
		return bruteFeasible(p), nil
	}
}

// conflictHost has two packages of one NUMA node each, with 8 cores of two threads and 30 GiB. GPUs 06 and 07 and NIC
// 05 are on node 0, GPUs 81 and 82 and NIC 41 on node 1.
func conflictHost() situation {
	p := situation{&plan.Problem{Schema: plan.ProblemSchema, PageBytes: 1 << 30, HugepageBytes: 1 << 30,
		ReserveCores: 2,
		NUMANodes: []plan.NUMANode{{ID: 0, Distances: []int{10, 21}, Pages: new(int64(30))},
			{ID: 1, Distances: []int{21, 10}, Pages: new(int64(30))}},
		Packages: []plan.Package{{ID: 0}, {ID: 1}}}}
	for c := range 16 {
		p.Cores = append(p.Cores, plan.Core{ID: c, CPUs: []int{c, c + 16}, NUMANode: c / 8, Package: c / 8, L3: c / 4})
	}
	device := func(id, kind string, node int) {
		d := plan.Device{ID: id, Kind: kind, NUMANode: &node, Bundle: len(p.Devices), Functions: []string{id},
			Whole:  true,
			Vendor: "NVIDIA", Model: "A40"}
		if kind == plan.KindNIC {
			d.Vendor, d.Model, d.VFs, d.FreeVFs, d.RateMbps, d.RDMA = "Mellanox", "ConnectX-6", 4, []int{0, 1, 2, 3},
				100_000, true
		}
		p.Devices = append(p.Devices, d)
	}
	device("0000:06:00.0", plan.KindGPU, 0)
	device("0000:07:00.0", plan.KindGPU, 0)
	device("0000:81:00.0", plan.KindGPU, 1)
	device("0000:82:00.0", plan.KindGPU, 1)
	device("0000:05:00.0", plan.KindNIC, 0)
	device("0000:41:00.0", plan.KindNIC, 1)
	for a := range p.Devices {
		for b := range p.Devices {
			if a < 4 && a < b {
				p.Paths = append(p.Paths, plan.PairPath{A: a, B: b, Class: "SYS", Steps: 4})
			}
		}
	}
	return p
}

func (p situation) ask(n, cores int, pages int64, then func(r *plan.Request)) {
	for range n {
		r := plan.Request{Name: fmt.Sprintf("vm%02d", len(p.Requests)), VCPUs: 2 * cores, Threads: 2, Cores: cores,
			Pages: pages, GuestNUMA: "auto"}
		if then != nil {
			then(&r)
		}
		p.Requests = append(p.Requests, r)
	}
	classes := map[string]int{}
	for i := range p.Requests {
		r := p.Requests[i]
		r.Name, r.Class = "", 0
		for _, a := range p.Affinity {
			if slices.Contains(a.Requests, i) {
				r.Class = -1 - i
			}
		}
		key := fmt.Sprintf("%+v", r)
		if _, known := classes[key]; !known {
			classes[key] = len(classes)
		}
		p.Requests[i].Class = classes[key]
	}
}

func (p situation) whole(kind string) []int {
	var all []int
	for d := range p.Devices {
		if p.Devices[d].Kind == kind && p.Devices[d].Whole {
			all = append(all, d)
		}
	}
	return all
}

func (p situation) gpus(n int) func(*plan.Request) {
	return func(r *plan.Request) {
		r.GPUs = append(r.GPUs, plan.Want{Count: n, Any: p.whole(plan.KindGPU), Text: fmt.Sprint(n)})
	}
}

func (p situation) nics(n int) func(*plan.Request) {
	return func(r *plan.Request) {
		r.NICs = append(r.NICs, plan.Want{Count: n, Any: p.whole(plan.KindNIC), Text: fmt.Sprint(n)})
	}
}

func (p situation) vfs(n int, nics ...int) func(*plan.Request) {
	return func(r *plan.Request) { r.VFs = append(r.VFs, plan.Want{Count: n, Any: nics, Text: fmt.Sprint(n)}) }
}

func (p situation) tie(a, b int, group string) {
	p.Devices[b].Bundle, p.Devices[a].Group, p.Devices[b].Group = p.Devices[a].Bundle, group, group
	p.Devices[a].Functions = []string{p.Devices[a].ID, p.Devices[b].ID}
	p.Devices[b].Functions = []string{p.Devices[b].ID, p.Devices[a].ID}
}

func (p situation) hold(tenant string, first, last int, devices ...int) {
	for c := first; c <= last; c++ {
		p.Cores[c].Tenant = tenant
	}
	for _, d := range devices {
		dev := &p.Devices[d]
		dev.Whole, dev.Refused, dev.Tenant, dev.VFs, dev.FreeVFs = false, "tenant "+tenant+" holds it", tenant, 0, nil
	}
}

var conflictSituations = []struct {
	name string
	make func(p situation)
}{
	{"too many cores for one", func(p situation) { p.ask(1, 15, 1, nil) }},
	{"too many cores for two", func(p situation) { p.ask(2, 8, 1, nil) }},
	{"too many cores beside others that fit", func(p situation) { p.ask(1, 1, 1, nil); p.ask(2, 7, 1, nil) }},
	{"too many cores while a tenant holds some", func(p situation) { p.hold("web", 4, 7); p.ask(2, 6, 1, nil) }},
	{"eight like lab nodes where six fit", func(p situation) { p.ask(8, 2, 1, nil) }},
	{"more lab nodes than cores", func(p situation) { p.ask(16, 1, 1, nil) }},
	{"a reserve of more than there is", func(p situation) {
		p.hold("web", 0, 13)
		p.ReserveCores = 4
		p.ask(1, 1, 1, nil)
	}},
	{"a reserve that is the only reason", func(p situation) { p.ReserveCores = 6; p.ask(3, 4, 1, nil) }},
	{"a reserve on one NUMA node", func(p situation) {
		p.ReserveCores, p.NUMANodes[1].ReserveCores = 4, 4
		p.Affinity = []plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Different}}
		p.ask(2, 5, 1, nil)
	}},
	{"cores on one NUMA node for both", func(p situation) {
		p.Affinity = []plan.Affinity{{Requests: []int{0, 1, 2}, NUMA: plan.Different}}
		p.ask(3, 2, 1, nil)
	}},
	{"a busy package", func(p situation) {
		p.ReserveCores, p.Packages[0].Busy, p.Packages[1].Busy = 0, "disk nvme0n1 (/)", "the default route (eth0)"
		p.ask(3, 5, 1, nil)
	}},
	{"too much memory for one", func(p situation) { p.ask(1, 1, 64, nil) }},
	{"too much memory for three", func(p situation) { p.ask(3, 1, 24, nil) }},
	{"memory and GPUs of different lab nodes", func(p situation) { p.ask(1, 1, 40, p.gpus(1)); p.ask(1, 1, 30, nil) }},
	{"five GPUs for four", func(p situation) { p.ask(1, 1, 1, p.gpus(5)) }},
	{"two GPUs each for three", func(p situation) { p.ask(3, 2, 1, p.gpus(2)) }},
	{"two GPUs each, an IOMMU group and a tenant", func(p situation) {
		p.tie(2, 3, "IOMMU group 14")
		p.hold("web", 0, 1, 0)
		p.ask(2, 2, 1, nil)
		p.ask(2, 2, 1, p.gpus(1))
		p.Requests[2].GPUs[0].Count, p.Requests[3].GPUs[0].Count = 2, 2
	}},
	{"a GPU each, and all in one IOMMU group", func(p situation) {
		p.tie(0, 1, "IOMMU group 1")
		p.tie(0, 2, "IOMMU group 1")
		p.tie(0, 3, "IOMMU group 1")
		p.ask(2, 1, 1, p.gpus(1))
	}},
	{"a GPU each, tied for a reason that is not known", func(p situation) {
		p.tie(0, 1, "")
		p.tie(2, 3, "")
		p.ask(3, 1, 1, p.gpus(1))
	}},
	{"the same GPU by its address", func(p situation) {
		p.ask(2, 1, 1, func(r *plan.Request) { r.GPUs = []plan.Want{{Count: 1, Any: []int{2}, Text: "0000:81:00.0"}} })
	}},
	{"GPUs that the host does not give", func(p situation) {
		p.Devices[0].Whole, p.Devices[0].Refused = false, "it is the only screen of the host"
		p.ask(4, 1, 1, p.gpus(1))
	}},
	{"GPUs of two tenants", func(p situation) {
		p.hold("web", 0, 0, 0)
		p.hold("db", 1, 1, 1)
		p.ask(2, 1, 1, p.gpus(2))
	}},
	{"GPUs of two tenants, both of which have to move", func(p situation) {
		p.hold("web", 0, 0, 0)
		p.hold("db", 1, 1, 1)
		p.ask(4, 1, 1, p.gpus(1))
	}},
	{"more NICs than there are", func(p situation) { p.ask(3, 1, 1, p.nics(1)) }},
	{"more virtual functions than there are", func(p situation) { p.ask(3, 1, 1, p.vfs(3, 4, 5)) }},
	{"virtual functions of a NIC that is asked for whole", func(p situation) {
		p.ask(1, 1, 1, func(r *plan.Request) { r.NICs = []plan.Want{{Count: 1, Any: []int{4}, Text: "0000:05:00.0"}} })
		p.ask(1, 1, 1, p.vfs(1, 4))
	}},
	{"virtual functions of a NIC that is tied to a GPU", func(p situation) {
		p.tie(1, 4, "IOMMU group 7")
		p.ask(2, 1, 1, p.gpus(2))
		p.ask(1, 1, 1, p.vfs(1, 4))
	}},
	{"ports held apart on one NIC", func(p situation) {
		p.Affinity = []plan.Affinity{{Requests: []int{0, 1, 2}, NIC: plan.Different}}
		p.ask(3, 1, 1, p.vfs(1, 4, 5))
	}},
	{"held together and apart", func(p situation) {
		p.Affinity = []plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Same},
			{Requests: []int{0, 1}, NUMA: plan.Different}}
		p.ask(2, 1, 1, nil)
	}},
	{"cores with two threads", func(p situation) {
		for c := 4; c < 16; c++ {
			p.Cores[c].CPUs, p.Cores[c].Efficiency = p.Cores[c].CPUs[:1], true
		}
		p.ask(2, 3, 1, nil)
	}},
	{"odd numbers of virtual CPUs", func(p situation) {
		odd := func(n int) func(*plan.Request) {
			return func(r *plan.Request) { r.VCPUs, r.Cores, r.Threads = n, n, 1 }
		}
		p.ask(1, 0, 1, odd(9))
		p.ask(1, 0, 1, odd(7))
		p.ask(1, 2, 1, nil)
	}},
	{"small cores of one thread", func(p situation) {
		for c := 6; c < 16; c++ {
			p.Cores[c].CPUs, p.Cores[c].Efficiency = p.Cores[c].CPUs[:1], true
		}
		p.ask(1, 6, 1, nil)
		p.ask(1, 3, 1, nil)
	}},
	{"two conflicts at once", func(p situation) {
		p.ask(1, 1, 1, p.gpus(5))
		p.ask(1, 1, 61, nil)
		p.ask(1, 1, 1, nil)
	}},
	{"names that are not for a terminal", func(p situation) {
		p.hold("we\x1bb", 0, 7)
		p.ask(1, 9, 1, func(r *plan.Request) { r.Name = "vm\n" })
	}},
}

func TestConflictSaysWhyAndWhatWouldFit(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, s := range conflictSituations {
		p := conflictHost()
		s.make(p)
		if bruteFeasible(p.Problem) {
			t.Errorf("%s: it is feasible", s.name)
			continue
		}
		calls := 0
		got, err := Find(context.Background(), p.Problem, bruteOracle(&calls))
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if !got.Minimal {
			t.Errorf("%s: not minimal", s.name)
		}
		fmt.Fprintf(&all, "# %s\n%v\n", s.name, got)
		for _, d := range got.Requests {
			fmt.Fprintf(&all, "  request %s%s %s: %s\n", strings.Trim(fmt.Sprintf("%q", d.Node), `"`),
				strings.Join(d.Among, "+"), d.What, d.Text)
		}
		for _, f := range got.Facts {
			fmt.Fprintf(&all, "  fact %s: %s\n", f.Kind, f.Text)
		}
		fmt.Fprintf(&all, "  (%d calls)\n\n", calls)
	}
	golden.Check(t, "testdata/situations.txt", all.String())
}

func TestConflictAsJSON(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.hold("web", 4, 7)
	p.ask(2, 6, 1, nil)
	calls := 0
	got, err := Find(context.Background(), p.Problem, bruteOracle(&calls))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/infeasible.json", string(text)+"\n")
	back := new(plan.Infeasible)
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	var target *plan.Infeasible
	if err := fmt.Errorf("pair.yaml: %w", got); !errors.As(err, &target) {
		t.Errorf("errors.As does not find it in %v", err)
	}
}

func drawProblem(t *rapid.T) situation {
	p := conflictHost()
	p.ReserveCores = rapid.IntRange(0, 4).Draw(t, "reserve")
	p.NUMANodes[1].ReserveCores = rapid.IntRange(0, 2).Draw(t, "reserve on node 1")
	if rapid.Bool().Draw(t, "busy") {
		p.Packages[0].Busy = "disk nvme0n1 (/)"
	}
	if rapid.Bool().Draw(t, "tied") {
		p.tie(rapid.IntRange(0, 2).Draw(t, "tied device"), 3, "IOMMU group 14")
	}
	if rapid.Bool().Draw(t, "held") {
		p.hold("web", 0, rapid.IntRange(0, 5).Draw(t, "held cores"), rapid.IntRange(0, 5).Draw(t, "held device"))
	}
	if rapid.Bool().Draw(t, "hybrid") {
		for c := 10; c < 16; c++ {
			p.Cores[c].CPUs = p.Cores[c].CPUs[:1]
		}
	}
	n := rapid.IntRange(1, 5).Draw(t, "lab nodes")
	if n > 1 && rapid.Bool().Draw(t, "affinity") {
		p.Affinity = []plan.Affinity{{Requests: []int{0, 1},
			NUMA: rapid.SampledFrom([]string{"", plan.Same, plan.Different}).Draw(t, "numa"),
			NIC:  rapid.SampledFrom([]string{"", plan.Same, plan.Different}).Draw(t, "nic")}}
	}
	for range n {
		p.ask(1, rapid.IntRange(1, 7).Draw(t, "cores"), int64(rapid.IntRange(0, 30).Draw(t, "pages")),
			func(r *plan.Request) {
				if k := rapid.IntRange(0, 2).Draw(t, "gpus"); k > 0 {
					p.gpus(k)(r)
				}
				if rapid.IntRange(0, 3).Draw(t, "nic") == 0 {
					p.nics(1)(r)
				}
				if k := rapid.IntRange(0, 3).Draw(t, "vfs"); k > 1 {
					p.vfs(k, p.vfNICs()...)(r)
				}
				if rapid.IntRange(0, 3).Draw(t, "smt off") == 0 {
					r.Threads, r.VCPUs = 1, r.Cores
				}
			})
	}
	return p
}

func (p situation) vfNICs() []int {
	var all []int
	for d := 4; d < 6; d++ {
		if p.Devices[d].VFs > 0 {
			all = append(all, d)
		}
	}
	return all
}

func TestEachRequestOfAConflictIsNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		if bruteFeasible(p.Problem) {
			t.Skip("feasible")
		}
		before, calls := fmt.Sprintf("%+v", p.Problem), 0
		got, err := Find(context.Background(), p.Problem, bruteOracle(&calls))
		if err != nil {
			t.Fatal(err)
		}
		if after := fmt.Sprintf("%+v", p.Problem); after != before {
			t.Fatalf("the problem was changed:\n%s\n%s", before, after)
		}
		if limit := 256 + 4*len(p.Requests); calls > limit {
			t.Errorf("%d calls, want at most %d", calls, limit)
		}
		again, err := Find(context.Background(), p.Problem, bruteOracle(&calls))
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("not the same again: %v\n%s", err, diff)
		}
		var set []int
		for i := range p.Requests {
			if slices.ContainsFunc(got.Requests, func(d plan.Demand) bool { return d.Node == p.Requests[i].Name }) {
				set = append(set, i)
			}
		}
		if bruteFeasible(derive(p.Problem, set)) && len(set) > 0 {
			t.Fatalf("%v: the set %v can be met", got, set)
		}
		for k := range set {
			if len(set) > 1 && !bruteFeasible(derive(p.Problem, slices.Delete(slices.Clone(set), k, k+1))) {
				t.Errorf("%v: request %d can be left out", got, set[k])
			}
		}
		for _, text := range []string{got.Message, got.Nearest} {
			if text == "" || strings.Contains(text, "  ") || strings.Contains(text, ": ,") ||
				strings.HasSuffix(text, ": ") || strings.Contains(text, "%!") {
				t.Errorf("text %q", text)
			}
		}
		if strings.HasPrefix(got.Nearest, "nothing that was tried") {
			t.Errorf("no offer: %v", got)
		}
	})
}

func TestEachOfferOfAConflictWasTried(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.hold("web", 4, 7)
	p.ask(2, 6, 1, nil)
	for _, e := range []struct {
		name string
		edit edit
		want bool
	}{
		{"5 cores each", atMost(plan.DemandCores, []string{"vm00", "vm01"}, 5), true},
		{"6 cores each", atMost(plan.DemandCores, []string{"vm00", "vm01"}, 6), false},
		{"without web", withoutTenant("web"), true},
	} {
		if got := bruteFeasible(derive(p.Problem, []int{0, 1}, e.edit)); got != e.want {
			t.Errorf("%s: feasible: %t, want %t", e.name, got, e.want)
		}
	}
}

func TestConflictAnswersWithWhatItHasWhenItIsStopped(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.Affinity = []plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Same}, {Requests: []int{1, 2}, NUMA: plan.Same},
		{Requests: []int{0, 2}, NUMA: plan.Different}}
	p.ask(3, 2, 1, nil)
	p.ask(3, 1, 1, nil)
	for after := range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		got, err := Find(ctx, p.Problem, func(ctx context.Context, p *plan.Problem) (bool, error) {
			if calls++; calls > after {
				cancel()
				return false, ctx.Err()
			}
			return bruteFeasible(p), nil
		})
		cancel()
		if err != nil {
			t.Fatalf("after %d calls: %v", after, err)
		}
		if after == 0 && got.Minimal {
			t.Errorf("after %d calls: minimal, which cannot be known", after)
		}
		if !strings.Contains(got.Message, "cannot all be placed") {
			t.Errorf("after %d calls: %v", after, got)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Find(ctx, p.Problem, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that was over before: %v, want context.Canceled", err)
	}
}

func TestConflictTakesAnOracleThatCannotTell(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.ask(2, 8, 1, nil)
	got, err := Find(context.Background(), p.Problem, func(context.Context, *plan.Problem) (bool, error) {
		return false, errors.New("step limit")
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Minimal || !strings.HasPrefix(got.Message, "vm00 and vm01 cannot both be placed") {
		t.Errorf("got %+v", got)
	}
}

func TestDeriveRenumbersRequests(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.Affinity = []plan.Affinity{{Requests: []int{1, 2, 3}, NUMA: plan.Different},
		{Requests: []int{0, 1}, NIC: plan.Same}}
	p.ask(4, 2, 1, nil)
	q := derive(p.Problem, []int{2, 3}, without(plan.DemandMemory, []string{"vm03"}))
	if diff := cmp.Diff([]plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Different}}, q.Affinity); diff != "" {
		t.Errorf("affinity (-want +got):\n%s", diff)
	}
	if q.Requests[0].Name != "vm02" || q.Requests[0].Pages != 1 || q.Requests[1].Pages != 0 {
		t.Errorf("requests: %+v", q.Requests)
	}
	if q.Requests[0].Class == q.Requests[1].Class {
		t.Error("requests that are no longer equal have one class")
	}
}

// BenchmarkConflict has an instant oracle.
func BenchmarkConflict(b *testing.B) {
	p := conflictHost()
	p.ask(64, 1, 1, p.gpus(1))
	for b.Loop() {
		if _, err := Find(context.Background(), p.Problem, func(_ context.Context, p *plan.Problem) (bool, error) {
			return len(p.Requests) < 5, nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
