package planview

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// cpus is the set of a list of CPUs as the kernel writes it. Numbers that no kernel has, in a plan
// from a file, are left out.
func cpus(numbers []int) string {
	var in []int
	for _, n := range numbers {
		if n >= 0 && n < topology.MaxCPUs {
			in = append(in, n)
		}
	}
	return setText(topology.CPUs(in...))
}

// setText is the set as the kernel writes it, "none" where it is empty.
func setText(s topology.CPUSet) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

// cardText is "GPU 0000:06:00.0 (NUMA node 0, guest node 0) with 0000:06:00.1". The guest's node is
// worth a word only where there are several.
func cardText(c *plan.NodeDevice, guestNUMA bool) string {
	var s string
	switch c.Kind {
	case plan.KindVF:
		s = "VF of " + c.ID
		if c.VF != nil {
			s = fmt.Sprintf("VF %d of %s", *c.VF, c.ID)
		}
		if len(c.Functions) > 0 && exists(c.Functions[0]) {
			s += ": " + c.Functions[0]
		}
	case plan.KindGPU, plan.KindNIC:
		if s = c.ID; !strings.HasPrefix(s, strings.ToUpper(c.Kind)) { // NIC0 of a matrix says it itself
			s = strings.ToUpper(c.Kind) + " " + s
		}
	default:
		s = c.Kind + " " + c.ID
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

// exists reports whether a function exists: one that does not yet is named after its PF.
func exists(s string) bool {
	_, err := topology.ParsePCIAddr(s)
	return err == nil
}

// costText is "cost 1240 basis points, proved optimal", or how far from the bound the plan may be and why.
func costText(p *plan.Plan) string {
	if p.Optimal {
		return fmt.Sprintf("cost %d basis points, proved optimal", p.Cost)
	}
	s := fmt.Sprintf("cost %d basis points, ", p.Cost)
	switch {
	case p.Bound > 0:
		// Rounded up: "within 0 %" would claim a proof.
		gap := (100*(p.Cost-p.Bound) + p.Bound - 1) / p.Bound
		s += fmt.Sprintf("within %d %% of the least: no plan costs less than %d", gap, p.Bound)
	default:
		s += "not proved optimal"
	}
	if p.Stopped != "" {
		s += ", stopped by " + p.Stopped
	}
	return s
}

// subject names whom a term is of.
func subject(t *plan.Term) string {
	switch {
	case t.Node != "":
		return t.Node
	case len(t.Among) > 3:
		return fmt.Sprintf("%s and %d more", t.Among[0], len(t.Among)-1)
	}
	return words.List(t.Among)
}
