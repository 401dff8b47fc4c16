package compare

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// An Outlier is a difference from the typical host of a group, and the hosts that have it: B is their value.
type Outlier struct {
	Difference
	Hosts []int `json:"-"` // indexes into the group
}

// maxTypical bounds the search for the typical host. Each round takes a host that is more like the others.
const maxTypical = 4

// Outliers says what hosts of a group differ in from its typical host, the rarest differences first: the one of 64
// hosts whose link is slow, before a second kind of host. The typical host is one that shares its facts with most
// others. Of fewer than three hosts none is typical: it is the first.
func Outliers(hosts []*topology.Host) (typical int, outliers []Outlier) {
	for range maxTypical {
		outliers = from(hosts, typical)
		next := mostAlike(hosts, typical, outliers)
		if len(hosts) < 3 || next == typical {
			break
		}
		typical = next
	}
	slices.SortStableFunc(outliers, func(a, b Outlier) int { return cmp.Compare(len(a.Hosts), len(b.Hosts)) })
	return typical, outliers
}

// from returns what differs from one host, with all hosts that differ so.
func from(hosts []*topology.Host, typical int) []Outlier {
	var all group.List[[4]string, Outlier]
	for i, h := range hosts {
		if i == typical {
			continue
		}
		for _, d := range Diff(hosts[typical], h) {
			o := all.At([4]string{d.Part, d.Fact, d.A, d.B}, Outlier{Difference: d})
			o.Hosts = append(o.Hosts, i)
		}
	}
	return all.All
}

// mostAlike returns the host that has the most of what most hosts have and the least of what few have. What most hosts
// differ in from the typical one is the fault of that one.
func mostAlike(hosts []*topology.Host, typical int, outliers []Outlier) int {
	score := make([]int, len(hosts))
	for _, o := range outliers {
		worth := words.Either(2*len(o.Hosts) > len(hosts), 1, -1)
		for _, h := range o.Hosts {
			score[h] += worth
		}
	}
	best := typical
	for h, s := range score {
		if s > score[best] {
			best = h
		}
	}
	return best
}
