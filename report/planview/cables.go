package planview

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
)

// cables has one entry for each port of the lab nodes whose link or peer is known. A cable between two lab nodes, and
// a port whose virtual functions several lab nodes have, stand once.
func cables(pl *plan.Plan, h *topology.Host) []hostview.Cable {
	var out []hostview.Cable
	owner := map[string]int{}
	for i := range pl.Nodes {
		for _, c := range pl.Nodes[i].Cards {
			if _, ok := owner[c.ID]; !ok && c.Kind != plan.KindGPU {
				owner[c.ID] = i
			}
		}
	}
	drawn := map[string]bool{}
	for i := range pl.Nodes {
		for k := range pl.Nodes[i].Cards {
			c := &pl.Nodes[i].Cards[k]
			if c.Kind == plan.KindGPU || drawn[c.ID] {
				continue
			}
			drawn[c.ID] = true
			state, down := linkState(h, c.ID)
			cable := hostview.Cable{From: hostview.CableEnd{Owner: i, Title: "NIC " + c.ID}, State: state, Down: down}
			switch {
			case len(c.Peers) > 1:
				cable.To = hostview.CableEnd{Owner: -1, Title: "switch",
					Lines: []string{"also has " + words.Few(c.Peers, 4, ", ")}}
			case len(c.Peers) == 1:
				cable.To = hostview.CableEnd{Owner: -1, Title: "NIC " + c.Peers[0]}
				if to, ok := owner[c.Peers[0]]; ok {
					cable.To.Owner = to
				} else {
					cable.To.Lines = []string{"of the host"}
				}
				drawn[c.Peers[0]] = true
			case state == "":
				continue
			case down:
			default:
				cable.Unknown = true
				cable.To = hostview.CableEnd{Owner: -1, Title: "peer not known",
					Lines: []string{"rackless host links --probe finds it"}}
			}
			out = append(out, cable)
		}
	}
	return out
}

// linkState returns "" if the link of a NIC is unknown.
func linkState(h *topology.Host, id string) (state string, down bool) {
	nic := lists.Ref(h.NICs, func(n *topology.NIC) bool { return n.ID() == id })
	if nic == nil {
		return "", false
	}
	for i := range nic.Ports {
		p := &nic.Ports[i]
		switch up := p.Up(); {
		case up == nil || strings.HasPrefix(p.PhysPort, "pf"): // a representor of a VF
		case !*up:
			return "no link", true
		case p.SpeedMbps != nil:
			return fmt.Sprintf("%g Gb/s", float64(*p.SpeedMbps)/1000), false
		default:
			return "link up", false
		}
	}
	return "", false
}
