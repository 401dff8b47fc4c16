package planview

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// setOrNone is the set as the kernel writes it, "none" where it is empty.
func setOrNone(s topology.CPUSet) string { return cmp.Or(s.String(), "none") }

// cardText is "GPU 0000:06:00.0 (NUMA node 0, guest node 0) with 0000:06:00.1". The guest's node is
// worth a word only if there are several.
func cardText(c *plan.NodeDevice, guestNUMA bool) string {
	s := plan.DeviceName(c.Kind, c.ID)
	if c.Kind == plan.KindVF {
		s = "VF of " + c.ID
		if c.VF != nil {
			s = fmt.Sprintf("VF %d of %s", *c.VF, c.ID)
		}
		// One that does not exist yet is named after its PF.
		if len(c.Functions) > 0 {
			if _, err := topology.ParsePCIAddr(c.Functions[0]); err == nil {
				s += ": " + c.Functions[0]
			}
		}
	}
	var where []string
	if c.NUMANode != nil {
		where = append(where, fmt.Sprintf("NUMA node %d", *c.NUMANode))
	}
	if c.Cell != nil && guestNUMA {
		where = append(where, fmt.Sprintf("guest node %d", *c.Cell))
	}
	if len(where) > 0 {
		s += " (" + strings.Join(where, ", ") + ")"
	}
	if c.Kind != plan.KindVF && len(c.Functions) > 1 {
		s += " with " + words.List(c.Functions[1:])
	}
	return s
}

// costText is "cost 1240 basis points, proved optimal", or how far from the bound the plan may be and why.
func costText(p *plan.Plan) string {
	if p.Optimal {
		return fmt.Sprintf("cost %d basis points, proved optimal", p.Cost)
	}
	s := fmt.Sprintf("cost %d basis points, not proved optimal", p.Cost)
	if p.Bound > 0 {
		// Rounded up: "within 0 %" would claim a proof.
		gap := (100*(p.Cost-p.Bound) + p.Bound - 1) / p.Bound
		s = fmt.Sprintf("cost %d basis points, within %d %% of the least: no plan costs less than %d", p.Cost, gap,
			p.Bound)
	}
	if p.Stopped != "" {
		s += ", stopped by " + p.Stopped
	}
	return s
}

// subject names the lab nodes of a term. The term "unequal" may have hundreds.
func subject(t *plan.Term) string {
	switch {
	case t.Node != "":
		return t.Node
	case len(t.Among) > 3:
		return fmt.Sprintf("%s and %d more", t.Among[0], len(t.Among)-1)
	}
	return words.List(t.Among)
}
