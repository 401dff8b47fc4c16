package plan

import (
	"fmt"

	"github.com/rackless/rackless/internal/words"
)

const maxNoted = 8

// placeNotes names lab nodes with CPU 0, with cores of two kinds, or with virtual functions that share a link.
func (a *assembly) placeNotes() (notes []string) {
	var boot, mixed, joined []string
	for i := range a.pl.Nodes {
		n, name := &a.pl.Nodes[i], a.p.Requests[i].Name
		for _, id := range n.Cores {
			if a.Cores[id].CPUs[0] == 0 {
				boot = append(boot, name)
			}
		}
		if small := int(a.small[i]); small > 0 && small < len(n.Cores) {
			mixed = append(mixed, fmt.Sprintf("%s has %d large and %d small", name, len(n.Cores)-small, small))
		}
		for _, v := range n.VFs {
			if v.Count > 1 {
				joined = append(joined, fmt.Sprintf("%s has %d of %s", name, v.Count, a.p.Devices[v.Device].ID))
			}
		}
	}
	add := func(names []string, format string) {
		if len(names) > 0 {
			notes = append(notes, fmt.Sprintf(format, words.Names(names, maxNoted)))
		}
	}
	add(boot, "%s has the core of CPU 0: the kernel keeps timers and interrupts there that cannot be moved, and drops "+
		"that CPU from nohz_full, so they disturb the virtual CPU on it")
	add(mixed, "cores of two kinds in one lab node, whose virtual CPUs then differ in speed: %s")
	add(joined, "virtual functions of one port in one lab node, which share its link and fail together: %s")
	return notes
}
