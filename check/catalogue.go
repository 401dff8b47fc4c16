package check

import (
	"cmp"

	"github.com/rackless/rackless/finding"
)

// A Finding is the outcome of one check on one subject.
type Finding = finding.Finding

// Status of a finding.
type Status = finding.Status

// The three outcomes of a check.
const (
	OK      = finding.OK
	Failed  = finding.Failed
	Unknown = finding.Unknown
)

// coded fills in what the catalogue says of the findings: the code, and the title where it has none of its own.
func coded(all []finding.Finding) []finding.Finding {
	for i := range all {
		c, _ := finding.Find(all[i].ID) // a test holds that there is one
		all[i].Code = c.ID
		all[i].Title = cmp.Or(all[i].Title, c.Title)
	}
	return all
}
