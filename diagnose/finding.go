package diagnose

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/topology"
)

// Severity says how much a finding matters.
type Severity string

// The severities, from the worst.
const (
	Error   Severity = "error"   // something will not work, or data will be lost or wrong
	Warning Severity = "warning" // it works, but slower or less safe than it could
	Info    Severity = "info"    // worth knowing before a decision; nothing is wrong
)

// rank orders severities, the worst first.
func (s Severity) rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// A Finding is one thing that is wrong, or worth knowing, about a host.
type Finding struct {
	ID       string   `json:"id"` // of the Check that explains it: "RL003"
	Severity Severity `json:"severity"`
	// Subject is what the finding is about: a PCI address, the name of a device, bond or tenant, a
	// CPU list in the kernel's format, "node 1", or "host". Several addresses or names are
	// separated by commas, without spaces.
	Subject string `json:"subject"`
	Title   string `json:"title"`
	// Evidence is what was read and where: "PATH: name=value name=value", with "; " between places.
	Evidence    string `json:"evidence"`
	Consequence string `json:"consequence"`
	Fix         string `json:"fix"`
}

// Host returns what is wrong with h, the worst first, then by ID and subject. It is nil when
// nothing is. h should have been completed (topology.Host.Complete); it is not changed.
func Host(h *topology.Host) []Finding {
	v := newView(h)
	var out []Finding
	for _, r := range rules() {
		for _, f := range r.find(v) {
			f.ID = r.ID
			f.Title = cmp.Or(f.Title, r.Title)
			f.Evidence += v.origin()
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject))
	})
	return out
}
