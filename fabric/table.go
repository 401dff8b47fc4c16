package fabric

import "time"

const (
	// ageing is how long an address is remembered after its last frame: the default of IEEE 802.1D
	// (section 7.9.2) and of the Linux bridge.
	ageing = 300 * time.Second

	// macsPerPort bounds what one port can make the switch remember. The limit is per port and not for the whole table,
	// so that a node which invents addresses cannot keep others from being learned. It allows for a node that is itself
	// a bridge for a thousand containers.
	macsPerPort = 1024

	// sweepEvery is the least time between two searches for aged entries of a port that is at its
	// limit, so that a flood of addresses costs one search a second and not one a frame.
	sweepEvery = time.Second
)

// A table maps addresses to ports. It has no timer: an aged entry is ignored when it is looked up, and removed when its
// port needs the room.
type table struct {
	entries map[mac]*entry
}

type entry struct {
	port *port
	seen int64 // Unix nanoseconds of the last frame from this address
}

func newTable() *table { return &table{entries: make(map[mac]*entry)} }

// lookup returns the port behind m, or nil if it is not known at time now (Unix nanoseconds).
func (t *table) lookup(m mac, now int64) *port {
	e := t.entries[m]
	if e == nil || now-e.seen > int64(ageing) {
		return nil
	}
	return e.port
}

// learn notes that m is behind p. It returns false if p has too many addresses already; frames to m are then flooded,
// which is slower but right.
func (t *table) learn(m mac, p *port, now int64) bool {
	if m.group() || m == 0 {
		return true // no station has such an address; a frame that claims it must not capture others' traffic
	}
	e := t.entries[m]
	if e != nil && e.port == p {
		e.seen = now
		return true
	}
	if p.macs >= macsPerPort && !t.sweep(p, now) {
		return false
	}
	if e != nil { // the station moved, or two share an address
		e.port.macs--
		p.counters.Moves++
	}
	t.entries[m] = &entry{port: p, seen: now}
	p.macs++
	return true
}

// sweep removes the aged entries of p and reports whether p is now below its limit.
func (t *table) sweep(p *port, now int64) bool {
	if now-p.swept < int64(sweepEvery) {
		return false
	}
	p.swept = now
	for m, e := range t.entries {
		if e.port == p && now-e.seen > int64(ageing) {
			delete(t.entries, m)
			p.macs--
		}
	}
	return p.macs < macsPerPort
}

// forget removes all that was learned from p: its link is down.
func (t *table) forget(p *port) {
	if p.macs > 0 { // else spare the walk: most ports that reconnect in vain have sent nothing
		for m, e := range t.entries {
			if e.port == p {
				delete(t.entries, m)
			}
		}
	}
	p.macs = 0
}

// size returns the number of addresses known at time now.
func (t *table) size(now int64) int {
	n := 0
	for _, e := range t.entries {
		if now-e.seen <= int64(ageing) {
			n++
		}
	}
	return n
}
