package plan

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
)

// bruteOracle answers by trying everything, and counts how often it is asked.
func bruteOracle(calls *int) func(context.Context, *Problem) (bool, error) {
	return func(_ context.Context, p *Problem) (bool, error) {
		*calls++
		return bruteFeasible(p), nil
	}
}

// conflictHost is two NUMA nodes of 8 cores with two threads and 30 GiB each, which are its
// packages; GPUs 06, 07 and NIC 05 on node 0, GPUs 81, 82 and NIC 41 on node 1. Each NIC can give 4
// virtual functions.
func conflictHost() *Problem {
	p := &Problem{Schema: ProblemSchema, PageBytes: checkGiB, HugepageBytes: 1 << 30, ReserveCores: 2,
		NUMANodes: []NUMANode{{ID: 0, Distances: []int{10, 21}, Pages: new(int64(30))},
			{ID: 1, Distances: []int{21, 10}, Pages: new(int64(30))}},
		Packages: []Package{{ID: 0}, {ID: 1}}}
	for c := range 16 {
		p.Cores = append(p.Cores, Core{ID: c, CPUs: []int{c, c + 16}, NUMANode: c / 8, Package: c / 8, L3: c / 4})
	}
	device := func(id, kind string, node int) {
		d := Device{ID: id, Kind: kind, NUMANode: &node, Bundle: len(p.Devices), Functions: []string{id}, Whole: true,
			Vendor: "NVIDIA", Model: "A40"}
		if kind == KindNIC {
			d.Vendor, d.Model, d.VFs, d.FreeVFs, d.RateMbps, d.RDMA = "Mellanox", "ConnectX-6", 4, []int{0, 1, 2, 3},
				100_000, true
		}
		p.Devices = append(p.Devices, d)
	}
	device("0000:06:00.0", KindGPU, 0)
	device("0000:07:00.0", KindGPU, 0)
	device("0000:81:00.0", KindGPU, 1)
	device("0000:82:00.0", KindGPU, 1)
	device("0000:05:00.0", KindNIC, 0)
	device("0000:41:00.0", KindNIC, 1)
	for a := range p.Devices {
		for b := range p.Devices {
			if a < 4 && a < b {
				p.Paths = append(p.Paths, PairPath{A: a, B: b, Class: "SYS", Steps: 4})
			}
		}
	}
	return p
}

// ask adds lab nodes to a problem, each of cores with two threads and pages, and lets then add to them.
func (p *Problem) ask(n, cores int, pages int64, then func(r *Request)) {
	for range n {
		r := Request{Name: fmt.Sprintf("vm%02d", len(p.Requests)), VCPUs: 2 * cores, Threads: 2, Cores: cores,
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

// whole returns the indexes of the devices of a kind that may be given whole.
func (p *Problem) whole(kind string) []int {
	var all []int
	for d := range p.Devices {
		if p.Devices[d].Kind == kind && p.Devices[d].Whole {
			all = append(all, d)
		}
	}
	return all
}

func (p *Problem) gpus(n int) func(*Request) {
	return func(r *Request) { r.GPUs = append(r.GPUs, Want{Count: n, Any: p.whole(KindGPU), Text: fmt.Sprint(n)}) }
}

func (p *Problem) nics(n int) func(*Request) {
	return func(r *Request) { r.NICs = append(r.NICs, Want{Count: n, Any: p.whole(KindNIC), Text: fmt.Sprint(n)}) }
}

func (p *Problem) vfs(n int, nics ...int) func(*Request) {
	return func(r *Request) { r.VFs = append(r.VFs, Want{Count: n, Any: nics, Text: fmt.Sprint(n)}) }
}

// tie makes one bundle of two devices.
func (p *Problem) tie(a, b int, group string) {
	p.Devices[b].Bundle, p.Devices[a].Group, p.Devices[b].Group = p.Devices[a].Bundle, group, group
	p.Devices[a].Functions = []string{p.Devices[a].ID, p.Devices[b].ID}
	p.Devices[b].Functions = []string{p.Devices[b].ID, p.Devices[a].ID}
}

// hold gives cores and devices to a tenant.
func (p *Problem) hold(tenant string, first, last int, devices ...int) {
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
	make func(p *Problem)
}{
	{"too many cores for one", func(p *Problem) { p.ask(1, 15, 1, nil) }},
	{"too many cores for two", func(p *Problem) { p.ask(2, 8, 1, nil) }},
	{"too many cores beside others that fit", func(p *Problem) { p.ask(1, 1, 1, nil); p.ask(2, 7, 1, nil) }},
	{"too many cores while a tenant holds some", func(p *Problem) { p.hold("web", 4, 7); p.ask(2, 6, 1, nil) }},
	{"eight like lab nodes where six fit", func(p *Problem) { p.ask(8, 2, 1, nil) }},
	{"more lab nodes than cores", func(p *Problem) { p.ask(16, 1, 1, nil) }},
	{"a reserve of more than there is", func(p *Problem) {
		p.hold("web", 0, 13)
		p.ReserveCores = 4
		p.ask(1, 1, 1, nil)
	}},
	{"a reserve that is the only reason", func(p *Problem) { p.ReserveCores = 6; p.ask(3, 4, 1, nil) }},
	{"a reserve on one NUMA node", func(p *Problem) {
		p.ReserveCores, p.NUMANodes[1].ReserveCores = 4, 4
		p.Affinity = []Affinity{{Requests: []int{0, 1}, NUMA: Different}}
		p.ask(2, 5, 1, nil)
	}},
	{"cores on one NUMA node for both", func(p *Problem) {
		p.Affinity = []Affinity{{Requests: []int{0, 1, 2}, NUMA: Different}}
		p.ask(3, 2, 1, nil)
	}},
	{"a busy package", func(p *Problem) {
		p.ReserveCores, p.Packages[0].Busy, p.Packages[1].Busy = 0, "disk nvme0n1 (/)", "the default route (eth0)"
		p.ask(3, 5, 1, nil)
	}},
	{"too much memory for one", func(p *Problem) { p.ask(1, 1, 64, nil) }},
	{"too much memory for three", func(p *Problem) { p.ask(3, 1, 24, nil) }},
	{"memory and GPUs of different lab nodes", func(p *Problem) { p.ask(1, 1, 40, p.gpus(1)); p.ask(1, 1, 30, nil) }},
	{"five GPUs for four", func(p *Problem) { p.ask(1, 1, 1, p.gpus(5)) }},
	{"two GPUs each for three", func(p *Problem) { p.ask(3, 2, 1, p.gpus(2)) }},
	{"two GPUs each, an IOMMU group and a tenant", func(p *Problem) {
		p.tie(2, 3, "IOMMU group 14")
		p.hold("web", 0, 1, 0)
		p.ask(2, 2, 1, nil)
		p.ask(2, 2, 1, p.gpus(1))
		p.Requests[2].GPUs[0].Count, p.Requests[3].GPUs[0].Count = 2, 2
	}},
	{"a GPU each, and all in one IOMMU group", func(p *Problem) {
		p.tie(0, 1, "IOMMU group 1")
		p.tie(0, 2, "IOMMU group 1")
		p.tie(0, 3, "IOMMU group 1")
		p.ask(2, 1, 1, p.gpus(1))
	}},
	{"a GPU each, tied for a reason that is not known", func(p *Problem) {
		p.tie(0, 1, "")
		p.tie(2, 3, "")
		p.ask(3, 1, 1, p.gpus(1))
	}},
	{"the same GPU by its address", func(p *Problem) {
		p.ask(2, 1, 1, func(r *Request) { r.GPUs = []Want{{Count: 1, Any: []int{2}, Text: "0000:81:00.0"}} })
	}},
	{"GPUs that the host does not give", func(p *Problem) {
		p.Devices[0].Whole, p.Devices[0].Refused = false, "it is the only screen of the host"
		p.ask(4, 1, 1, p.gpus(1))
	}},
	{"GPUs of two tenants", func(p *Problem) {
		p.hold("web", 0, 0, 0)
		p.hold("db", 1, 1, 1)
		p.ask(2, 1, 1, p.gpus(2))
	}},
	{"GPUs of two tenants, both of which have to move", func(p *Problem) {
		p.hold("web", 0, 0, 0)
		p.hold("db", 1, 1, 1)
		p.ask(4, 1, 1, p.gpus(1))
	}},
	{"more NICs than there are", func(p *Problem) { p.ask(3, 1, 1, p.nics(1)) }},
	{"more virtual functions than there are", func(p *Problem) { p.ask(3, 1, 1, p.vfs(3, 4, 5)) }},
	{"virtual functions of a NIC that is asked for whole", func(p *Problem) {
		p.ask(1, 1, 1, func(r *Request) { r.NICs = []Want{{Count: 1, Any: []int{4}, Text: "0000:05:00.0"}} })
		p.ask(1, 1, 1, p.vfs(1, 4))
	}},
	{"virtual functions of a NIC that is tied to a GPU", func(p *Problem) {
		p.tie(1, 4, "IOMMU group 7")
		p.ask(2, 1, 1, p.gpus(2))
		p.ask(1, 1, 1, p.vfs(1, 4))
	}},
	{"ports held apart on one NIC", func(p *Problem) {
		p.Affinity = []Affinity{{Requests: []int{0, 1, 2}, NIC: Different}}
		p.ask(3, 1, 1, p.vfs(1, 4, 5))
	}},
	{"held together and apart", func(p *Problem) {
		p.Affinity = []Affinity{{Requests: []int{0, 1}, NUMA: Same}, {Requests: []int{0, 1}, NUMA: Different}}
		p.ask(2, 1, 1, nil)
	}},
	{"cores with two threads", func(p *Problem) {
		for c := 4; c < 16; c++ {
			p.Cores[c].CPUs, p.Cores[c].Efficiency = p.Cores[c].CPUs[:1], true
		}
		p.ask(2, 3, 1, nil)
	}},
	{"two conflicts at once", func(p *Problem) {
		p.ask(1, 1, 1, p.gpus(5))
		p.ask(1, 1, 61, nil)
		p.ask(1, 1, 1, nil)
	}},
	{"names that are not for a terminal", func(p *Problem) {
		p.hold("we\x1bb", 0, 7)
		p.ask(1, 9, 1, func(r *Request) { r.Name = "vm\n" })
	}},
}

func TestConflictSaysWhyAndWhatWouldFit(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, s := range conflictSituations {
		p := conflictHost()
		s.make(p)
		if bruteFeasible(p) {
			t.Errorf("%s: it is feasible", s.name)
			continue
		}
		calls := 0
		got, err := Conflict(context.Background(), p, bruteOracle(&calls))
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
	compareCheckGolden(t, "conflict/situations.txt", all.String())
}

func TestConflictAsJSON(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.hold("web", 4, 7)
	p.ask(2, 6, 1, nil)
	calls := 0
	got, err := Conflict(context.Background(), p, bruteOracle(&calls))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	compareCheckGolden(t, "conflict/infeasible.json", string(text)+"\n")
	back := new(Infeasible)
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	var target *Infeasible
	if err := fmt.Errorf("pair.yaml: %w", got); !errors.As(err, &target) {
		t.Errorf("errors.As does not find it in %v", err)
	}
}

// drawProblem draws a small problem, feasible or not.
func drawProblem(t *rapid.T) *Problem {
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
		p.Affinity = []Affinity{{Requests: []int{0, 1},
			NUMA: rapid.SampledFrom([]string{"", Same, Different}).Draw(t, "numa"),
			NIC:  rapid.SampledFrom([]string{"", Same, Different}).Draw(t, "nic")}}
	}
	for range n {
		p.ask(1, rapid.IntRange(1, 7).Draw(t, "cores"), int64(rapid.IntRange(0, 30).Draw(t, "pages")),
			func(r *Request) {
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

// vfNICs returns the NICs that can give virtual functions; all NICs where none can.
func (p *Problem) vfNICs() []int {
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
		if bruteFeasible(p) {
			t.Skip("feasible")
		}
		before, calls := fmt.Sprintf("%+v", p), 0
		got, err := Conflict(context.Background(), p, bruteOracle(&calls))
		if err != nil {
			t.Fatal(err)
		}
		if after := fmt.Sprintf("%+v", p); after != before {
			t.Fatalf("the problem was changed:\n%s\n%s", before, after)
		}
		if limit := 256 + 4*len(p.Requests); calls > limit {
			t.Errorf("%d calls, want at most %d", calls, limit)
		}
		again, err := Conflict(context.Background(), p, bruteOracle(&calls))
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("not the same again: %v\n%s", err, diff)
		}
		var set []int
		for i := range p.Requests {
			if slices.ContainsFunc(got.Requests, func(d Demand) bool { return d.Node == p.Requests[i].Name }) {
				set = append(set, i)
			}
		}
		if bruteFeasible(derive(p, set)) && len(set) > 0 {
			t.Fatalf("%v: the set %v can be met", got, set)
		}
		for k := range set {
			if len(set) > 1 && !bruteFeasible(derive(p, slices.Delete(slices.Clone(set), k, k+1))) {
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
		{"5 cores each", atMost(DemandCores, []string{"vm00", "vm01"}, 5), true},
		{"6 cores each", atMost(DemandCores, []string{"vm00", "vm01"}, 6), false},
		{"without web", withoutTenant("web"), true},
	} {
		if got := bruteFeasible(derive(p, []int{0, 1}, e.edit)); got != e.want {
			t.Errorf("%s: feasible: %t, want %t", e.name, got, e.want)
		}
	}
}

func TestConflictAnswersWithWhatItHasWhenItIsStopped(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.Affinity = []Affinity{{Requests: []int{0, 1, 2}, NUMA: Different}}
	p.ask(3, 2, 1, nil)
	p.ask(3, 1, 1, nil)
	for after := range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		got, err := Conflict(ctx, p, func(ctx context.Context, p *Problem) (bool, error) {
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
	if _, err := Conflict(ctx, p, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that was over before: %v, want context.Canceled", err)
	}
}

func TestConflictTakesAnOracleThatCannotTell(t *testing.T) {
	t.Parallel()
	p := conflictHost()
	p.ask(2, 8, 1, nil)
	got, err := Conflict(context.Background(), p, func(context.Context, *Problem) (bool, error) {
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
	p.Affinity = []Affinity{{Requests: []int{1, 2, 3}, NUMA: Different}, {Requests: []int{0, 1}, NIC: Same}}
	p.ask(4, 2, 1, nil)
	q := derive(p, []int{2, 3}, without(DemandMemory, []string{"vm03"}))
	if diff := cmp.Diff([]Affinity{{Requests: []int{0, 1}, NUMA: Different}}, q.Affinity); diff != "" {
		t.Errorf("affinity (-want +got):\n%s", diff)
	}
	if q.Requests[0].Name != "vm02" || q.Requests[0].Pages != 1 || q.Requests[1].Pages != 0 {
		t.Errorf("requests: %+v", q.Requests)
	}
	if q.Requests[0].Class == q.Requests[1].Class {
		t.Error("requests that are no longer equal have one class")
	}
}
