package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/topology"
)

// subjects are what a finding is about, in the form in which a device or node is looked up: an
// address as sysfs writes it, "node 1", or a name.
func subjects(f finding.Finding) []string {
	parts := strings.Split(f.Subject, ",")
	for i, s := range parts {
		s = strings.TrimSpace(s)
		// Some sources leave the domain out, and write letters large.
		if a, err := topology.ParsePCIAddr(s); err == nil {
			s = a.String()
		}
		parts[i] = s
	}
	return parts
}

// A findingGroup is findings that differ only in their subject and evidence: one line says what is
// wrong and how to mend it.
type findingGroup struct {
	finding.Finding // the first
	Subjects        []string
	Evidences       []string // beside Subjects
}

// grouped joins findings that say the same of several subjects, the worst first. The order is that
// of the first of each.
func grouped(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		f.Subject, f.Evidence = "", ""
		return f
	})
}

// families joins findings of one kind, whatever they advise.
func families(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		return finding.Finding{ID: f.ID, Title: f.Title, Severity: f.Severity}
	})
}

// groupedBy joins the findings that have the same key: the finding without what may differ.
func groupedBy(all []finding.Finding, key func(finding.Finding) finding.Finding) []findingGroup {
	var groups group.List[finding.Finding, findingGroup]
	for _, f := range all {
		g := groups.At(key(f), findingGroup{Finding: f})
		g.Subjects, g.Evidences = append(g.Subjects, f.Subject), append(g.Evidences, f.Evidence)
	}
	out := groups.All
	// Stable, so that findings of one severity stay in the order of the checks.
	slices.SortStableFunc(out, func(a, b findingGroup) int { return cmp.Compare(a.Severity.Rank(), b.Severity.Rank()) })
	return out
}

// findingsText counts the findings: "1 error, 2 warnings, 3 notes".
func findingsText(all []finding.Finding) string {
	var n [3]int
	for _, f := range all {
		n[f.Severity.Rank()]++
	}
	return cmp.Or(joined(", ", counted(n[0], "error"), counted(n[1], "warning"), counted(n[2], "note")), "no findings")
}

// some joins names in one sentence: the first few, and how many more there are.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
}
