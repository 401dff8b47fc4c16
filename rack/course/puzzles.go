package course

import (
	_ "embed"
	"sync"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
)

// A Puzzle is one way to break a lab of two nodes or more. What it changes is what a user's lab lacks, too.
type Puzzle struct {
	Name    string `yaml:"name"`    // one word
	Story   string `yaml:"story"`   // what a user of the lab reports
	Hint    string `yaml:"hint"`    // where to look
	Cause   string `yaml:"cause"`   // what was broken: shown once it is repaired
	Finding string `yaml:"finding"` // the check of verify that fails
	Node    int    `yaml:"node"`    // which node is broken, by its place in the lab

	// What is done. A script runs in the node, with these variables: dev, addr, len and mtu are its NIC, its address,
	// the length of the prefix and the MTU; peer is the address of the other node. Mends takes Breaks back, also where
	// a part of it was repaired by hand. It is not needed where a step of setup does it.
	Breaks string            `yaml:"breaks"`
	Mends  string            `yaml:"mends"`
	Busy   bool              `yaml:"busy"`  // the port of the node is made busy before
	Link   []fabric.LinkEdit `yaml:"link"`  // of the same port: what breaks it
	Fault  checks.Fault      `yaml:"fault"` // of the node's adapter
}

// busy is a port at which packets wait, so that a lossless fabric or marks have something to do.
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
