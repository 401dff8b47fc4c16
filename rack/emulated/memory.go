package emulated

import (
	"fmt"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

// fits checks that the memory of the nodes that are to be started is there, in the worst case that
// every guest touches all of its own.
func fits(name string, start []lab.Node) error {
	room, err := rack.ReadRoom()
	if err != nil {
		return err
	}
	return fitsIn(name, start, room.Available)
}

// fitsIn is fits on a machine with so much memory. NodeOverhead is what a QEMU needs beside its guest.
func fitsIn(name string, start []lab.Node, available lab.Bytes) error {
	want := lists.Sum(start, func(n lab.Node) lab.Bytes { return n.Memory + rack.NodeOverhead })
	if want <= available {
		return nil
	}
	each := want / lab.Bytes(len(start))
	return fmt.Errorf("lab %s: %d nodes of %v on average (their memory and %v each for QEMU) need %.1f GiB; this "+
		"machine has %.1f GiB available, room for %d: "+
		"have fewer nodes, lower memory:, or say --overcommit (idle nodes touch far less than their memory)",
		name, len(start), each, rack.NodeOverhead, gib(want), gib(available), int(available/each))
}

func gib(b lab.Bytes) float64 { return float64(b) / float64(lab.GiB) }
