package connectx

import (
	"slices"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// wire queues frames for flushFrames, because roce sends them with the port's lock held.
type wire Port

// Send implements roce.Wire.
func (w *wire) Send(_ time.Duration, frame []byte) {
	p := (*Port)(w)
	if !p.up() { // lost; its sender's timers notice it, as with a card
		p.count.txDropped++
		return
	}
	if [6]byte(frame) == [6]byte(frame[6:]) { // from the port to itself
		p.loop = appendFrame(p.loop, frame)
		p.queued(len(frame))
		return
	}
	if frame[0]&1 != 0 && p.joined(frame) {
		p.loop = appendFrame(p.loop, frame)
		p.queued(len(frame))
	}
	if n := len(p.frames); cap(p.frames)-n > 4 && &p.frames[:n+5][n+4] == &frame[0] { // already built in place
		p.frames = be.AppendUint32(p.frames, uint32(len(frame)))[:n+4+len(frame)]
	} else {
		p.frames = appendFrame(p.frames, frame)
	}
	p.queued(len(frame))
}

func (w *wire) room() []byte {
	w.frames = slices.Grow(w.frames, 4+roce.MaxFrame)
	n := len(w.frames) + 4
	return w.frames[n:n]
}

// poll needs the port's lock. Failed QPs change their state here, because callbacks must not call back into roce.
func (p *Port) poll(now time.Duration) {
	p.netDirty = false
	p.netAt = p.net.Poll(now)
	for len(p.loop) > 0 && !p.spent() { // two QPs of the port could talk forever
		var f []byte
		f, p.loop = nextFrame(p.loop)
		p.looped = true
		if !p.net.Receive(now, f) {
			p.receive(f)
		}
		p.looped = false
		p.cable -= len(f)
		p.resume()
		p.netAt = p.net.Poll(now)
	}
	if p.netAt < 0 {
		p.netAt = never
	}
	if len(p.loop) > 0 {
		p.netAt = now
	}
	for len(p.failed) > 0 {
		q := p.failed[0]
		p.failed = p.failed[1:]
		if p.Queues[q.Num] == q && q.State != roce.Failed {
			p.setState(q, roce.Failed)
		}
	}
	p.wakeBy(p.netAt)
}

// ring tells roce of requests. They go out when the port is polled, at the latest by unlock.
func (p *Port) ring(q *queue) {
	q.copied = 0 // the wire sends the whole message
	q.wire.qp.Doorbell()
	p.netDirty = true
}

type wireQP struct {
	p  *Port
	q  *queue
	qp *roce.QP
	// If out is not 0, the direct path must not take the next request (see onWire).
	out int // requests taken and not completed
}

var services = map[uint8]roce.QPType{serviceRC: roce.RC, serviceXRC: roce.RC, serviceDCI: roce.RC, serviceUC: roce.UC,
	serviceUD: roce.UD, serviceGSI: roce.GSI}

// wireState moves roce's part of a QP, which other services, such as the driver's UMR QP, do not have. An attribute
// that roce refuses, such as a wrong MTU, is logged, and only this guest's packets are lost.
func (p *Port) wireState(q *queue, to roce.State) {
	typ, has := services[q.Service]
	if !has {
		return
	}
	if q.wire == nil {
		if to == roce.Reset || to == roce.Failed {
			return
		}
		c := roce.QPConfig{Type: typ, QPN: q.Num, SrcQP: qpcDethSqpn.get32(q.Ctx), Shared: q.Receives != receivesOwn,
			Counters: p.counters(q), Mem: domain{p: p, pd: q.PD, qpn: q.Num}}
		if q.Service == serviceXRC {
			c.SharedBy = func(srq uint32) (roce.Memory, bool) { return p.xrcMemory(q, srq) }
		}
		if q.Service == serviceDCI {
			c.Dynamic = roce.Initiator
		}
		// set_deth_sqpn: datagrams carry the number of QP 1.
		if typ == roce.GSI && q.NoRecv { // the driver's second GSI QP, which only sends
			c.Type, c.SrcQP = roce.UD, 1
		}
		w := &wireQP{p: p, q: q}
		c.Owner = w
		var err error
		if w.qp, err = p.net.NewQP(c); err != nil {
			p.logf("QP %#x: %v", q.Num, err)
			return
		}
		q.wire = w
	}
	if err := q.wire.qp.Modify(to, &q.attr); err != nil {
		p.logf("QP %#x: %v", q.Num, err)
	}
	if to == roce.Reset {
		q.wire.out = 0
	}
	p.netDirty = true
}

// signaled is the bit for a wanted completion. roce signals all requests, so that they can be counted.
const signaled = 1 << 32

// NextSend advances SI, because the request is copied; the driver may not reuse its place before the completion.
func (w *wireQP) NextSend(wr *sendWR) bool {
	wqe, blocks, found := w.p.nextWQE(w.q)
	if !found {
		return false
	}
	w.p.parse(w.q, wqe, wr)
	if !w.p.paged(w.q, wr) {
		return false
	}
	w.q.SI += blocks
	w.q.copied = 0
	if wr.Signaled {
		wr.ID |= signaled
	}
	wr.Signaled = true
	w.out++
	return true
}

// NextRecv implements roce.Owner. Without pages for a receive, the peer tries again, as if there were none.
func (w *wireQP) NextRecv(wr *roce.RecvWR) bool {
	s := w.p.receives(w.q, wr.SRQ)
	if s == nil {
		return false
	}
	index, head := s.RI, s.Head
	if !w.p.nextRecv(w.q, wr) {
		return false
	}
	if !w.q.datagrams() {
		if w.p.awaitRecv(s, wr, 1<<32) {
			s.RI, s.Head = index, head
			return false
		}
		s.faults[ofReceives] = pageFault{}
	}
	if s.PD != w.q.PD || w.p.limited() {
		wr.Mem = domain{w.p, s.PD, w.q.Num, true}
	}
	return true
}

// Complete does not fail a QP for a datagram that could not be stored, nor a target for one of its connections, and
// only counts successful unsignaled requests.
func (w *wireQP) Complete(c *roce.Completion) {
	if c.Status != roce.OK && c.Status != roce.Flushed && w.q.Kind == queueQP && (!c.Recv || !w.q.datagrams()) {
		w.p.failed = append(w.p.failed, w.q)
	}
	if !c.Recv {
		w.out--
		if c.Status == roce.OK && c.ID&signaled == 0 {
			return
		}
	}
	w.p.completion(w.q, c)
}

// Event tells the driver of the responder's errors, which have no completion on this side.
func (w *wireQP) Event(e roce.Event) {
	typ, has := map[roce.Event]byte{roce.EventCommEst: eventCommEst, roce.EventAccessError: eventAccess,
		roce.EventInvalid: eventInvalid, roce.EventDrained: eventSQDrained}[e]
	if e == roce.EventAccessError || e == roce.EventInvalid || e == roce.EventFatal {
		w.p.failed = append(w.p.failed, w.q)
	}
	if has {
		w.p.queueEvent(typ, 0, w.q.Num)
	}
}

// domain is a protection domain's memory, used under the port's lock. p.list is cleared after use so that it keeps no
// references to guest memory.
type domain struct {
	p   *Port
	pd  uint32
	qpn uint32
	// received marks a receive request's memory, for rates of paths.
	received bool
}

func fault(f roce.Fault) error {
	if f == 0 {
		return nil
	}
	return f
}

// Check implements roce.Memory.
func (d domain) Check(key uint32, va, n uint64, a roce.Access) error {
	if !d.p.bound(key, d.qpn) {
		return roce.FaultKey
	}
	return d.fault(d.p.check(key, d.pd, va, n, a), key, va, n, a)
}

// fault returns FaultWait if the driver may bring the pages of a peer's access in.
func (d domain) fault(f roce.Fault, key uint32, va, n uint64, a roce.Access) error {
	q := d.p.Queues[d.qpn]
	if f != roce.FaultPage || q == nil || q.Kind == queueDCT ||
		a&(roce.RemoteRead|roce.RemoteWrite|roce.RemoteAtomic) == 0 {
		return fault(f)
	}
	if d.p.awaitPeer(q, key, va, n, a) {
		return roce.FaultWait
	}
	q.faults[ofReceives] = pageFault{}
	return f
}

// Read implements roce.Memory.
func (d domain) Read(key uint32, va uint64, b []byte, a roce.Access) error {
	return d.copy(key, va, b, a, false)
}

// Write implements roce.Memory.
func (d domain) Write(key uint32, va uint64, b []byte, a roce.Access) error {
	return d.copy(key, va, b, a, true)
}

func (d domain) copy(key uint32, va uint64, b []byte, a roce.Access, write bool) error {
	if !d.p.bound(key, d.qpn) {
		return roce.FaultKey
	}
	n := len(b)
	list, fail := d.p.translate(d.p.list[:0], key, d.pd, va, uint64(n), a)
	for i := 0; fail == 0 && i < len(list); i++ {
		s := &list[i]
		var done bool
		if write {
			done = s.write(0, b[:s.n])
		} else {
			done = s.read(0, b[:s.n])
		}
		if !done {
			fail = roce.FaultAddress
		}
		b = b[s.n:]
	}
	if fail == 0 {
		d.p.moved(list, total(list), write)
	}
	if fail == 0 && d.p.limited() {
		d.hold(list, n, a, write)
	}
	d.p.list = reusable(list)
	return d.fault(fail, key, va, uint64(n), a)
}

// Atomic implements roce.Memory.
func (d domain) Atomic(key uint32, va uint64, op roce.AtomicOp) (uint64, error) {
	list, f := d.p.translate(nil, key, d.pd, va, 8, roce.RemoteAtomic)
	switch {
	case f != 0:
		return 0, d.fault(f, key, va, 8, roce.RemoteAtomic)
	case !d.p.bound(key, d.qpn):
		return 0, roce.FaultKey
	case va%8 != 0:
		return 0, roce.FaultAlign
	case len(list) != 1 || list[0].b == nil || list[0].addr%8 != 0:
		return 0, roce.FaultAddress
	}
	return atomically(list[0].b, op), nil
}

// Update gets a UMR request after its control segment.
func (d domain) Update(key uint32, how []byte) roce.Status {
	q := d.p.Queues[d.qpn]
	if q == nil {
		return roce.LocalQPOp
	}
	return d.p.umr(q, key, how)
}

// Invalidate implements roce.Memory.
func (d domain) Invalidate(key uint32, remote bool) error {
	if !d.p.invalidate(key, d.pd, d.qpn, remote) {
		return roce.FaultKey
	}
	return nil
}
