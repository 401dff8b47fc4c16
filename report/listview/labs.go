package listview

import (
	"fmt"
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

// Beside says what the table does not: the shared /home of a lab, what is wrong with labs and nodes, and what to do
// about it, a line for each.
func Beside(labs []rack.Description) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, l := range labs {
		if l.Home != "" {
			add("lab %s: /home of its full nodes is %s, and goes with the lab", l.Name, l.Home)
		}
		if l.Switch == string(rack.SwitchDead) {
			add("lab %s: its switch is not running: rackless up with its lab file starts it again",
				l.Name)
		} else if !l.Ready {
			add("lab %s: not ready: up works on it, or was killed; rackless up with its lab file "+
				"continues", l.Name)
		}
		for _, n := range l.Nodes {
			switch {
			case n.Error != "":
				add("%s/%s: %s", l.Name, n.Name, n.Error)
			case n.State == string(rack.NoAdapter):
				add("%s/%s: it has lost its ConnectX, as the lab's daemon ended: rackless up with "+
					"the lab's file starts it again", l.Name, n.Name)
			case n.State == "dead":
				add("%s/%s: its process %d is gone: rackless up with the lab's file starts it again",
					l.Name, n.Name, n.PID)
			}
		}
	}
	return lines
}
