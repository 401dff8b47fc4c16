// Package finding is what rackless says about a machine, a lab or a node: one type for the findings
// of inspect, the checks of verify and the items of doctor, and the catalogue that explains them.
//
// The catalogue is Markdown, one file for each finding or check, in catalogue/GROUP/RL###.md. The
// files are the sections of docs/checks.md; no Go is needed to change a text. See [Check].
package finding

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Severity says how much a finding matters.
type Severity string

// The severities, from the worst.
const (
	Error   Severity = "error"   // something will not work, or data will be lost or wrong
	Warning Severity = "warning" // it works, but slower or less safe than it could
	Info    Severity = "info"    // worth knowing before a decision; nothing is wrong
)

// Rank orders severities, the worst first: 0, 1 and 2. A word that is not known ranks as a warning:
// a finding of a newer version must not be lost.
func (s Severity) Rank() int {
	switch s {
	case Error:
		return 0
	case Info:
		return 2
	}
	return 1
}

// Status is the outcome of a check.
type Status string

// The outcomes of a check. Findings of inspect have none: they are only made where something is
// found. Warn and Lack are those of doctor, which asks what a machine can do.
const (
	OK      Status = "ok"      // what was read is what was expected
	Failed  Status = "failed"  // it is not
	Unknown Status = "unknown" // it could not be read, so nothing is claimed
	Warn    Status = "warn"    // labs come up, but slower or smaller than they could
	Lack    Status = "lack"    // labs do not come up
)

// A Finding is one thing that is wrong or worth knowing, or the outcome of one check on one subject.
// Its JSON is that of inspect and of verify, which leave out what they do not know.
type Finding struct {
	// ID is that of the check in the catalogue, "RL003"; of verify its name, "link-mtu"; of doctor "qemu".
	ID   string `json:"id"`
	Code string `json:"code,omitempty"` // of a check of verify, its ID in the catalogue: "RL402"
	// Severity is empty in checks of verify: theirs is in the catalogue.
	Severity Severity `json:"severity,omitempty"`
	// Subject is what the finding is about: "host", a PCI address, the name of a device, node or
	// tenant, a CPU list in the kernel's format, "node 1", "node -> node". Several addresses or
	// names are separated by commas, without spaces.
	Subject string `json:"subject,omitempty"`
	Title   string `json:"title"` // what is wrong or what is checked, in a few words
	Status  Status `json:"status,omitempty"`
	Have    string `json:"have,omitempty"` // what was read; then Evidence is only the place, a file or a command
	Want    string `json:"want,omitempty"`
	// Evidence is what was read and where: "PATH: name=value name=value", with "; " between places.
	Evidence    string `json:"evidence,omitempty"`
	Consequence string `json:"consequence,omitempty"`
	Fix         string `json:"fix,omitempty"` // empty where the check holds

	// Silent is set where the subject did not answer, so that none of its other checks could be made.
	Silent bool `json:"-"`
}

// Judged returns f with the status that ok decides. A check that holds has no fix.
func (f Finding) Judged(ok bool) Finding {
	f.Status = Failed
	if ok {
		f.Status, f.Fix = OK, ""
	}
	return f
}

// Sort orders findings, the worst first, then by ID and subject.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject))
	})
}

// Worst returns the worst severity of findings, of which there is at least one.
func Worst(all []Finding) Severity {
	return slices.MinFunc(all, func(a, b Finding) int {
		return cmp.Compare(a.Severity.Rank(), b.Severity.Rank())
	}).Severity
}

// Count returns how many findings have the status.
func Count(all []Finding, s Status) int {
	return lists.Count(all, func(f Finding) bool { return f.Status == s })
}

// NotOK returns the checks that failed or could not be made.
func NotOK(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Status == OK })
}
