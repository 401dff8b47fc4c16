package diagnose

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A testCase triggers a rule, or just does not.
type testCase struct {
	id    string
	name  string // the difference from the base
	found bool
	from  func() *topology.Host // nil means base
	set   func(h *topology.Host)
}

func (c *testCase) host() *topology.Host {
	from := c.from
	if from == nil {
		from = base
	}
	h := from()
	if c.set != nil {
		c.set(h)
	}
	h.Complete()
	return h
}

func allCases() []testCase {
	return slices.Concat(linkCases(), localityCases(), iommuCases(), assignCases(), memoryCases(), cpuCases(),
		tenantCases(), tenantResCases(),
		networkCases(), rdmaCases(), gpuCases(), pathCases(), guestCases(), logCases(), shapeCases())
}

func of(id string, list []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(list, func(f finding.Finding) bool { return f.ID != id })
}

func text(list []finding.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s %s %s: %s\n  evidence    %s\n  consequence %s\n  fix         %s\n",
			f.ID, f.Severity, f.Subject, f.Title, f.Evidence, f.Consequence, f.Fix)
	}
	return b.String()
}

func TestRules(t *testing.T) {
	t.Parallel()
	wanted := map[string]string{}
	for _, c := range allCases() {
		got := of(c.id, Host(c.host()))
		switch {
		case c.found && len(got) == 0:
			t.Errorf("%s: %s: got no finding, want one", c.id, c.name)
		case !c.found && len(got) > 0:
			t.Errorf("%s: %s: got a finding, want none:\n%s", c.id, c.name, text(got))
		case c.found:
			wanted[c.id] += "# " + c.name + "\n" + text(got) + "\n"
		}
	}
	for id, want := range wanted {
		golden.Check(t, filepath.Join("testdata", "rules", id+".txt"), want)
	}
	if golden.Update() {
		return
	}
	files, err := filepath.Glob(filepath.Join("testdata", "rules", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if wanted[strings.TrimSuffix(filepath.Base(f), ".txt")] == "" {
			t.Errorf("%s is of no case", f)
		}
	}
}

func TestEveryRuleHasACaseThatTriggersItAndOneThatDoesNot(t *testing.T) {
	t.Parallel()
	type seen struct{ found, missed bool }
	cases := map[string]seen{}
	names := map[string]bool{}
	for _, c := range allCases() {
		s := cases[c.id]
		s.found = s.found || c.found
		s.missed = s.missed || !c.found
		cases[c.id] = s
		if key := c.id + c.name; names[key] {
			t.Errorf("%s: two cases are called %q", c.id, c.name)
		} else {
			names[key] = true
		}
	}
	for _, c := range checks() {
		if s := cases[c.ID]; !s.found || !s.missed {
			t.Errorf("%s: triggered by a case: %v, missed by one: %v", c.ID, s.found, s.missed)
		}
		delete(cases, c.ID)
	}
	for id := range cases {
		t.Errorf("%s has cases and is not in the catalogue", id)
	}
}

func TestEverySeverityOfACheckHasACase(t *testing.T) {
	t.Parallel()
	have := map[string]map[finding.Severity]bool{}
	for _, c := range allCases() {
		for _, f := range of(c.id, Host(c.host())) {
			if have[f.ID] == nil {
				have[f.ID] = map[finding.Severity]bool{}
			}
			have[f.ID][f.Severity] = true
		}
	}
	for _, c := range checks() {
		for _, s := range c.Severities {
			if !have[c.ID][s] {
				t.Errorf("%s: no case gives a finding of severity %s", c.ID, s)
			}
			delete(have[c.ID], s)
		}
		for s := range have[c.ID] {
			t.Errorf("%s: a case gives severity %s, which the catalogue does not name", c.ID, s)
		}
	}
}

func TestWhatIsWrongWithWholeMachines(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*topology.Host{"epyc-7551p": base(), "laptop": laptop(), "h20": h20(),
		"nothing known": {}} {
		h.Complete()
		golden.Check(t, filepath.Join("testdata", "hosts", strings.ReplaceAll(name, " ", "-")+".txt"), text(Host(h)))
	}
}

func TestFindingsAreInOrderAndComplete(t *testing.T) {
	t.Parallel()
	for _, c := range allCases() {
		h := c.host()
		first, second := Host(h), Host(h)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("%s: %s: two runs differ:\n%s", c.id, c.name, diff)
		}
		for i, f := range first {
			if f.ID == "" || f.Subject == "" || f.Title == "" || f.Evidence == "" || f.Consequence == "" ||
				f.Fix == "" {
				t.Errorf("%s: %s: a field is empty: %+v", c.id, c.name, f)
			}
			if bad := strings.TrimSpace(f.Evidence); bad != f.Evidence || strings.Contains(f.Evidence, "  ") ||
				strings.Contains(f.Evidence, ": ;") {
				t.Errorf("%s: %s: evidence has a gap: %q", c.id, c.name, f.Evidence)
			}
			if i > 0 && first[i-1].Severity.Rank() > f.Severity.Rank() {
				t.Errorf("%s: %s: %s comes after %s", c.id, c.name, f.Severity, first[i-1].Severity)
			}
		}
	}
}

func TestADumpOfAnotherToolIsNamedInTheEvidence(t *testing.T) {
	t.Parallel()
	h := base()
	h.Provenance = topology.Provenance{Kind: topology.SourceHwloc, Name: "machine.xml"}
	h.Complete()
	for _, f := range Host(h) {
		if !strings.HasSuffix(f.Evidence, "(as told by hwloc-xml)") {
			t.Errorf("evidence %q does not say that it is from hwloc XML", f.Evidence)
		}
	}
}

// h20 is known only by its matrix: eight GPUs, four NICs, two nodes.
func h20() *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTopo},
		NUMANodes: []topology.NUMANode{{ID: 0, CPUs: cpus("0-47,96-143")}, {ID: 1, CPUs: cpus("48-95,144-191")}}}
	for n := range 4 {
		h.NICs = append(h.NICs, topology.NIC{Name: fmt.Sprintf("NIC%d", n),
			RDMA: []string{fmt.Sprintf("mlx5_bond_%d", n)}})
	}
	for g := range 8 {
		h.GPUs = append(h.GPUs, topology.GPU{Name: fmt.Sprintf("GPU%d", g), NUMANode: new(g / 4)})
		for n := range 4 {
			class := topology.PathSYS
			switch {
			case g == 1 && n == 0, g == 3 && n == 1:
				class = topology.PathPIX
			case g < 4 && n < 2:
				class = topology.PathNODE
			}
			h.Reported = append(h.Reported, topology.Path{A: fmt.Sprintf("GPU%d", g), B: fmt.Sprintf("NIC%d", n),
				Class: class})
		}
	}
	return h
}

func checks() []finding.Check {
	return slices.DeleteFunc(slices.Clone(finding.Catalogue()), func(c finding.Check) bool {
		return c.Group != finding.Inspect
	})
}

func TestEveryRuleIsInTheCatalogueAndEveryCheckHasARule(t *testing.T) {
	t.Parallel()
	var have, want []string
	for _, r := range rules() {
		have = append(have, r.id)
	}
	for _, c := range checks() {
		want = append(want, c.ID)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("rules (-catalogue +code):\n%s", diff)
	}
}
