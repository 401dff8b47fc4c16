package check

import (
	"cmp"

	"github.com/rackless/rackless/finding"
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
