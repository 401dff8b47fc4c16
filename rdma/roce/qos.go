package roce

import (
	"cmp"
	"time"
)

// QoS configures priorities, like DCB tools (dcb, mlnx_qos, ethtool -A) on a card.
type QoS struct {
	TrustDSCP        bool      // priorities are from the DSCP, not the tag or the QP
	Prio             [64]uint8 // priority by DSCP
	RxPause, TxPause bool      // pauses of the whole link are obeyed, and sent
	RxPFC, TxPFC     uint8     // the same by priority, one bit each
	TC               [8]uint8  // traffic class by priority
	MaxRate          [8]uint64 // bits/s of a traffic class; 0 means no limit
}

// DefaultQoS returns an adapter's defaults: tags are trusted, pauses of the link are on, and the priority of a DSCP is
// its three highest bits. The TC of priority 0 is 1 and that of 1 is 0, as 802.1Q recommends.
func DefaultQoS() QoS {
	c := QoS{RxPause: true, TxPause: true, TC: [8]uint8{1, 0, 2, 3, 4, 5, 6, 7}}
	for i := range c.Prio {
		c.Prio[i] = uint8(i) >> 3
	}
	return c
}

// Priority returns a path's priority. RoCE v1 has no DSCP.
func (c *QoS) Priority(to *Path) uint8 {
	if to.V1 {
		return to.Prio & 7
	}
	return c.of(to.TClass, to.Prio)
}

// of returns the priority of the traffic class if the DSCP is trusted, else other.
func (c *QoS) of(tclass, other uint8) uint8 {
	if c.TrustDSCP {
		other = c.Prio[tclass>>2]
	}
	return other & 7
}

func (p *Port) qos() *QoS { return p.cfg.QoS }

func (q *QP) prio() uint8 { return q.port.qos().Priority(&q.attr.Path) }

// Hold stops or resumes sending, if the cable accepts no more. It is no pause. Wire.Send may call it.
func (p *Port) Hold(on bool) { p.held = on }

// forLink is the index for pauses of the whole link. A card counts them under priority 0.
const forLink = 8

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

// pauseAddress is the destination of pauses, which no bridge forwards (IEEE 802.3 annex 31B.1).
var pauseAddress = [6]byte{0x01, 0x80, 0xc2, 0, 0, 1}

// MAC control, with the opcodes for pauses of the link and of priorities (IEEE 802.3 annex 31B, 802.1Q annex 36.2.1).
const (
	etherPause = 0x8808
	pauseLink  = 1
	pausePrio  = 0x101
)

// pause stops priorities for quanta of 512 bit times at the port's rate, or resumes them for 0. Frames that the port
// does not obey are only counted. Fields for priorities are read only if the frame has all of them.
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

func (p *Port) endPause(now time.Duration, prio int) {
	if p.pausedUntil[prio] == 0 {
		return
	}
	d := min(now, p.pausedUntil[prio]) - p.pausedFrom[prio]
	p.Counters.PausedUS[prio&7] += uint64(d / time.Microsecond)
	p.Counters.RxTransitions[prio&7]++
	p.pausedUntil[prio] = 0
}

// paused reports whether a priority must not send now, also because its traffic class is ahead of its rate.
func (p *Port) paused(now time.Duration, prio uint8) bool {
	return p.pausedUntil[forLink] != 0 || p.pausedUntil[prio] != 0 || p.classFree[p.class(prio)] > now
}

func (p *Port) class(prio uint8) uint8 { return p.qos().TC[prio] & 7 }

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

func (p *Port) limit(now time.Duration, prio uint8, n int) {
	tc := p.class(prio)
	if rate := p.qos().MaxRate[tc]; rate > 0 {
		p.classFree[tc] = max(p.classFree[tc], now) + time.Duration(float64(n)*8e9/float64(rate))
	}
}

// resumes calls f with the ends of pauses and rate limits of waiting frames.
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
