package qemu

import (
	"context"
	"net"
	"time"

	"github.com/rackless/rackless/vm"
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
	Name        string     `json:"name"`
	Process     vm.Process `json:"process"`
	Accelerator string     `json:"accelerator"` // "kvm" or "tcg"
	Cloned      bool       `json:"cloned"`      // resumed from a template, not booted
	ColdReason  string     `json:"cold_reason,omitempty"`
	Started     time.Time  `json:"started"`
	Agent       string     `json:"agent"`   // unix socket of the guest agent
	Console     string     `json:"console"` // unix socket of the serial console
	Log         string     `json:"log"`     // file with what the console printed

	// Setup is the connection to the guest's setup port, for whoever started the node to use once
	// and close; see guest.NewSetup.
	Setup net.Conn `json:"-"`
}
