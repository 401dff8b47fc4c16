package course

import (
	_ "embed"
	"sync"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
)

// A Puzzle is one way to break a lab of two or more nodes. It models a fault that users' labs can have.
type Puzzle struct {
	Name    string `yaml:"name"`    // one word
	Story   string `yaml:"story"`   // report of a user of the lab
	Hint    string `yaml:"hint"`    // advice for the search
	Cause   string `yaml:"cause"`   // the fault, shown after the repair
	Finding string `yaml:"finding"` // the failing check of verify
	Node    int    `yaml:"node"`    // index of the broken node in the lab

	// Breaks and Mends are scripts that run in the node, with these variables: dev, addr, len and mtu are its NIC,
	// address, prefix length and MTU; peer is the address of the other node. Mends undoes Breaks, even if a part was
	// repaired by hand. It is empty if a step of setup does that.
	Breaks string            `yaml:"breaks"`
	Mends  string            `yaml:"mends"`
	Busy   bool              `yaml:"busy"`  // make the node's port busy first
	Link   []fabric.LinkEdit `yaml:"link"`  // changes of the node's port that break it
	Fault  checks.Fault      `yaml:"fault"` // of the node's adapter
	GPU    checks.GPUFault   `yaml:"gpu"`   // of the node's first GPU
}

// busy makes packets wait at a port, so that a lossless fabric or marks take effect.
var busy = []fabric.LinkEdit{{Key: "rate", Text: "1Gbit"}, {Key: "trust", Text: "dscp"},
	{Key: "ecn", Text: "32KiB:128KiB:10%"}, {Key: "pfc", Text: "256KiB:128KiB:3"}}

//go:embed puzzles.yaml
var puzzles []byte

// Puzzles returns all puzzles. The first has number 1.
var Puzzles = sync.OnceValue(func() []Puzzle {
	var all struct {
		Puzzles []Puzzle `yaml:"puzzles"`
	}
	strictyaml.MustParse("puzzles.yaml", puzzles, &all)
	return all.Puzzles
})
