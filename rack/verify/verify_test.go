package verify

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack/verify/checks"
)

func fakeHost(governors ...string) *Target {
	round := 0
	return &Target{
		Strays: func() ([]string, error) { return nil, nil },
		Plan:   &plan.Plan{Lab: "pair", Nodes: []plan.Node{{Name: "vm00", VCPUs: []int{1}}}},
		Host: func(ctx context.Context) (*topology.Host, error) {
			h := &topology.Host{Cores: []topology.Core{{CPUs: topology.CPUs(1),
				Governor: governors[min(round, len(governors)-1)]}}}
			round++
			return h, ctx.Err()
		}}
}

type silentReader struct{}

var errNoAnswer = errors.New("no answer")

func (silentReader) Facts(context.Context, string) (*facts.Node, error) { return nil, errNoAnswer }
func (silentReader) Exec(context.Context, string, []string) (bench.Output, error) {
	return bench.Output{}, errNoAnswer
}

func TestFindingsOfAllKindsStandTogether(t *testing.T) {
	l, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes:\n  vm: {count: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := fakeHost("performance")
	v.Domains = func(context.Context) ([]checks.Domain, error) {
		return []checks.Domain{{Node: "vm00", Name: "pair.vm00", State: "shut off"}}, nil
	}
	v.Running = func(context.Context) (*facts.Running, error) {
		return &facts.Running{Threads: []facts.Thread{{PID: 9, TID: 9, Name: "x", Allowed: topology.CPUs(1),
			LastCPU: 1}}}, nil
	}
	v.Lab, v.Nodes = l, silentReader{}
	kinds := func(only ...string) (text string, ids []string) {
		t.Helper()
		all, err := v.Findings(t.Context(), only, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, f := range all {
			ids = append(ids, f.ID)
			if k := f.Code[:3]; !seen[k] {
				seen[k] = true
				text += k + " "
			}
		}
		return text, ids
	}
	if got, _ := kinds(); got != "RL2 RL3 RL4 " {
		t.Errorf("all: %s", got)
	}
	if got, ids := kinds(checks.IDDomain); got != "RL3 " || len(ids) != 1 {
		t.Errorf("virtual machines alone: %s %q", got, ids)
	}
	if got, ids := kinds(checks.IDMTU); got != "RL4 " || len(ids) != 1 || ids[0] != checks.IDLink {
		t.Errorf("nodes alone: %s %q", got, ids)
	}
	if got, ids := kinds(checks.IDGuestNUMA); got != "RL4 " || len(ids) != 1 || ids[0] != checks.IDGuestCPUs {
		t.Errorf("guests alone: %s %q", got, ids)
	}
	broken := errors.New("libvirt has gone")
	v.Domains = func(context.Context) ([]checks.Domain, error) { return nil, broken }
	if _, err := v.Findings(t.Context(), nil, func(string) {}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := v.Findings(t.Context(), []string{checks.IDReach}, func(string) {}); err != nil {
		t.Errorf("of the nodes alone: %v", err)
	}
}

func TestWhatAppliesFollowsFromTheTarget(t *testing.T) {
	lab := &lab.Lab{Name: "pair"}
	placed := fakeHost("performance")
	placed.Lab, placed.Nodes = lab, silentReader{}
	placed.Domains = func(context.Context) ([]checks.Domain, error) { return nil, nil }
	remote := &Target{Plan: placed.Plan, Lab: lab, Nodes: silentReader{}}
	snapshot := fakeHost("performance")
	snapshot.Strays = nil
	const host, domain, inLab, guest = finding.Host, finding.Domain, finding.Lab, finding.Guest
	tests := []struct {
		name   string
		target *Target
		want   []finding.Group
	}{
		{"an emulated lab", &Target{Lab: lab, Nodes: silentReader{}}, []finding.Group{inLab}},
		{"a host and its plan", fakeHost("performance"), []finding.Group{host}},
		{"a lab on this host", placed, []finding.Group{host, domain, inLab, guest}},
		{"a snapshot and its plan", snapshot, []finding.Group{host}},
		{"a lab on another host", remote, []finding.Group{inLab, guest}},
	}
	for _, tt := range tests {
		var want []string
		for _, id := range finding.Names() {
			absent := id == checks.IDJournal && tt.target.Strays == nil || id == checks.IDSwitchLinks
			if slices.Contains(tt.want, finding.GroupOf(id)) && !absent {
				want = append(want, id)
			}
		}
		if diff := cmp.Diff(want, tt.target.Checks()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
