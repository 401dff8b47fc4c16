// Package check compares what is live with what it should be: a host with its plan ([Host]),
// virtual machines with theirs ([Domains]), what guests see of the host ([Guests]), and nodes with
// their lab ([Lab]). Each check has its place in the catalogue: what is read, what is expected, the
// fix. It knows nothing of how things got the way they are.
//
// What could not be read is Unknown: nothing is claimed of it, and it is not OK.
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
	ID       string `json:"id"`             // stable, e.g. "rdma-active-mtu"
	Code     string `json:"code,omitempty"` // of the same check in the catalogue: "RL405"
	Subject  string `json:"subject"`        // node, "node -> node", lab, host, "node PCI-ADDRESS", ...
	Title    string `json:"title"`          // what is checked, in a few words
	Status   Status `json:"status"`
	Have     string `json:"have,omitempty"`
	Want     string `json:"want,omitempty"`
	Evidence string `json:"evidence,omitempty"` // where Have was read: a file or a command
	Fix      string `json:"fix,omitempty"`      // set when Status is not OK
}
