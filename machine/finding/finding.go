// Package finding defines rackless's findings about a machine, a lab or a node: one type for the findings of inspect,
// the checks of verify and the items of doctor, and the catalogue that explains them.
//
// The catalogue has one Markdown file for each finding or check, catalogue/GROUP/RL###.md. The files are the sections
// of docs/checks.md, and a text can be changed without Go. See [Check].
package finding

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// Severity is the severity of a finding.
type Severity string

// Severities, worst first.
const (
	Error   Severity = "error"   // something will not work, or data will be lost or wrong
	Warning Severity = "warning" // slower or less safe than possible
	Info    Severity = "info"    // worth knowing before a decision; not a fault
)

// Rank orders severities: 0, 1 and 2, worst first. An unknown word ranks as a warning, so that a finding of a newer
// version is not lost.
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

// Outcomes of a check. Findings of inspect have no status, because inspect only reports faults. Warn and Missing belong
// to doctor, which checks the abilities of a machine.
const (
	OK      Status = "ok"      // as expected
	Failed  Status = "failed"  // not as expected
	Unknown Status = "unknown" // could not be read
	Warn    Status = "warn"    // labs start, but slower or smaller than possible
	Missing Status = "missing" // labs do not start
)

// A Finding is one fault or noteworthy fact, or the outcome of one check on one subject. Its JSON is the format of
// inspect and of verify, which omit unknown fields.
type Finding struct {
	// ID is the check's ID in the catalogue, "RL003"; for verify its name, "link-mtu"; for doctor "qemu".
	ID   string `json:"id"`
	Code string `json:"code,omitempty"` // for a check of verify, its ID in the catalogue: "RL402"
	// Severity is empty for checks of verify: the catalogue has it.
	Severity Severity `json:"severity,omitempty"`
	// Subject is the subject of the finding: "host", a PCI address, the name of a device, node or tenant, a CPU list
	// in the kernel's format, "node 1", "node -> node". Several addresses or names are separated by commas, without
	// spaces.
	Subject string `json:"subject,omitempty"`
	Title   string `json:"title"` // the fault or the check in a few words
	Status  Status `json:"status,omitempty"`
	Have    string `json:"have,omitempty"` // the value that was read; Evidence is then just its place
	Want    string `json:"want,omitempty"`
	// Evidence is the data that was read, with its place: "PATH: name=value name=value", with "; " between places.
	Evidence    string `json:"evidence,omitempty"`
	Consequence string `json:"consequence,omitempty"`
	Fix         string `json:"fix,omitempty"` // empty if the check holds

	// Silent means that the subject did not answer, so its other checks could not run.
	Silent bool `json:"-"`
}

// Judged returns f with the status OK or Failed. If ok is true, it clears the fix.
func (f Finding) Judged(ok bool) Finding {
	f.Status = Failed
	if ok {
		f.Status, f.Fix = OK, ""
	}
	return f
}

// Sort sorts findings by severity (worst first), ID and subject.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject))
	})
}

// Worst returns the worst severity of findings. all must not be empty.
func Worst(all []Finding) Severity {
	return slices.MinFunc(all, func(a, b Finding) int {
		return cmp.Compare(a.Severity.Rank(), b.Severity.Rank())
	}).Severity
}

// Count returns the number of findings with the status.
func Count(all []Finding, s Status) int {
	return lists.Count(all, func(f Finding) bool { return f.Status == s })
}

// NotOK returns the checks that failed or could not run.
func NotOK(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Status == OK })
}
