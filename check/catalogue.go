package check

import (
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/diagnose"
)

//go:generate go test . -run TestTheChecksPageIsCurrent -update

// Groups returns the whole catalogue: the findings of package diagnose, then the checks of this package.
func Groups() []diagnose.Group {
	return []diagnose.Group{
		diagnose.Findings(),
		{
			Title: "A host against its plan",
			About: "Made by `rackless verify` on the host that a plan is for, or on a snapshot of it, which shows " +
				"all but what runs (threads, interrupts,\n" +
				"control groups, mounts).",
			Checks: hostChecks(),
		},
		{
			Title: "Virtual machines against their plan",
			About: "Made by `rackless verify` from /proc of the host while the lab runs: what is in force, not what " +
				"was asked for.",
			Checks: domainChecks(),
		},
		{
			Title: "Nodes",
			About: "Made by `rackless verify` from inside of the nodes. Those on what a guest sees of its host " +
				"need a plan.",
			Checks: nodeChecks(),
		},
	}
}

// Catalogue returns every check that there is, findings of package diagnose included, by ID.
func Catalogue() []diagnose.Check {
	var all []diagnose.Check
	for _, g := range Groups() {
		all = append(all, g.Checks...)
	}
	return all
}

// catalogued are the checks of this package.
var catalogued = sync.OnceValue(func() []diagnose.Check {
	return slices.Concat(hostChecks(), domainChecks(), nodeChecks())
})

// IDs returns the identifiers of all checks of this package, in the order of the catalogue.
func IDs() []string {
	all := catalogued()
	ids := make([]string, len(all))
	for i, c := range all {
		ids[i] = c.Name
	}
	return ids
}

// LabIDs returns the identifiers of the checks that Lab makes: those that need no plan.
func LabIDs() []string {
	return []string{IDLink, IDMTU, IDAddress, IDPort, IDIBMTU, IDGID, IDIdentity, IDReach, IDTraffic}
}

// Lookup returns the identifier of the check of this package that is called so, "link-mtu" or
// "RL402", and whether there is one.
func Lookup(name string) (id string, ok bool) {
	c, ok := diagnose.Find(catalogued(), name)
	return c.Name, ok
}

// Code returns the code of a check of this package, "RL402" of "link-mtu"; empty where there is none.
func Code(id string) string {
	c, _ := diagnose.Find(catalogued(), id)
	return c.ID
}

// Silent reports whether a finding says that a node did not answer, so that its checks could not be made.
func Silent(f Finding) bool { return f.Title == titleAnswers }

// Explain returns the long text on the check of the catalogue with the given ID or name, for a
// terminal, and whether there is one.
func Explain(name string) (string, bool) {
	c, ok := diagnose.Find(Catalogue(), name)
	if !ok {
		return "", false
	}
	return c.Text(), true
}

// coded fills in what the catalogue says of the findings: the code, and the title where it has none of its own.
func coded(all []Finding) []Finding {
	for i := range all {
		f := &all[i]
		c, ok := diagnose.Find(catalogued(), f.ID)
		if !ok { // a test holds that there is one
			continue
		}
		f.Code = c.ID
		if f.Title == "" {
			f.Title = c.Title
		}
	}
	return all
}

// text joins sentences of the catalogue.
func text(sentences ...string) string { return strings.Join(sentences, " ") }
