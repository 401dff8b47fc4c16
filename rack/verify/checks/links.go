package checks

import (
	"context"

	"github.com/rackless/rackless/machine/finding"
)

// A SwitchLink is a link to a port, with its differences from the requested one.
type SwitchLink struct {
	Port       string
	Have, Want string // differing settings, such as "loss 3%" and "loss 0"
	Fix        string
}

// A LinkReader reads a lab with requested links.
type LinkReader interface {
	// SwitchLinks returns the links of all ports, or nil if none were requested.
	SwitchLinks(ctx context.Context) ([]SwitchLink, error)
}

// switchLinks finds a restarted switch, which has forgotten its links, and test settings that a program left behind.
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
