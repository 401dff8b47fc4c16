package diagnose

import (
	"cmp"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/topology"
)

// A rule finds what the check of its ID explains, see package finding. It sets neither ID nor, as a
// rule, Title and Severity: they are those of the check.
type rule struct {
	id   string
	find func(v *view, add func(finding.Finding))
}

// rules returns every rule, by ID. It is a function, not a variable: nothing can be added to it at
// run time, and the order is written here.
func rules() []rule {
	return []rule{
		{"RL001", slotLimited},
		{"RL002", narrowLink},
		{"RL003", slowLink},
		{"RL004", sleepyLink},
		{"RL010", unknownNode},
		{"RL011", farNIC},
		{"RL012", otherRoot},
		{"RL013", slowNIC},
		{"RL020", iommuOff},
		{"RL021", sharedGroup},
		{"RL022", notViable},
		{"RL023", acsRedirect},
		{"RL024", acsOverride},
		{"RL025", reservedRegions},
		{"RL030", noReset},
		{"RL031", busResetOnly},
		{"RL032", dead},
		{"RL033", coldDevice},
		{"RL034", tooManyVFs},
		{"RL035", noVFs},
		{"RL036", lostOverride},
		{"RL037", largeBARs},
		{"RL040", fewerPages},
		{"RL041", noPool},
		{"RL042", pagesOnOneNode},
		{"RL043", bareNode},
		{"RL044", swapOn},
		{"RL045", balancing},
		{"RL046", alwaysTHP},
		{"RL047", ksmOn},
		{"RL050", splitCores},
		{"RL051", busyIsolated},
		{"RL052", notInForce},
		{"RL053", emptyList},
		{"RL054", governors},
		{"RL055", smtOff},
		{"RL056", longCmdline},
		{"RL060", sharedCPUs},
		{"RL061", floatsIsolated},
		{"RL062", pinnedOffline},
		{"RL063", someUnpinned},
		{"RL064", emulatorShares},
		{"RL065", sharedCores},
		{"RL070", nodesTooSmall},
		{"RL071", farMemory},
		{"RL072", farDevice},
		{"RL073", fewPagesLeft},
		{"RL074", sharedDevice},
		{"RL075", takesHostDevice},
		{"RL076", heldGPU},
		{"RL080", oneLink},
		{"RL081", unequalMembers},
		{"RL082", smallMTU},
		{"RL083", oneCPU},
		{"RL084", farInterrupts},
		{"RL085", onlyNIC},
		{"RL086", rdmaOffBond},
		{"RL090", onlyV1},
		{"RL091", noRoutableGID},
		{"RL092", portDown},
		{"RL093", noSubnetManager},
		{"RL094", zeroGUID},
		{"RL095", portErrors},
		{"RL096", noPeerMemory},
		{"RL100", smallBAR},
		{"RL101", pictureDriver},
		{"RL102", splitGPU},
		{"RL103", consoleGPU},
	}
}

// Host returns what is wrong with h, the worst first, then by ID and subject. It is nil when
// nothing is. h should have been completed (topology.Host.Complete); it is not changed.
func Host(h *topology.Host) []finding.Finding {
	v := newView(h)
	// Rules are independent of each other and of their order: finding.Sort decides what comes first.
	var out []finding.Finding
	for _, r := range rules() {
		r.find(v, func(f finding.Finding) {
			check, _ := finding.Find(r.id) // a test holds that there is one
			f.ID = r.id
			f.Title = cmp.Or(f.Title, check.Title)
			f.Severity = cmp.Or(f.Severity, check.Severities[0])
			f.Evidence += v.origin()
			out = append(out, f)
		})
	}
	finding.Sort(out)
	return out
}
