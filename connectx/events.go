package connectx

// Types of events (enum mlx5_event of linux/mlx5/device.h).
const (
	eventCompletion = 0x00
	eventCommEst    = 0x02
	eventSQDrained  = 0x03
	eventCQError    = 0x04
	eventWQFatal    = 0x05
	eventPort       = 0x09
	eventCommand    = 0x0a
	eventInvalid    = 0x10
	eventAccess     = 0x11
	eventSRQLast    = 0x13
	eventSRQLimit   = 0x14
)

// Subtypes of a port event.
const (
	portDown   = 1
	portActive = 4
)

// eq is an event queue.
type eq struct {
	Num    uint32
	Log    uint8
	Vector uint32
	Mask   uint64 // of event types
	PI, CI uint32
	Armed  bool
	Ring   ring
}

func createEQ(p *Port, in, out []byte, _ uint32) status {
	c := in[0x10:]
	n := p.number(kindEQ, 64, func(n uint32) bool { return p.EQs[n] != nil })
	e := &eq{Num: n, Log: uint8(eqcLogEqSize.get(c)), Vector: eqcIntr.get32(c), Mask: be.Uint64(in[0x58:])}
	if n == 0 || e.Log > 22 || e.Vector >= vectors {
		return limit
	}
	var fits bool
	e.Ring, fits = p.newRing(in[0x110:], eqcLogPageSize.get(c), eqcPageOffset.get(c), 64<<e.Log)
	if !fits {
		return badParam
	}
	p.EQs[n] = e
	if e.Mask>>eventCommand&1 != 0 {
		p.CmdEQ = n
	}
	put24(out, n)
	return ok
}

func destroyEQ(p *Port, in, _ []byte, _ uint32) status {
	n := uint32(in[11])
	e := p.EQs[n]
	if e == nil {
		return badResource
	}
	if p.CmdEQ == n {
		p.CmdEQ, p.Events = 0, false
	}
	p.drop(&e.Ring)
	delete(p.EQs, n)
	return ok
}

// event writes an entry, and raises the interrupt where the driver waits for one.
func (p *Port) event(e *eq, typ, sub byte, data [28]byte) {
	var b [64]byte
	b[1], b[3] = typ, sub
	copy(b[32:], data[:])
	b[63] = byte(e.PI >> e.Log & 1)
	if e.PI-e.CI >= 1<<e.Log || !e.Ring.put(p.mem, uint64(e.PI&(1<<e.Log-1))*64, &b) {
		return // overrun, or its buffer is gone: the driver's own doing
	}
	e.PI++
	if e.Armed {
		e.Armed = false
		p.vfu.Interrupt(int(e.Vector))
	}
}

// async reports an event to the queue that asked for its type.
func (p *Port) async(typ, sub byte, data [28]byte) {
	for _, e := range p.EQs {
		if e.Mask>>typ&1 != 0 {
			p.event(e, typ, sub, data)
			return
		}
	}
}

// queueEvent reports what happened to a queue (struct mlx5_eqe_qp_srq).
func (p *Port) queueEvent(typ byte, kind byte, n uint32) {
	var d [28]byte
	d[20] = kind
	be.PutUint32(d[24:], n)
	p.async(typ, 0, d)
}

// portEvent says that the link has changed.
func (p *Port) portEvent() {
	var d [28]byte
	d[8] = 1 << 4 // port 1
	sub := byte(portDown)
	if p.up() {
		sub = portActive
	}
	p.async(eventPort, sub, d)
}

// up says whether the port carries frames: the cable is in and the driver wants it so.
func (p *Port) up() bool { return p.link && !p.AdminDown && !p.gone && p.fault < FatalError }

// cq is a completion queue.
type cq struct {
	Num      uint32
	EQ       uint32
	Log      uint8
	Wide     bool // entries of 128 bytes, the second half of which are written
	Overrun  bool // overruns are ignored
	Failed   bool
	PI       uint32
	Sol      uint32 // PI after the last solicited entry
	Notified uint32 // PI at the last event: there is never a second one for an entry
	Armed    uint8
	DBR      uint64
	Ring     ring
	Ctx      []byte
}

// Armed.
const (
	disarmed = iota
	armedAny
	armedSolicited
)

func createCQ(p *Port, in, out []byte, _ uint32) status {
	x := in[0x10:0x50]
	n := p.number(kindCQ, 1<<24, func(n uint32) bool { return p.CQs[n] != nil })
	c := &cq{Num: n, EQ: cqcCEqnOrApuElement.get32(x) & 0xff, Log: uint8(cqcLogCqSize.get(x)),
		Wide:    cqcCqeSz.get(x) == 1,
		Overrun: cqcOi.is(x), DBR: cqcDbrAddr.get(x)}
	if n == 0 || c.Log > 22 {
		return limit
	}
	if p.EQs[c.EQ] == nil {
		return badResource
	}
	var fits bool
	c.Ring, fits = p.newRing(in[0x110:], cqcLogPageSize.get(x), cqcPageOffset.get(x), c.size()<<c.Log)
	if !fits {
		return badParam
	}
	c.Ctx = append([]byte(nil), x...)
	p.CQs[n] = c
	put24(out, n)
	return ok
}

func (c *cq) size() uint64 {
	if c.Wide {
		return 128
	}
	return 64
}

func destroyCQ(p *Port, _, _ []byte, id uint32) status {
	c := p.CQs[id]
	if c == nil {
		return badResource
	}
	p.drop(&c.Ring)
	delete(p.CQs, id)
	return ok
}

// modifyCQ takes over another EQ, which is all that the driver changes besides moderation; a resize is refused, as
// cq_resize is not offered.
func modifyCQ(p *Port, in, _ []byte, id uint32) status {
	c := p.CQs[id]
	if c == nil {
		return badResource
	}
	if opMod(in) != 0 {
		return badOp
	}
	period, count := cqcCqPeriod.get(in[0x10:]), cqcCqMaxCount.get(in[0x10:])
	cqcCqPeriod.put(c.Ctx, period)
	cqcCqMaxCount.put(c.Ctx, count)
	return ok
}

func queryCQ(p *Port, _, out []byte, id uint32) status {
	c := p.CQs[id]
	if c == nil {
		return badResource
	}
	x := out[0x10:]
	copy(x, c.Ctx)
	cqcProducerCounter.put(x, uint64(c.PI))
	cqcLastNotifiedIndex.put(x, uint64(c.Notified))
	if c.Failed {
		cqcStatus.put(x, 0xa)
	}
	return ok
}

// complete writes an entry to a queue.
func (p *Port) complete(c *cq, b *[64]byte, solicited bool) {
	if c == nil || c.Failed {
		return
	}
	if !c.Overrun {
		if ci, has := p.mem.Load32(c.DBR); has && (c.PI-ci)&0xffffff >= 1<<c.Log {
			c.Failed = true
			var d [28]byte
			be.PutUint32(d[:], c.Num)
			d[7] = 1 // overrun
			p.async(eventCQError, 0, d)
			return
		}
	}
	b[63] |= byte(c.PI >> c.Log & 1)
	o := uint64(c.PI&(1<<c.Log-1))*c.size() + c.size() - 64
	if !c.Ring.put(p.mem, o, b) {
		return
	}
	c.PI++
	if solicited {
		c.Sol = c.PI
	}
	if c.Armed == armedAny || c.Armed == armedSolicited && solicited {
		p.notify(c)
	}
}

func (p *Port) notify(c *cq) {
	c.Armed, c.Notified = disarmed, c.PI
	if e := p.EQs[c.EQ]; e != nil {
		var d [28]byte
		be.PutUint32(d[24:], c.Num)
		p.event(e, eventCompletion, 0, d)
	}
}

// Doorbell places in a UAR page.
const (
	dbCQ    = 0x20
	dbEQArm = 0x40
	dbEQ    = 0x48
	dbSend  = 0x800 // and up, in steps of 0x100
)

// doorbell does a write to a UAR page.
func (p *Port) doorbell(off uint32, b []byte) {
	switch {
	case (off == dbEQArm || off == dbEQ) && len(b) >= 4:
		v := be.Uint32(b)
		p.Events = true
		e := p.EQs[v>>24]
		if e == nil {
			return
		}
		// CI counts 24 bits, PI 32.
		e.CI = e.PI - (e.PI-v)&0xffffff
		if off == dbEQ {
			return
		}
		if e.Armed = e.PI == e.CI; !e.Armed {
			p.vfu.Interrupt(int(e.Vector))
		}
	case off == dbCQ && len(b) == 8:
		if c := p.CQs[be.Uint32(b[4:])&0xffffff]; c != nil {
			p.arm(c, be.Uint32(b))
		}
	case off >= dbSend && off&0xff == 0 && len(b) >= 8:
		// The value says which queue; how far it is filled is in its doorbell record.
		if q := p.Queues[be.Uint32(b[4:])>>8]; q != nil {
			q.rang = p.s.now()
			p.runSend(q)
		}
	}
}

// arm asks for an event at the next entry, or the next solicited one. An entry that the driver has not consumed counts,
// if there was no event for it.
func (p *Port) arm(c *cq, v uint32) {
	ci, last := v&0xffffff, c.PI
	c.Armed = armedAny
	if v>>24&1 != 0 {
		c.Armed, last = armedSolicited, c.Sol
	}
	if d := (last - ci) & 0xffffff; d != 0 && d < 1<<23 && int32(last-c.Notified) > 0 {
		p.notify(c)
	}
}
