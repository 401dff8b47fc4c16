// Package check holds the catalogue of checks: what is read from the live lab, what is expected, and the fix.
// It knows nothing of how things got the way they are.
package check

// Status of a finding.
type Status string

// The three outcomes of a check.
const (
	OK      Status = "ok"      // what was read is what was expected
	Failed  Status = "failed"  // it is not
	Unknown Status = "unknown" // it could not be read, so nothing is claimed
)

// A Finding is the outcome of one check on one subject, with its evidence.
type Finding struct {
	ID       string `json:"id"`      // stable, e.g. "rdma-active-mtu"
	Subject  string `json:"subject"` // node, "node -> node" or lab
	Title    string `json:"title"`   // what is checked, in a few words
	Status   Status `json:"status"`
	Have     string `json:"have,omitempty"`
	Want     string `json:"want,omitempty"`
	Evidence string `json:"evidence,omitempty"` // where Have was read: a file or a command
	Fix      string `json:"fix,omitempty"`      // set when Status is not OK
}
