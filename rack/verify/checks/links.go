package checks

import (
	"context"

	"github.com/rackless/rackless/machine/finding"
)

// A SwitchLink is a link from the switch of a lab to a port, with its differences from the requested link.
type SwitchLink struct {
	Port       string
	Have, Want string // settings that differ, such as "loss 3%" and "loss 0"; equal without differences
	Fix        string
}

// A LinkReader is a Reader of a lab with requested links of its switch.
type LinkReader interface {
	// SwitchLinks returns the links of all ports, or nil if no links were requested.
	SwitchLinks(ctx context.Context) ([]SwitchLink, error)
}

// switchLinks checks that the links of the switch are as they were set: a restarted switch has forgotten them, and a
// program may leave its test settings behind.
func switchLinks(ctx context.Context, r Reader) []finding.Finding {
	from, ok := r.(LinkReader)
	if !ok {
		return nil
	}
	const evidence = "rackless link show"
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
