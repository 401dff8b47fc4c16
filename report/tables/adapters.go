//go:build linux

package tables

import (
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report/show"
)

// Adapters is the JSON output of rackless nic ls. See docs/json.md.
type Adapters struct {
	Adapters []LabAdapter `json:"adapters"` // by lab, in node order
}

// A LabAdapter is an adapter of a lab.
type LabAdapter struct {
	Lab string `json:"lab"`
	checks.Adapter
}

// AdapterGrid returns a table with one row for each adapter.
func AdapterGrid(out Adapters) *show.Grid {
	g := show.NewGrid("lab", "node", "nic", "model", "mac", "rate", "machine", "driver", "link", "downs>", "resets>",
		"fault")
	word := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	for _, x := range out.Adapters {
		link := word(x.LinkUp, "up", "down")
		if x.Flaps {
			link += ", flaps"
		}
		g.Add(x.Lab, x.Node, x.NIC, x.Model, x.MAC, words.Rate(float64(x.RateBits)),
			word(x.Connected, "connected", "lost"), word(x.Driver, "ready", "none"), link, fmt.Sprint(x.LinkDowns),
			fmt.Sprint(x.Resets), string(x.Fault))
	}
	return g
}
