package qemu

import (
	"context"
	"net"
	"time"

	"github.com/rackless/rackless/image"
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
	Image  *image.Image // of a full node; nil stands for that of the driver
	// Home is shared by all nodes as their /home, unless it is empty.
	Home Home
	// Adapters says that the NICs are ConnectX adapters, which need a QEMU with vfio-user.
	Adapters bool

	// Attached, if not nil, is called when the node's sockets can be connected to and before its CPUs run.
	Attached func(ctx context.Context) error
	// Restore is called in a clone with adapters before its CPUs run: their server takes their states from the files
	// AdapterState of the template's directory.
	Restore func(ctx context.Context, template string) error
}

// A Home is a directory of this machine that a guest can mount, and nothing outside of it.
type Home struct {
	Dir string
	// Security is QEMU's security_model: what the guest's users, modes and special files are on this machine, where all
	// files belong to the user that runs QEMU.
	Security string
}

// A NIC is one network device of a node.
type NIC struct {
	MAC    string
	Socket string // the unix stream socket of the switch port that it is plugged into
	// Adapter is the socket of the server that emulates the NIC as a ConnectX; "" for a virtio NIC.
	Adapter string
	Model   string // of the adapter
}

// A Node is one node as it was started.
type Node struct {
	Name        string
	Process     vm.Process
	Accelerator string // "kvm" or "tcg"
	Cloned      bool   // resumed from a template, not booted
	ColdReason  string // why not
	Started     time.Time
	Agent       string // unix socket of the guest agent
	Console     string // unix socket of the serial console
	Log         string // file with what the console printed

	// Setup is the connection to the guest's setup port, for whoever started the node to use once
	// and close; see guest.NewSetup.
	Setup net.Conn
}
