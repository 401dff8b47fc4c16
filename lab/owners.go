package lab

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/strictyaml"
)

// owners finds conflicts: a whole device can be requested only once.
type owners struct {
	*decoder
	whole  map[string]claim // GPUs and NICs
	shared map[string]claim
}

type claim struct {
	path string
	at   place
	node string
}

func newOwners(d *decoder) *owners {
	return &owners{decoder: d, whole: make(map[string]claim), shared: make(map[string]claim)}
}

func (o *owners) claim(e *entry, names []string) {
	if len(names) == 0 {
		return
	}
	for _, k := range []struct {
		key     string
		devices fileDevices
	}{{"gpus", or(e.own.GPUs, e.shared.GPUs, nil)}, {"nics", e.nics()}} {
		for _, r := range k.devices {
			if r.Address == "" {
				continue
			}
			path, _ := e.written(k.key)
			own := claim{path, r.at, names[0]}
			if first, taken := o.whole[r.Address]; taken {
				o.reportDuplicate(r.Address, first, own)
				continue
			}
			o.whole[r.Address] = own
			if len(names) > 1 {
				o.failOnce(r.at, Error{Key: path, What: "one device for several nodes",
					Have: fmt.Sprintf("%s for %s to %s", strictyaml.Quote(r.Address), names[0], names[len(names)-1]),
					Fix:  fmt.Sprintf("ask by count (%s: 1) or by a selector, or write the nodes one by one", k.key)})
			}
		}
	}
	for _, r := range e.vfs() {
		if r.Address != "" {
			path, _ := e.written("vfs")
			o.shared[r.Address] = claim{path, r.at, names[0]}
		}
	}
}

func (o *owners) reportDuplicate(address string, first, second claim) {
	e := Error{Key: second.path, What: "one device for two nodes", Have: fmt.Sprintf("%s for %s (line %d) and for %s",
		strictyaml.Quote(address), first.node, first.at.Line, second.node), Fix: "give one of them another device, " +
		"or ask by count"}
	switch {
	case first.node == second.node:
		e.What = "device asked for twice"
		e.Have = fmt.Sprintf("%s in line %d, column %d and in line %d, column %d", strictyaml.Quote(address),
			first.at.Line, first.at.Column, second.at.Line, second.at.Column)
		e.Fix = "remove one of them"
	case first.at == second.at: // the request is in defaults
		e.What = "one device for several nodes"
		e.Have = fmt.Sprintf("%s for %s and for %s", strictyaml.Quote(address), first.node, second.node)
		e.Fix = "ask by count in defaults, or name a device in each node"
	}
	o.failOnce(second.at, e)
}

func (o *owners) finish() {
	for _, address := range slices.Sorted(maps.Keys(o.shared)) {
		v := o.shared[address]
		if w, ok := o.whole[address]; ok {
			o.failOnce(v.at, Error{Key: v.path, What: "virtual function of a NIC that is given whole",
				Have: fmt.Sprintf("%s for %s, whole for %s (line %d)", strictyaml.Quote(address), v.node, w.node,
					w.at.Line), Fix: "ask for vfs of it on both sides, or of another NIC"})
		}
	}
}
