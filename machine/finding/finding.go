// Package finding defines rackless's findings about a machine, a lab or a node, and the catalogue that explains them:
// one Markdown file each, catalogue/GROUP/RL###.md, which are the sections of docs/checks.md. See [Check].
package finding

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Severity is a finding's.
type Severity string

// Severities, worst first.
const (
	Error   Severity = "error"   // something will not work, or data will be lost or wrong
	Warning Severity = "warning" // slower or less safe than possible
	Info    Severity = "info"    // not a fault
)

// Rank returns 0, 1 or 2, worst first. An unknown word ranks as a warning, so that a newer version's finding is not
// lost.
func (s Severity) Rank() int {
	switch s {
	case Error:
		return 0
	case Info:
		return 2
	}
	return 1
}

// Status is a check's outcome.
type Status string

// OK and the others are for checks; findings of inspect have no status. Warn and Lack belong to doctor.
const (
	OK      Status = "ok"      // as expected
	Failed  Status = "failed"  // not as expected
	Unknown Status = "unknown" // could not be read
	Warn    Status = "warn"    // slower or smaller than possible
	Lack    Status = "lack"    // labs do not start
)

// A Finding is one fault or noteworthy fact, or the outcome of one check on one subject. Its JSON is the format of
// inspect and of verify, which omit unknown fields.
type Finding struct {
	// ID is "RL003"; for verify a name, "link-mtu"; for doctor "qemu".
	ID   string `json:"id"`
	Code string `json:"code,omitempty"` // for verify, the ID: "RL402"
	// Severity is empty for verify.
	Severity Severity `json:"severity,omitempty"`
	// Subject is "host", a PCI address, a name, a CPU list in the kernel's format, "node 1", "node -> node". Several
	// are separated by commas, without spaces.
	Subject string `json:"subject,omitempty"`
	Title   string `json:"title"` // fault or check in a few words
	Status  Status `json:"status,omitempty"`
	Have    string `json:"have,omitempty"` // value; Evidence is then just its place
	Want    string `json:"want,omitempty"`
	// Evidence is "PATH: name=value name=value", with "; " between places.
	Evidence    string `json:"evidence,omitempty"`
	Consequence string `json:"consequence,omitempty"`
	Fix         string `json:"fix,omitempty"` // empty if the check holds

	// Silent means no answer, so that other checks could not run.
	Silent bool `json:"-"`
}

// Judged returns f as OK, without its fix, or as Failed.
func (f Finding) Judged(ok bool) Finding {
	f.Status = Failed
	if ok {
		f.Status, f.Fix = OK, ""
	}
	return f
}

// Sort orders by severity (worst first), ID and subject.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject))
	})
}

// Worst needs at least one finding.
func Worst(all []Finding) Severity {
	return slices.MinFunc(all, func(a, b Finding) int {
		return cmp.Compare(a.Severity.Rank(), b.Severity.Rank())
	}).Severity
}

// Count counts a status.
func Count(all []Finding, s Status) int {
	return lists.Count(all, func(f Finding) bool { return f.Status == s })
}

// NotOK returns checks that failed or could not run.
func NotOK(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Status == OK })
}
