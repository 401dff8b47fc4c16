package checks

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
)

const noMAC = "00:00:00:00:00:00"

// identity checks values that must differ: nodes are copies of one template until they are configured. Devices of one
// node may share values, as a VLAN shares its parent's MAC. claims are those of ClaimReader.
func identity(l *lab.Lab, nodes []*facts.Node, claims []string) finding.Finding {
	type seen struct{ what, value string }
	owner := make(map[seen]string) // first node with the value
	var shared []string
	note := func(node, what, value string) {
		if value == "" {
			return // not reported by the kernel
		}
		key := seen{what, value}
		if other, dup := owner[key]; !dup {
			owner[key] = node
		} else if other != node {
			shared = append(shared, fmt.Sprintf("%s and %s have %s %s", other, node, what, value))
		}
	}
	known := 0
	for i, f := range nodes {
		if f == nil {
			continue
		}
		known++
		n := l.Nodes[i].Name
		note(n, "host name", f.Hostname)
		note(n, "machine-id", f.MachineID)
		note(n, "boot ID", f.BootID)
		note(n, "random UUID", f.UUID)
		for _, nic := range f.NICs {
			for _, d := range nic.Ports {
				if d.MAC != noMAC {
					note(n, "MAC", d.MAC)
				}
			}
		}
		for _, d := range f.RDMADevices() {
			note(n, "node GUID", d.NodeGUID)
			for _, g := range d.Port(1).GIDs {
				note(n, "GID", gidText(&g)+" "+g.Type)
			}
		}
	}
	shared = lists.Distinct(shared)
	f := finding.Finding{ID: IDIdentity, Subject: "lab " + l.Name, Title: "nothing shared between nodes",
		Status: finding.OK, Have: fmt.Sprintf("%d nodes, nothing shared", known), Want: "host names, machine-ids, " +
			"boot IDs, MACs, GUIDs, GIDs and random numbers differ", Evidence: "/proc/sys/kernel/hostname, " +
			"/etc/machine-id, /proc/sys/kernel/random, /sys/class/net, /sys/class/infiniband of every node"}
	switch {
	case len(claims) > 0:
		f.Status, f.Have = finding.Failed, strings.Join(append(shared, claims...), "; ")
		f.Evidence = "the lab's switch and NICs"
		f.Fix = fmt.Sprintf("find the program on that node; rackless down %s, then up starts the counts again", l.Name)
	case len(shared) > 0:
		f.Status, f.Have = finding.Failed, strings.Join(shared, "; ")
		f.Fix = fmt.Sprintf("rackless down %s, then up: nodes are told who they are when they start", l.Name)
	case known < len(nodes):
		// A silent node may share values with others.
		f.Status, f.Have = finding.Unknown, fmt.Sprintf("%d of %d nodes answer, nothing shared between them", known,
			len(nodes))
		f.Fix = "rackless ls shows which node does not run; rackless up LAB.yaml starts it again"
	}
	return f
}

// A ClaimReader reads a lab with a switch and adapters that know the address of each NIC.
type ClaimReader interface {
	// Claims describes nodes that claimed another node's address.
	Claims(ctx context.Context) ([]string, error)
}

func claims(ctx context.Context, r Reader) []string {
	if from, ok := r.(ClaimReader); ok {
		all, _ := from.Claims(ctx)
		return all
	}
	return nil
}
