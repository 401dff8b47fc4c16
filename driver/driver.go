// Package driver says what it takes to make the nodes of a lab exist. Its subpackages do it: qemu
// for labs on any Linux machine, without a daemon and without privileges.
//
// A driver knows nothing of what runs in the nodes but that an agent answers there, and nothing of benchmarks.
package driver

import (
	"context"
	"net"
	"time"
)

// A Spec is one node as it is to be.
type Spec struct {
	Lab  string // the lab's name, for process lists
	Name string // unique in the lab
	// a directory of the node's own, for sockets and logs; short, since a socket's path has at most
	// 107 bytes
	Dir    string
	CPUs   int   // virtual CPUs
	Memory int64 // bytes
	NICs   []NIC

	// Attached, if not nil, is called when the node's sockets can be connected to and before its CPUs run.
	Attached func(ctx context.Context) error
}

// A NIC is one network device of a node.
type NIC struct {
	MAC    string
	Socket string // the unix stream socket of the switch port that it is plugged into
}

// A Node is one node as it runs: what is needed to find it again from another process. It is stored in the lab's state.
type Node struct {
	Name        string    `json:"name"`
	Process     Process   `json:"process"`
	Accelerator string    `json:"accelerator"` // "kvm" or "tcg"
	Cloned      bool      `json:"cloned"`      // resumed from a template, not booted
	ColdReason  string    `json:"cold_reason,omitempty"`
	Started     time.Time `json:"started"`
	Agent       string    `json:"agent"`   // unix socket of the guest agent
	Console     string    `json:"console"` // unix socket of the serial console
	Log         string    `json:"log"`     // file with what the console printed

	// Setup is the connection to the guest's setup port, for whoever started the node to use once
	// and close; see guest.NewSetup.
	Setup net.Conn `json:"-"`
}

// State of a node's machine.
type State string

// The states that a driver can tell apart.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead" // no such process any more
)

// A Driver makes nodes exist. Methods may be called for different nodes at once.
type Driver interface {
	// Name is what the lab file calls the driver.
	Name() string
	// Prepare makes ready whatever nodes of this shape start from, so that Start is fast. It may
	// take long and reports its steps.
	Prepare(ctx context.Context, shape Spec, progress func(step string)) error
	// Start makes the node exist and run. When it returns, the node's CPUs run; its agent answers soon after.
	Start(ctx context.Context, spec Spec) (*Node, error)
	// Stop ends the node and returns once nothing of it is left running. A node that is gone already is not an error.
	Stop(ctx context.Context, n *Node) error
	// State reads what the node is doing now.
	State(ctx context.Context, n *Node) (State, error)
	// Strays returns processes of nodes below dir that no state file knows of, left by a rackless that was killed.
	Strays(dir string) ([]Process, error)
}
