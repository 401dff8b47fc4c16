package checks

import (
	"context"

	"github.com/rackless/rackless/machine/finding"
)

// A SwitchLink is the link from the switch of a lab to a port, as far as it differs from what was asked for.
type SwitchLink struct {
	Port       string
	Have, Want string // settings that differ, such as "loss 3%" and "loss 0"; equal if none does
	Fix        string
}

// A LinkReader is a Reader of a lab whose switch is told how its links are to be.
type LinkReader interface {
	// SwitchLinks returns the links of all ports; none if nothing was asked for.
	SwitchLinks(ctx context.Context) ([]SwitchLink, error)
}

// switchLinks checks that the links of the switch are as they were set: a switch that is started again has forgotten
// them, and a program that sets them for a test may leave them so.
func switchLinks(ctx context.Context, r Reader) []finding.Finding {
	from, ok := r.(LinkReader)
	if !ok {
		return nil
	}
	const evidence = "rackless fabric"
	all, err := from.SwitchLinks(ctx)
	if err != nil {
		return []finding.Finding{unread(IDSwitchLinks, "switch", "", evidence, err.Error(), "rackless up with the "+
			"lab's file starts a dead switch again")}
	}
	var out []finding.Finding
	for _, l := range all {
		out = append(out, judge(IDSwitchLinks, "switch port "+l.Port, "", l.Have, l.Want, evidence, l.Fix))
	}
	return out
}
