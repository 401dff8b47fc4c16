package check

import (
	"slices"
	"sync"

	"github.com/rackless/rackless/diagnose"
)

// A Group is what a check looks at.
type Group string

// The groups, in the order in which verify makes them.
const (
	HostGroup   Group = "host"   // a host against its plan
	DomainGroup Group = "domain" // virtual machines against their plan
	LabGroup    Group = "lab"    // nodes against their lab
	GuestGroup  Group = "guest"  // what nodes see of their host, against the plan
)

var groups = sync.OnceValue(func() map[string]Group {
	of := make(map[string]Group)
	for g, checks := range map[Group][]diagnose.Check{HostGroup: hostChecks(), DomainGroup: domainChecks(),
		GuestGroup: nodeChecks()} {
		for _, c := range checks {
			of[c.Name] = g
		}
	}
	for _, id := range LabIDs() {
		of[id] = LabGroup
	}
	return of
})

// GroupOf returns the group of a check of this package; "" where there is no such check.
func GroupOf(id string) Group { return groups()[id] }

// NotOK returns the findings that failed or could not be made.
func NotOK(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Status == OK })
}
