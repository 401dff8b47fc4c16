package listview

import (
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
)

// Labs has one row a node. Nodes with several NICs list them in one field, by commas.
func Labs(labs []rack.Description, now time.Time) *show.Grid {
	g := show.NewGrid("lab", "node", "state", "address", "rdma", "gid", "driver", "accel", "since", "made")
	for _, l := range labs {
		for _, n := range l.Nodes {
			var addrs, devs, gids []string
			for _, nic := range n.NICs {
				addrs = append(addrs, nic.Address)
				if nic.RDMA != "" {
					devs = append(devs, nic.RDMA)
				}
				if nic.GID != nil {
					gids = append(gids, strconv.Itoa(*nic.GID))
				}
			}
			// A node that was never started has neither.
			since, made := "", ""
			if n.Started != nil {
				since, made = words.Ago(now.Sub(*n.Started)), "booted"
				if n.Cloned {
					made = "cloned"
				}
			}
			g.Add(l.Name, n.Name, n.State, strings.Join(addrs, ","), strings.Join(devs, ","), strings.Join(gids, ","),
				l.Driver, l.Accel, since, made)
		}
	}
	return g
}
