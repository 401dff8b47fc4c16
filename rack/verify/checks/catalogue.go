package checks

import (
	"cmp"

	"github.com/rackless/rackless/machine/finding"
)

type sheet struct {
	subject string // default for findings
	fix     string // default for failed findings
	out     []finding.Finding
}

func (s *sheet) add(f finding.Finding) {
	f.Subject = cmp.Or(f.Subject, s.subject)
	s.out = append(s.out, f)
}

func (s *sheet) judge(ok bool, f finding.Finding) {
	f.Fix = cmp.Or(f.Fix, s.fix)
	s.add(f.Judged(ok))
}

func (s *sheet) unknown(f finding.Finding, why, fix string) {
	f.Status, f.Have, f.Fix = finding.Unknown, why, fix
	s.add(f)
}

func coded(all []finding.Finding) []finding.Finding {
	for i := range all {
		c, _ := finding.Find(all[i].ID) // a test ensures that it exists
		all[i].Code = c.ID
		all[i].Title = cmp.Or(all[i].Title, c.Title)
	}
	return all
}
