package advise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
	"github.com/rackless/rackless/plan/search"
)

func TestEveryChoiceOfTheEPYCPairIsDecidedWithEvidence(t *testing.T) {
	t.Parallel()
	s := planned(t, readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml"))
	all := s.decide(t)
	var got []string
	for _, d := range all {
		got = append(got, strings.TrimSpace(d.Node+" "+d.What))
		if d.Choice == "" || len(d.Evidence) == 0 {
			t.Errorf("%s %s: choice %q with %d pieces of evidence, want both", d.Node, d.What, d.Choice,
				len(d.Evidence))
		}
		if s.Optimal && d.RunnerUpCost != nil && *d.RunnerUpCost < 0 {
			t.Errorf("%s %s: runner-up %q costs %d less than the optimum", d.Node, d.What, d.RunnerUp, -*d.RunnerUpCost)
		}
	}
	want := []string{"housekeeping", "page_size", "isolation"}
	for _, n := range []string{"vm00", "vm01"} {
		for _, what := range []string{"devices", "cores", "memory", "guest_numa", "smt", "emulator"} {
			want = append(want, n+" "+what)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ node, what, choice, evidence string }{
		{"", "housekeeping", "4 cores", "package 0: "},
		{"", "page_size", "1 GiB pages, set aside per NUMA node: ", "spread evenly over all NUMA nodes"},
		{"", "isolation", "isolcpus, nohz_full and rcu_nocbs", "7.9 Gb/s TCP without isolated CPUs"},
		{"vm00", "devices", "GPU 0000:06:00.0 on NUMA node 0; NIC ", "ib_write_lat p99 +29 %"},
		{"vm00", "cores", "on NUMA node 0", "its devices are on NUMA nodes"},
		{"vm00", "guest_numa", "on: the guest sees 2 NUMA nodes", "STREAM in the guest 2 to 7 times"},
		{"vm00", "smt", "on: 28 virtual CPUs as 14 cores with 2 threads each",
			"the lab would need 56 cores and there are 28"},
		{"vm00", "emulator", "housekeeping CPUs", "QEMU's threads"},
	} {
		d := decision(t, all, c.node, c.what)
		text := strings.Join(d.Evidence, "\n")
		if c.node == "" && c.what == "housekeeping" {
			c.choice = "core"
		}
		if !strings.Contains(d.Choice, c.choice) || !strings.Contains(text, c.evidence) {
			t.Errorf("%s %s:\n  choice %q, want %q in it\n  evidence %q, want %q in it", c.node, c.what, d.Choice,
				c.choice, text, c.evidence)
		}
	}
	for _, d := range all {
		for _, line := range append(slices.Clone(d.Evidence), d.Choice, d.RunnerUp) {
			if strings.ContainsAny(line, "!\n") || strings.Contains(line, ".txt") {
				t.Errorf("%s %s: %q has no place in a sentence", d.Node, d.What, line)
			}
		}
	}
}

func TestASettingThatIsPossibleIsPriced(t *testing.T) {
	t.Parallel()
	h := readHost(t, "epyc-7551p.ttar")
	l := with(readLab(t, "epyc-pair.yaml"), func(n *lab.Node) { n.CPUs = 8 })
	s := planned(t, h, l)
	d := decision(t, s.decide(t), "vm01", AboutSMT)
	if d.RunnerUpCost == nil {
		t.Fatalf("8 cores for each are there: got no cost for %q", d.RunnerUp)
	}
	want := planned(t, h, with(l, func(n *lab.Node) { n.SMT = lab.Off }))
	if got := s.Cost + *d.RunnerUpCost; got != want.Cost {
		t.Errorf("with SMT off the plan would cost %d, and planned so it costs %d", got, want.Cost)
	}
	g := decision(t, planned(t, h, readLab(t, "epyc-pair.yaml")).decide(t), "vm00", AboutGuestNUMA)
	hidden := with(readLab(t, "epyc-pair.yaml"), func(n *lab.Node) { n.GuestNUMA = lab.Off })
	plain := planned(t, h, readLab(t, "epyc-pair.yaml"))
	if got, want := plain.Cost+*g.RunnerUpCost, planned(t, h, hidden).Cost; got != want {
		t.Errorf("with guest NUMA off the plan would cost %d, and planned so it costs %d", got, want)
	}
}

func TestARequestThatAllDevicesMeetButNoneIsLeftForHasNoRunnerUp(t *testing.T) {
	t.Parallel()
	h := without(t, without(t, readHost(t, "epyc-7551p.ttar"), "0000:21:00.0"), "0000:61:00.0")
	l := readLab(t, "epyc-pair.yaml")
	l.Nodes = l.Nodes[:1]
	d := decision(t, planned(t, h, l).decide(t), "vm00", AboutDevices)
	if d.RunnerUpCost != nil || !strings.Contains(strings.Join(d.Evidence, "\n"), "no other devices meet the request") {
		t.Errorf("got runner-up %q at %v with %q, want none", d.RunnerUp, d.RunnerUpCost, d.Evidence)
	}
}

func TestOnAHostOfOneNodeThereAreNoOtherNodesToSpeakOf(t *testing.T) {
	t.Parallel()
	h, err := synthetic.Host("pack:1 l3:2 core:4 pu:2")
	if err != nil {
		t.Fatal(err)
	}
	l := parseLab(t, "name: x\nnodes:\n  a: {cpus: 4, memory: 4GiB, nics: 1}\n  b: {cpus: 4, memory: 4GiB}\n")
	for i := range l.Nodes { // the machine has no devices
		l.Nodes[i].NICs, l.Nodes[i].NICRequests = nil, nil
	}
	s := planned(t, h, l)
	all := s.decide(t)
	for _, d := range all {
		if strings.Contains(d.RunnerUp, "NUMA") {
			t.Errorf("%s %s: runner-up %q", d.Node, d.What, d.RunnerUp)
		}
	}
	if d := decision(t, all, "a", AboutCores); d.RunnerUp != "" || !strings.Contains(d.Evidence[0], "one NUMA node") {
		t.Errorf("cores: %+v", d)
	}
	if slices.ContainsFunc(all, func(d plan.Decision) bool { return d.What == AboutDevices }) {
		t.Error("a lab node without devices has a decision about devices")
	}
}

// otherDevices must agree with a search of all other sets of devices.
func TestTheRunnerUpIsTheBestOfAllOtherSets(t *testing.T) {
	t.Parallel()
	checked := 0
	for seed := range uint64(1600) {
		p := plantest.Small(seed)
		r, err := solve(t.Context(), p)
		if err != nil || !r.Optimal {
			continue
		}
		o := &oracle{Layout: plan.NewLayout(p), ctx: t.Context(), p: p, base: r, solve: solve, left: 1000}
		for i := range p.Requests {
			req := &p.Requests[i]
			// With one want of one GPU and one want of one NIC, sets are pairs.
			if len(req.VFs) > 0 || len(req.GPUs)+len(req.NICs) == 0 || len(req.GPUs) > 1 || len(req.NICs) > 1 ||
				len(sameClass(p, i)) > 1 {
				continue
			}
			wants := slices.Concat(req.GPUs, req.NICs)
			if slices.ContainsFunc(wants, func(w plan.Want) bool { return w.Count != 1 }) {
				continue
			}
			got := o.otherDevices(i)
			if o.err != nil {
				t.Fatal(o.err)
			}
			own := placedDevices(&r.Placement.Nodes[i])
			want := int64(-1)
			try := func(set []int) {
				if slices.Equal(cardsOf(p, set), cardsOf(p, own)) {
					return
				}
				q := changed(p)
				k := 0
				for _, list := range wantLists(&q.Requests[i]) {
					for j := range *list {
						(*list)[j].Any = []int{set[k]}
						k++
					}
				}
				if s, err := solve(t.Context(), q); err == nil && (want < 0 || s.Cost < want) {
					want = s.Cost
				}
			}
			for _, a := range wants[0].Any {
				if len(wants) == 1 {
					try([]int{a})
					continue
				}
				for _, b := range wants[1].Any {
					try([]int{a, b})
				}
			}
			checked++
			switch {
			case want < 0 && got.found != impossible:
				t.Errorf("seed %d, %s: found %v, want that there is no other set", seed, req.Name, got)
			case want >= 0 && (got.found != solved || got.cost != want):
				t.Errorf("seed %d, %s: runner-up costs %d (%v), and the best other set %d", seed, req.Name, got.cost,
					got.found, want)
			}
		}
	}
	if checked < 50 {
		t.Errorf("checked %d lab nodes, want at least 50", checked)
	}
}

func cardsOf(p *plan.Problem, devices []int) []string {
	var cards []string
	for _, d := range devices {
		cards = append(cards, fmt.Sprint(p.Devices[d].Kind, cardKey(p.Devices[d].ID)))
	}
	return cards
}

func TestEqualLabNodesThatChangeNamesAreNoRunnerUp(t *testing.T) {
	t.Parallel()
	// The only alternative is to exchange the GPUs.
	s := planned(t, readHost(t, "epyc-7551p.ttar"),
		parseLab(t, "name: x\nnodes:\n  vm: {count: 2, cpus: 4, memory: 4GiB, gpus: 1, nics: 1}\n"))
	o := &oracle{Layout: plan.NewLayout(s.p), ctx: t.Context(), p: s.p, base: s.r, solve: solve, left: 100}
	for i := range s.p.Requests {
		got := o.otherDevices(i)
		if o.err != nil {
			t.Fatal(o.err)
		}
		if got.found != solved {
			t.Fatalf("found %v, want another pairing of GPUs and NICs", got.found)
		}
		was, is := map[string]bool{}, map[string]bool{}
		for j := range s.p.Requests {
			was[fmt.Sprint(cardsOf(s.p, placedDevices(&s.r.Placement.Nodes[j])))] = true
			is[fmt.Sprint(cardsOf(s.p, placedDevices(&got.placement.Nodes[j])))] = true
		}
		if cmp.Equal(was, is) {
			t.Errorf("the runner-up of %s gives the same sets to other names: %v", s.p.Requests[i].Name, is)
		}
	}
}

func TestExchangesKeepTheRules(t *testing.T) {
	t.Parallel()
	tried := 0
	for seed := range uint64(300) {
		p := plantest.Small(seed)
		r, err := solve(t.Context(), p)
		if err != nil {
			continue
		}
		l := plan.NewLayout(p)
		if !l.Fits(&r.Placement) {
			t.Errorf("seed %d: a placement of the search does not fit", seed)
			continue
		}
		o := &oracle{Layout: l, ctx: t.Context(), p: p, base: r, solve: solve}
		for i := range p.Requests {
			best, cost := o.otherCores(i, 64)
			if best == nil {
				continue
			}
			tried++
			from := o.mainNode(&r.Placement.Nodes[i])
			if !l.Fits(best) || l.CoresOn(best.Nodes[i].Cores)[from] != 0 || r.Optimal && cost < r.Cost ||
				cost != o.Cost(best) {
				t.Errorf("seed %d, %s: other cores %v cost %d, fits %v; the optimum is %d", seed, p.Requests[i].Name,
					best.Nodes[i].Cores, cost, l.Fits(best), r.Cost)
			}
			if best, cost := o.otherMemory(i, 64); best != nil && (!l.Fits(best) || r.Optimal && cost < r.Cost) {
				t.Errorf("seed %d, %s: other memory costs %d, the optimum %d", seed, p.Requests[i].Name, cost, r.Cost)
			}
		}
		if s := o.otherHousekeeping(64); s != nil && r.Optimal && s.cost < r.Cost {
			t.Errorf("seed %d: other housekeeping costs %d, the optimum %d", seed, s.cost, r.Cost)
		}
	}
	if tried < 20 {
		t.Errorf("%d exchanges were found, want at least 20", tried)
	}
}

func TestASearchThatGoesWrongIsAnErrorAndOneThatIsStoppedIsNot(t *testing.T) {
	t.Parallel()
	s := planned(t, readHost(t, "epyc-7551p.ttar"), readLab(t, "epyc-pair.yaml"))
	ask := func(ctx context.Context, solve Solver) error {
		_, err := Decisions(ctx, s.p, s.h, s.l, s.Plan, s.r, solve)
		_, err2 := Advice(ctx, s.p, s.h, s.r, solve)
		if (err == nil) != (err2 == nil) {
			t.Errorf("decisions: %v; advice: %v", err, err2)
		}
		return err
	}
	broken := errors.New("broken")
	if err := ask(t.Context(), func(context.Context, *plan.Problem) (*search.Result, error) {
		return nil, broken
	}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if err := ask(t.Context(), func(context.Context, *plan.Problem) (*search.Result, error) {
		return nil, search.ErrStopped
	}); err != nil {
		t.Errorf("a search that finds nothing in its steps: got %v", err)
	}
	if err := ask(t.Context(), func(context.Context, *plan.Problem) (*search.Result, error) {
		return &search.Result{}, nil
	}); err != nil {
		t.Errorf("a search without a placement: got %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(cancelled, solve); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := ask(late, solve); err != nil {
		t.Errorf("a deadline that has passed: got %v, want what could be said without asking", err)
	}
	if _, err := Decisions(t.Context(), s.p, s.h, s.l, &plan.Plan{}, s.r, solve); err == nil {
		t.Error("a plan of another request: got no error")
	}
}

func TestQuestionsAreCounted(t *testing.T) {
	t.Parallel()
	s := planned(t, readHost(t, "h20.txt"),
		parseLab(t, "name: x\nnodes:\n  vm: {count: 4, cpus: 4, memory: 4GiB, gpus: 2, nics: 1}\n"))
	asked := 0
	counting := func(ctx context.Context, p *plan.Problem) (*search.Result, error) {
		asked++
		return solve(ctx, p)
	}
	if _, err := Decisions(t.Context(), s.p, s.h, s.l, s.Plan, s.r, counting); err != nil {
		t.Fatal(err)
	}
	if asked > MaxDecisionSolves {
		t.Errorf("%d changed problems were solved, want at most %d", asked, MaxDecisionSolves)
	}
	asked = 0
	if _, err := Advice(t.Context(), s.p, s.h, s.r, counting); err != nil {
		t.Fatal(err)
	}
	if asked > MaxAdviceSolves {
		t.Errorf("%d changed problems were solved for advice, want at most %d", asked, MaxAdviceSolves)
	}
}
