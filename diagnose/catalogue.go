package diagnose

import (
	"slices"
	"strings"
)

// A Check explains one kind of finding: those of this package, and those of package check, which
// compares a plan with what is live.
type Check struct {
	ID string // "RL" and three digits; never used again for anything else
	// of checks of a plan or a lab, also by this they are called: "link-mtu"; empty of findings of
	// this package
	Name  string
	Title string // what a finding says, in a few words; of a check by name, what is checked
	// Severity is the worst that its findings can have, Also what they can have instead.
	Severity Severity
	Also     []Severity
	Summary  string   // when it is found; of a check by name, when it holds
	Reads    []string // files, below the root of the machine, and commands
	// what it means, and how it is told from what looks alike; paragraphs are separated by an empty
	// line
	Means   string
	Fix     string   // how to mend it; lines that begin with four spaces are commands
	Sources []string // "owner/repository#number" of reports by users, and names of documents
}

// A rule is a check with the function that finds it. The function sets neither ID nor, as a rule, Title.
type rule struct {
	Check
	find func(*view) []Finding
}

// rules returns every rule, by ID. It is a function, not a variable: nothing can be added to it at
// run time, and the order is written here.
func rules() []rule {
	return slices.Concat(
		linkRules(),      // RL00x
		localityRules(),  // RL01x
		iommuRules(),     // RL02x
		assignRules(),    // RL03x
		memoryRules(),    // RL04x
		cpuRules(),       // RL05x
		tenantRules(),    // RL06x: CPUs
		tenantResRules(), // RL07x: memory and devices of tenants
		networkRules(),   // RL08x
		rdmaRules(),      // RL09x
		gpuRules(),       // RL10x
	)
}

// Catalogue returns all checks, by ID.
func Catalogue() []Check {
	all := rules()
	checks := make([]Check, len(all))
	for i, r := range all {
		checks[i] = r.Check
	}
	return checks
}

// Find returns the check with the given ID or name, and whether all has it. Case does not matter,
// and "3" and "RL3" stand for "RL003".
func Find(all []Check, id string) (Check, bool) {
	id = strings.TrimSpace(id)
	want := ""
	if digits := strings.TrimPrefix(strings.ToUpper(id), "RL"); digits != "" && len(digits) <= 3 {
		want = "RL" + strings.Repeat("0", 3-len(digits)) + digits
	}
	for _, c := range all {
		if c.ID == want || c.Name != "" && strings.EqualFold(c.Name, id) {
			return c, true
		}
	}
	return Check{}, false
}

// severities returns what its findings can be as people read it: "error, warning or info".
func (c *Check) severities() string {
	text := string(c.Severity)
	for i, s := range c.Also {
		if i == len(c.Also)-1 {
			text += " or "
		} else {
			text += ", "
		}
		text += string(s)
	}
	return text
}
