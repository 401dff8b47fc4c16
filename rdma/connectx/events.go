package connectx

import "github.com/rackless/rackless/rdma/roce"

// enum mlx5_event of linux/mlx5/device.h. The mask of an EQ selects its types; completions name their EQ in the CQ.
const (
	eventCompletion = 0x00
	eventCommEst    = 0x02
	eventSQDrained  = 0x03
	eventCQError    = 0x04
	eventPort       = 0x09
	eventPageFault  = 0x0c
	eventModule     = 0x16
	eventCommand    = 0x0a
	eventInvalid    = 0x10
	eventAccess     = 0x11
	eventDCTDrained = 0x1c
	eventSRQLimit   = 0x14
)

const (
	portDown   = 1
	portActive = 4
)

// eq has free-running 32-bit counters PI and CI, whose low Log bits are the place in the ring. It raises its interrupt
// once each time it is armed.
type eq struct {
	Num    uint32
	Log    uint8
	Vector uint32
	Mask   uint64 // of event types
	PI, CI uint32
	Armed  bool
	Ring   ring
}

// createEQ gives numbers of 8 bits, as in doorbells and commands. Size and vector are checked before the ring is
// charged.
func createEQ(p *Port, in, out []byte, _ uint32) status {
	c := in[0x10:]
	n := p.number(kindEQ, 64, func(n uint32) bool { return p.EQs[n] != nil })
	e := &eq{Num: n, Log: uint8(eqcLogEqSize.get(c)), Vector: eqcIntr.get32(c), Mask: be.Uint64(in[0x58:])}
	if n == 0 || e.Log > maxEventLog || e.Vector >= vectors {
		return limit
	}
	var fits bool
	e.Ring, fits = p.newRing(in[0x110:], eqcLogPageSize.get(c), eqcPageOffset.get(c), 64<<e.Log)
	if !fits {
		return badParam
	}
	p.EQs[n] = e
	// The driver creates the EQ for completions of commands first.
	if e.Mask>>eventCommand&1 != 0 {
		p.CmdEQ = n
	}
	if e.Mask>>eventPageFault&1 != 0 {
		p.FaultEQ = n
	}
	put24(out, n)
	return ok
}

// destroyEQ makes the driver poll again without the EQ for commands, as when it unloads.
func destroyEQ(p *Port, in, _ []byte, _ uint32) status {
	n := uint32(in[11])
	e := p.EQs[n]
	if e == nil {
		return badResource
	}
	if p.CmdEQ == n {
		p.CmdEQ, p.Events = 0, false
	}
	if p.FaultEQ == n {
		p.FaultEQ = 0
	}
	p.drop(&e.Ring)
	delete(p.EQs, n)
	return ok
}

// event writes struct mlx5_eqe: type at byte 1, subtype at 3, data at 32 and the owner last. The owner alternates from
// round to round and tells the driver that the entry is new, so it is written last (ring.put).
func (p *Port) event(e *eq, typ, sub byte, data [28]byte) {
	var b [64]byte
	b[1], b[3] = typ, sub
	copy(b[32:], data[:])
	b[63] = byte(e.PI >> e.Log & 1)
	// CI comes from the guest, which at worst spoils its own unread entries.
	if e.PI-e.CI >= 1<<e.Log || !e.Ring.put(p.mem, uint64(e.PI&(1<<e.Log-1))*64, &b) {
		return // overrun, or no buffer: the driver's own fault
	}
	e.PI++
	if e.Armed {
		e.Armed = false
		p.vfu.Interrupt(int(e.Vector))
	}
}

// async uses the EQ with the type in its mask. If masks of a guest overlap, any matching one gets the event.
func (p *Port) async(typ, sub byte, data [28]byte) {
	for _, e := range p.EQs {
		if e.Mask>>typ&1 != 0 {
			p.event(e, typ, sub, data)
			return
		}
	}
}

// queueEvent sends struct mlx5_eqe_qp_srq: the number at byte 24 of the data, the kind at 20, 0 for a QP.
func (p *Port) queueEvent(typ byte, kind byte, n uint32) {
	var d [28]byte
	d[20] = kind
	be.PutUint32(d[24:], n)
	p.async(typ, 0, d)
}

// portEvent makes the driver ask for the port's state (QUERY_VPORT_STATE, PAOS), so a change must be visible before.
func (p *Port) portEvent() {
	var d [28]byte
	d[8] = 1 << 4 // port 1
	sub := byte(portDown)
	if p.up() {
		sub = portActive
	}
	p.async(eventPort, sub, d)
}

// up reports whether the port carries frames, also with hung commands, as on a card with a working pipeline.
func (p *Port) up() bool { return p.link && !p.dark && !p.AdminDown && !p.gone && !p.broken }

// cq has free-running counters; the driver and doorbells show 24 bits.
//
// Notified is last_notified_index. Without it a re-armed queue would raise a second event for an entry, and
// `ib_send_lat -e` would end with "Couldn't post send".
type cq struct {
	Num      uint32
	EQ       uint32
	Log      uint8
	Wide     bool // entries of 128 bytes, of which the second half is written
	Overrun  bool // overruns are ignored
	Failed   bool
	PI       uint32
	Sol      uint32 // PI after the last solicited entry
	Notified uint32 // PI at the last event
	Armed    uint8
	DBR      uint64
	Ring     ring
	Ctx      []byte
	UID      uint16
	Umems    umemsOf
}

const (
	disarmed = iota
	armedAny
	armedSolicited
)

// createCQ keeps the context whole for QUERY_CQ; c_eqn is the EQ for its events. The doorbell record at DBR+4, for
// arming, is not read, because the doorbell has the same value.
func createCQ(p *Port, in, out []byte, _ uint32) status {
	x := in[0x10 : 0x10+cqcSize]
	n := p.number(kindCQ, 1<<24, func(n uint32) bool { return p.CQs[n] != nil })
	c := &cq{Num: n, EQ: cqcCEqnOrApuElement.get32(x) & 0xff, Log: uint8(cqcLogCqSize.get(x)),
		Wide: cqcCqeSz.get(x) != 0, Overrun: cqcOi.is(x), DBR: cqcDbrAddr.get(x), UID: uidOf(in)}
	if n == 0 || c.Log > maxEventLog {
		return limit
	}
	if p.EQs[c.EQ] == nil {
		return badResource
	}
	s := cqSource(in, c.UID)
	s.dbInUmem, s.dbUmem = cqcDbrUmemValid.is(x), cqcDbrUmemId.get32(x)
	if st := p.acquireMemory(&s, c.size()<<c.Log, &c.Ring, &c.DBR, &c.Umems); st != ok {
		return st
	}
	c.Ctx = append([]byte(nil), x...)
	p.CQs[n] = c
	put24(out, n)
	return ok
}

// cqSource reads CREATE_CQ or MODIFY_CQ, without the doorbell record.
func cqSource(in []byte, uid uint16) source {
	x := in[0x10:]
	return source{uid: uid, pas: in[0x110:], logPage: cqcLogPageSize.get(x), pageOff: cqcPageOffset.get(x),
		inUmem: createCQUmemValid.is(in), umem: createCQUmemId.get32(in), off: createCQUmemOffset.get(in),
		written: true}
}

func (c *cq) size() uint64 {
	if c.Wide {
		return 128
	}
	return 64
}

func destroyCQ(p *Port, c *cq, _, _ []byte) status {
	p.drop(&c.Ring)
	p.releaseUmems(&c.Umems)
	delete(p.CQs, c.Num)
	return ok
}

// modifyCQ stores the moderation only for QUERY_CQ: each armed queue raises its event at once. op_mod 1 resizes.
func modifyCQ(p *Port, c *cq, in, _ []byte) status {
	switch opMod(in) {
	case 0:
	case 1:
		return p.resizeCQ(c, in)
	default:
		return badOp
	}
	period, count := cqcCqPeriod.get(in[0x10:]), cqcCqMaxCount.get(in[0x10:])
	cqcCqPeriod.put(c.Ctx, period)
	cqcCqMaxCount.put(c.Ctx, count)
	return ok
}

// resizeCQ gives a queue another ring. The driver copies the entries that it has not polled, up to a CQE that marks the
// change.
func (p *Port) resizeCQ(c *cq, in []byte) status {
	x := in[0x10:]
	n := cq{Log: uint8(cqcLogCqSize.get(x)), Wide: cqcCqeSz.get(x) != 0}
	if n.Log > maxEventLog {
		return limit
	}
	if ci, has := p.mem.Load32(c.DBR); !c.Overrun {
		waiting := (c.PI - ci) & 0xffffff
		if !has || waiting >= 1<<c.Log { // the mark has no room
			return badResource
		}
		if waiting >= 1<<n.Log {
			return badCQSize
		}
	}
	s := cqSource(in, c.UID)
	if st := p.acquireMemory(&s, n.size()<<n.Log, &n.Ring, &n.DBR, &n.Umems); st != ok {
		return st
	}
	mark, armed := [64]byte{63: cqeResize << 4}, c.Armed
	c.Armed = disarmed // the mark is no completion
	p.complete(c, &mark, false)
	c.Armed = armed
	if c.Failed {
		p.drop(&n.Ring)
		p.releaseUmems(&n.Umems)
		return badResource
	}
	p.drop(&c.Ring)
	was := umemsOf{c.Umems[0]}
	p.releaseUmems(&was)
	c.Log, c.Wide, c.Ring, c.Umems[0] = n.Log, n.Wide, n.Ring, n.Umems[0]
	for _, f := range []bits{cqcLogCqSize, cqcCqeSz, cqcPageOffset, cqcLogPageSize} {
		f.put(c.Ctx, f.get(x))
	}
	return ok
}

func queryCQ(p *Port, c *cq, _, out []byte) status {
	x := out[0x10:]
	copy(x, c.Ctx)
	cqcProducerCounter.put(x, uint64(c.PI))
	cqcLastNotifiedIndex.put(x, uint64(c.Notified))
	if c.Failed {
		cqcStatus.put(x, 0xa)
	}
	return ok
}

// cqOf returns the completion queue that a queue of the uid names, or nil.
func (p *Port) cqOf(n uint32, uid uint16) *cq {
	if c := p.CQs[n]; c != nil && serves(uid, c.UID) {
		return c
	}
	return nil
}

// complete writes an entry. A full queue fails with an event instead of losing entries. The doorbell record's first
// word is the consumer index, in 24 bits. c is nil if the CQ is gone, because a guest chooses the QP's CQ number.
func (p *Port) complete(c *cq, b *[64]byte, solicited bool) {
	if c == nil || c.Failed {
		return
	}
	if !c.Overrun {
		if ci, has := p.mem.Load32(c.DBR); has && (c.PI-ci)&0xffffff >= 1<<c.Log {
			p.failCQ(c, cqOverrun)
			return
		}
	}
	b[63] |= byte(c.PI >> c.Log & 1)
	// The second half of 128 bytes is the CQE.
	if o := uint64(c.PI&(1<<c.Log-1))*c.size() + c.size() - 64; !c.Ring.put(p.mem, o, b) {
		p.failCQ(c, cqAccess)
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

// MLX5_CQ_ERROR_SYNDROME_*: the CQ is full, or its memory cannot be written.
const (
	cqOverrun = 1
	cqAccess  = 2
)

func (p *Port) failCQ(c *cq, syndrome byte) {
	c.Failed = true
	var d [28]byte
	be.PutUint32(d[:], c.Num)
	d[7] = syndrome
	p.async(eventCQError, 0, d)
}

func (p *Port) notify(c *cq) {
	c.Armed, c.Notified = disarmed, c.PI
	if e := p.EQs[c.EQ]; e != nil {
		var d [28]byte
		be.PutUint32(d[24:], c.Num)
		p.event(e, eventCompletion, 0, d)
	}
}

// Doorbell offsets in a UAR page.
const (
	dbCQ    = 0x20
	dbEQArm = 0x40
	dbEQ    = 0x48
	dbSend  = 0x800 // and up, in steps of 0x100
)

// doorbell handles all UAR pages alike: a process may ring for another's queue, but this only makes us read a doorbell
// record that it cannot write.
func (p *Port) doorbell(off uint32, b []byte) {
	switch {
	case (off == dbEQArm || off == dbEQ) && len(b) >= 4:
		v := be.Uint32(b)
		p.Events = true
		e := p.EQs[v>>24]
		if e == nil {
			return
		}
		// CI has 24 bits, PI 32. The driver rings dbEQ in a batch, and dbEQArm at its end.
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
		if q := p.Queues[be.Uint32(b[4:])>>8]; q != nil {
			q.rang = p.s.now()
			p.runSend(q)
		}
	}
}

// arm requests an event for the next, or the next solicited, entry, or an unconsumed one without an event: one between
// the driver's last poll and this doorbell would otherwise wait forever. d must be below half of the 24 bits, or ci is
// ahead of us.
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

// MLX5_CQE_* of linux/mlx5/device.h, in the high four bits of the last byte. Bit 0 is the owner, bit 1 marks a
// solicited event.
const (
	cqeRequest  = 0
	cqeWriteImm = 1
	cqeSend     = 2
	cqeSendImm  = 3
	cqeSendInv  = 4
	cqeResize   = 5
	cqeReqError = 13
	cqeResError = 14
)

// completion writes struct mlx5_cqe64, or mlx5_err_cqe after a failure. It names its queue by user_index at 32 for
// libmlx5, and by number at 56 for the kernel. For sends byte 56 is the opcode. wqe_counter at 60 is the index of a
// send's control segment or of the receive WQE; c.ID of a send is index<<8 | opcode, from sendID.
func (p *Port) completion(q *queue, c *roce.Completion) {
	var b [64]byte
	// Receives of an XRC SRQ complete in its queue and under its user_index.
	user, recvCQ, uid := q.User, q.RecvCQ, q.UID
	if c.Recv && q.Service == serviceXRC {
		if s := p.xrcShared(q, c.SRQ); s != nil {
			user, recvCQ, uid = s.User, s.RecvCQ, s.UID
		}
	}
	be.PutUint32(b[32:], user)
	be.PutUint32(b[56:], q.Num)
	be.PutUint16(b[60:], uint16(c.ID))
	cqn, code := q.SendCQ, byte(cqeRequest)
	if c.Recv {
		cqn, code = recvCQ, cqeResError
	} else {
		be.PutUint16(b[60:], uint16(c.ID>>8))
		b[56] = byte(c.ID)
	}
	if c.Status != roce.OK {
		if !c.Recv {
			code = cqeReqError
		}
		// roce.Status equals the syndromes. An error is solicited, for drivers that wait only for such events.
		b[55] = byte(c.Status)
		b[63] = code << 4
		p.complete(p.cqOf(cqn, uid), &b, true)
		return
	}
	be.PutUint32(b[44:], c.Bytes)
	be.PutUint64(b[48:], p.ticks())
	if c.Recv {
		code = receiveCQE(c, &b)
	}
	b[63] = code << 4
	if c.Solicited {
		b[63] |= 2
	}
	p.complete(p.cqOf(cqn, uid), &b, c.Solicited)
}

func receiveCQE(c *roce.Completion, b *[64]byte) byte {
	be.PutUint32(b[36:], c.Imm)
	if f := c.From; f != nil {
		l3 := uint32(1)
		if f.V1 {
			l3 = 0
		} else if f.Dst.Is4() {
			l3 = 2
		}
		// flags_rqpn of a datagram: the sender's QP number, a flag for the GRH, and its kind: 0 is RoCE v1, 1 IPv6 and
		// 2 IPv4 of RoCE v2.
		be.PutUint32(b[24:], f.SrcQP|1<<28|l3<<24)
		if f.Tagged { // rdma_cm looks up the message's address by the VLAN
			b[29] |= 1
			be.PutUint16(b[30:], f.TCI)
		}
	}
	switch c.Op {
	case roce.WRWriteImm:
		return cqeWriteImm
	case roce.WRSendImm:
		return cqeSendImm
	case roce.WRSendInv:
		return cqeSendInv
	}
	if c.From != nil {
		be.PutUint32(b[36:], 0xffff) // P_Key
	}
	return cqeSend
}
