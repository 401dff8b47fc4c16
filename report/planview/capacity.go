package planview

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan/fleet"
	"github.com/rackless/rackless/report/show"
)

// Capacity prints how many more of a lab each host takes, and below why not one more: each reason once, with its hosts.
func Capacity(w io.Writer, lab string, rooms []fleet.Room, o Options) error {
	p := newPage(w, o)
	var rows [][]string
	var reasons group.By[string, string]
	for _, r := range rooms {
		rows = append(rows, []string{strconv.Itoa(r.Fits), strings.Join(r.Limits, ", "), r.Host})
		reasons.Add(r.Why, r.Host)
	}
	p.table(show.Columns("fits>", "short of", "host"), rows)
	fits := lists.Sum(rooms, func(r fleet.Room) int { return r.Fits })
	p.title(fmt.Sprintf("%s of lab %s on %s", words.Count(fits, "more copy"), lab, words.Count(len(rooms), "host")))
	for _, why := range reasons.Keys {
		hosts := reasons.Of(why)
		on := hosts[0] + words.If(len(hosts) > 1, fmt.Sprintf(" and %d more", len(hosts)-1))
		p.wrap("  ", 4, "not one more on "+on+": "+why)
	}
	return p.flush()
}
