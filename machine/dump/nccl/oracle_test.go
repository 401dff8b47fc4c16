package nccl_test

import (
	"encoding/xml"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/topology"
)

type node struct {
	XMLName  xml.Name
	BusID    string `xml:"busid,attr"`
	Children []node `xml:",any"`
	parent   *node
}

func leaves(n *node) []*node {
	var out []*node
	inner := false
	for i := range n.Children {
		c := &n.Children[i]
		c.parent = n
		inner = inner || c.XMLName.Local == "pci"
		out = append(out, leaves(c)...)
	}
	if n.XMLName.Local == "pci" && !inner {
		out = append(out, n)
	}
	return out
}

// class implements NCCL's rule: through one switch is PIX, through cascaded switches PXB, through a processor PHB,
// through two SYS.
func class(a, b *node) topology.PathClass {
	depth := map[*node]int{}
	for n, d := a.parent, 0; n != nil; n, d = n.parent, d+1 {
		depth[n] = d
	}
	for n, d := b.parent, 0; n != nil; n, d = n.parent, d+1 {
		da, common := depth[n]
		switch {
		case !common:
		case n.XMLName.Local == "system":
			return topology.PathSYS
		case n.XMLName.Local == "cpu":
			return topology.PathPHB
		case d == 0 && da == 0:
			return topology.PathPIX
		default:
			return topology.PathPXB
		}
	}
	return topology.PathUnknown
}

func TestPathsOfFixturesFollowNCCL(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		b := readFile(t, f)
		h, err := nccl.Parse(b, f)
		if err != nil {
			continue // a graph
		}
		var root node
		if err := xml.Unmarshal(b, &root); err != nil {
			t.Fatal(err)
		}
		tree := topology.NewTree(h)
		devices := leaves(&root)
		seen := map[string]bool{}
		pairs := 0
		for i, a := range devices {
			seen[a.BusID] = true
			for _, c := range devices[i+1:] {
				from, err1 := topology.ParsePCIAddr(a.BusID)
				to, err2 := topology.ParsePCIAddr(c.BusID)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				want := class(a, c)
				if from.SameDevice(to) {
					want = topology.PathPIX // functions of one device, which NCCL treats as two
				}
				// One model uses an address for both a switch and a NIC in it. The NIC is not read.
				if d := tree.Device(from); d == nil || d.Bridge != nil || seen[c.BusID] {
					continue
				}
				if d := tree.Device(to); d == nil || d.Bridge != nil {
					continue
				}
				pairs++
				if got := tree.Between(from, to); got != want {
					t.Errorf("%s: %s to %s: got %s, want %s", filepath.Base(f), from, to, got, want)
				}
			}
		}
		if pairs == 0 {
			t.Errorf("%s: no pair compared", f)
		}
	}
}
