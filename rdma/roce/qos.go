package roce

import (
	"cmp"
	"time"
)

// QoS is how a port treats priorities: what DCB tools (dcb, mlnx_qos, ethtool -A) set on a card.
type QoS struct {
	TrustDSCP        bool      // the DSCP of a packet gives its priority, not the tag or the QP
	Prio             [64]uint8 // by DSCP
	RxPause, TxPause bool      // pauses of the whole link are obeyed, and sent
	RxPFC, TxPFC     uint8     // the same of priorities, a bit each
	TC               [8]uint8  // traffic class of a priority
	MaxRate          [8]uint64 // bits/s of a traffic class; 0: no limit
}

// DefaultQoS is what an adapter starts with: tags are trusted, and pauses of the link are on. A DSCP has the priority
// of its three highest bits. The TC of priority 0 is 1 and that of 1 is 0, as 802.1Q recommends.
func DefaultQoS() QoS {
	c := QoS{RxPause: true, TxPause: true, TC: [8]uint8{1, 0, 2, 3, 4, 5, 6, 7}}
	for i := range c.Prio {
		c.Prio[i] = uint8(i) >> 3
	}
	return c
}

// Priority is that of packets on a path.
func (c *QoS) Priority(to *Path) uint8 { return c.of(to.TClass, to.Prio) }

// of is the priority of a packet with a traffic class, which else has another.
func (c *QoS) of(tclass, other uint8) uint8 {
	if c.TrustDSCP {
		other = c.Prio[tclass>>2]
	}
	return other & 7
}

func (p *Port) qos() *QoS { return p.cfg.QoS }

// prio is the priority of what the QP sends to its peer.
func (q *QP) prio() uint8 { return q.port.qos().Priority(&q.attr.Path) }

// Hold stops everything, and lets it go on: for a device whose cable takes nothing more. It is no pause, and counts as
// none. Wire.Send may call it.
func (p *Port) Hold(on bool) { p.held = on }

// forLink is in place of a priority the pause of the whole link. A card counts it with those of priority 0.
const forLink = 8

// stop pauses a priority until a time. A pause that comes within another one prolongs it.
func (p *Port) stop(now time.Duration, prio int, until time.Duration) {
	p.Counters.RxPause[prio&7]++
	if old := p.pausedUntil[prio]; old != 0 && old <= now || until <= now {
		p.endPause(now, prio)
	}
	if until <= now {
		return
	}
	if p.pausedUntil[prio] == 0 {
		p.pausedFrom[prio] = now
	}
	p.pausedUntil[prio] = until
}

// etherPause is MAC control, with the opcodes of a pause of the link and of priorities (IEEE 802.3 annex 31B, 802.1Q
// annex 36.2.1).
const (
	etherPause = 0x8808
	pauseLink  = 1
	pausePrio  = 0x101
)

// pause takes a frame of MAC control, which stops priorities for a number of quanta of 512 bit times; 0 lets them go
// on. A quantum's length follows from the rate. What the port is not set to obey is counted as MAC control only. The
// fields of priorities are read only where the frame has all of them.
func (p *Port) pause(now time.Duration, b []byte) {
	rate := cmp.Or(float64(p.cfg.Rate), pauseRate)
	until := func(quanta uint16) time.Duration { return now + time.Duration(float64(quanta)*512e9/rate) }
	p.Counters.RxControl++
	switch op := be.Uint16(b); {
	case op == pauseLink:
		p.Counters.RxLinkPause++
		if p.qos().RxPause {
			p.stop(now, forLink, until(be.Uint16(b[2:])))
		}
	case op == pausePrio && len(b) >= 20:
		for prio := range 8 {
			if p.qos().RxPFC&b[3]>>prio&1 != 0 {
				p.stop(now, prio, until(be.Uint16(b[4+2*prio:])))
			}
		}
	}
}

// endPause ends a pause, now or when it was over, and counts its time.
func (p *Port) endPause(now time.Duration, prio int) {
	if p.pausedUntil[prio] == 0 {
		return
	}
	d := min(now, p.pausedUntil[prio]) - p.pausedFrom[prio]
	p.Counters.PausedUS[prio&7] += uint64(d / time.Microsecond)
	p.Counters.RxTransitions[prio&7]++
	p.pausedUntil[prio] = 0
}

// paused says whether a priority must not send now: it is paused, or its traffic class is ahead of its rate.
func (p *Port) paused(now time.Duration, prio uint8) bool {
	return p.pausedUntil[forLink] != 0 || p.pausedUntil[prio] != 0 || p.classFree[p.class(prio)] > now
}

func (p *Port) class(prio uint8) uint8 { return p.qos().TC[prio] & 7 }

// unpark returns QPs to the round whose priorities may send again. They are not looked at before. It also ends pauses
// that are over.
func (p *Port) unpark(now time.Duration) {
	for prio, until := range p.pausedUntil {
		if until != 0 && until <= now {
			p.endPause(now, prio)
		}
	}
	for prio, parked := range p.parked {
		if len(parked) > 0 && !p.paused(now, uint8(prio)) {
			for _, q := range parked {
				p.ready.push(q)
			}
			clear(parked)
			p.parked[prio] = parked[:0]
		}
	}
}

// limit books a frame of n bytes on the rate of its traffic class.
func (p *Port) limit(now time.Duration, prio uint8, n int) {
	tc := p.class(prio)
	if rate := p.qos().MaxRate[tc]; rate > 0 {
		p.classFree[tc] = max(p.classFree[tc], now) + time.Duration(float64(n)*8e9/float64(rate))
	}
}

// resumes calls f with the times at which what waits for a pause or a rate may go on.
func (p *Port) resumes(now time.Duration, f func(time.Duration)) {
	for _, until := range p.pausedUntil {
		if until != 0 {
			f(until)
		}
	}
	for prio := range uint8(8) {
		free := p.classFree[p.class(prio)]
		if free > now && (len(p.parked[prio]) > 0 || p.host[prio].len() > 0) {
			f(free)
		}
	}
}
