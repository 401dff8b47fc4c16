package course

import (
	_ "embed"
	"sync"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
)

// A Puzzle is a fault that users' labs can have, for two or more nodes.
type Puzzle struct {
	Name    string `yaml:"name"`    // one word
	Story   string `yaml:"story"`   // a user's report
	Hint    string `yaml:"hint"`    // advice for the search
	Cause   string `yaml:"cause"`   // shown after the repair
	Finding string `yaml:"finding"` // the failing check of verify
	Node    int    `yaml:"node"`    // index of the broken node

	// Breaks and Mends are scripts that run in the node, with these variables: dev, addr, len and mtu are its NIC,
	// address, prefix length and MTU; peer is the address of the other node. Mends undoes Breaks, even if a part was
	// repaired by hand. It is empty if a step of setup does that.
	Breaks string            `yaml:"breaks"`
	Mends  string            `yaml:"mends"`
	Busy   bool              `yaml:"busy"`  // make the port busy first
	Link   []fabric.LinkEdit `yaml:"link"`  // of the node's port
	Fault  checks.Fault      `yaml:"fault"` // of the node's adapter
	GPU    checks.GPUFault   `yaml:"gpu"`   // of the node's first GPU
	Far    bool              `yaml:"far"`   // the node has a NIC that is far from its GPU
}

// busy makes packets wait, so that a lossless fabric or marks take effect.
var busy = []fabric.LinkEdit{{Key: "rate", Text: "1Gbit"}, {Key: "trust", Text: "dscp"},
	{Key: "ecn", Text: "32KiB:128KiB:10%"}, {Key: "pfc", Text: "256KiB:128KiB:3"}}

//go:embed puzzles.yaml
var puzzles []byte

// Puzzles returns all puzzles, from number 1.
var Puzzles = sync.OnceValue(func() []Puzzle {
	var all struct {
		Puzzles []Puzzle `yaml:"puzzles"`
	}
	strictyaml.MustParse("puzzles.yaml", puzzles, &all)
	return all.Puzzles
})
