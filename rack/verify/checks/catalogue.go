package checks

import (
	"cmp"

	"github.com/rackless/rackless/machine/finding"
)

// A sheet gathers the findings of one comparison.
type sheet struct {
	subject string // of findings that have none
	fix     string // of findings that do not hold and have none
	out     []finding.Finding
}

func (s *sheet) add(f finding.Finding) {
	f.Subject = cmp.Or(f.Subject, s.subject)
	s.out = append(s.out, f)
}

// judge adds a finding that is OK where ok says so.
func (s *sheet) judge(ok bool, f finding.Finding) {
	f.Fix = cmp.Or(f.Fix, s.fix)
	s.add(f.Judged(ok))
}

// unknown adds a finding on what could not be read, with the reason and what to do about it.
func (s *sheet) unknown(f finding.Finding, why, fix string) {
	// A value that was not read is never a failure: the host may be in order.
	f.Status, f.Have, f.Fix = finding.Unknown, why, fix
	s.add(f)
}

// coded fills in what the catalogue says of the findings: the code, and the title where it has none of its own.
func coded(all []finding.Finding) []finding.Finding {
	// The name of a check is what callers ask for, the code what documents and people go by.
	for i := range all {
		c, _ := finding.Find(all[i].ID) // a test holds that there is one
		all[i].Code = c.ID
		all[i].Title = cmp.Or(all[i].Title, c.Title)
	}
	return all
}
