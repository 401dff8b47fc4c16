package connectx

import "github.com/rackless/rackless/rdma/roce"

// Dynamically connected transport: a program sends by an initiator (DCI), a queue pair whose requests have an address
// each, to targets (DCT) of other programs, which receive by a shared queue. Only cards after the ConnectX-4 Lx have
// it here. Requests go as packets, whose form is this emulation's own.

// struct dctc, in CREATE_DCT and QUERY_DCT.
const (
	dctcState        bits = 0x4<<8 | 4
	dctcUserIndex    bits = 0x28<<8 | 24
	dctcCqn          bits = 0x48<<8 | 24
	dctcCounterSetId bits = 0x60<<8 | 8
	dctcRre          bits = 0x6c<<8 | 1
	dctcRwe          bits = 0x6d<<8 | 1
	dctcRae          bits = 0x6e<<8 | 1
	dctcMinRnrNak    bits = 0x93<<8 | 5
	dctcSrqn         bits = 0xa8<<8 | 24
	dctcPd           bits = 0xc8<<8 | 24
	dctcTclass       bits = 0xe0<<8 | 8
	dctcFlowLabel    bits = 0xec<<8 | 20
	dctcKey          bits = 0x100<<8 | 64
	dctcMtu          bits = 0x145<<8 | 3
	dctcMyAddrIndex  bits = 0x168<<8 | 8
	dctcHopLimit     bits = 0x178<<8 | 8
	dctcEthPrio      bits = 0x1b5<<8 | 3
	dctcDscp         bits = 0x1ba<<8 | 6

	dctcSize    = 0x40
	linkSize    = 1536 // bytes of memory of a link
	dctcDrained = 2    // of dctcState
)

func createDCT(p *Port, in, out []byte, _ uint32) status {
	if !p.newer() {
		return badOp
	}
	x := in[0x10 : 0x10+dctcSize]
	q := &queue{Kind: queueDCT, State: roce.ReadyToReceive, PD: dctcPd.get32(x), User: dctcUserIndex.get32(x),
		RecvCQ: dctcCqn.get32(x), Receives: receivesSRQ, SRQ: dctcSrqn.get32(x), Counter: dctcCounterSetId.get32(x),
		NoSend: true, NoRecv: true, Ctx: append([]byte(nil), x...), UID: uidOf(in)}
	dctcState.put(q.Ctx, 0)
	if st := p.addQueue(q, out); st != ok {
		return st
	}
	p.serveDCT(q)
	return ok
}

// serveDCT makes the transport's part of a target, which receives from now on.
func (p *Port) serveDCT(q *queue) {
	x := q.Ctx
	q.attr = roce.Attr{Path: p.path(dctcMyAddrIndex.get32(x), [6]byte{}, roce.GID{}),
		MTU: 128 << max(1, min(5, dctcMtu.get(x))), RNRTimer: uint8(dctcMinRnrNak.get(x)), PeerReads: 16}
	t := &q.attr.Path
	t.Prio, t.HopLimit, t.FlowLabel = uint8(dctcEthPrio.get(x)), uint8(dctcHopLimit.get(x)), dctcFlowLabel.get32(x)
	if t.TClass = uint8(dctcTclass.get(x)); t.TClass == 0 {
		t.TClass = uint8(dctcDscp.get(x) << 2)
	}
	for f, r := range map[bits]roce.Access{dctcRre: roce.RemoteRead, dctcRwe: roce.RemoteWrite,
		dctcRae: roce.RemoteAtomic} {
		if f.is(x) {
			q.attr.Access |= r
		}
	}
	w := &wireQP{p: p, q: q}
	var err error
	w.qp, err = p.net.NewQP(roce.QPConfig{Type: roce.RC, QPN: q.Num, Owner: w, Shared: true, Counters: p.counters(q),
		Mem: domain{p: p, pd: q.PD, qpn: q.Num}, Dynamic: roce.Target, DCKey: dctcKey.get(x)})
	if err != nil {
		p.logf("DCT %#x: %v", q.Num, err)
		return
	}
	q.wire = w
	for _, to := range []roce.State{roce.Init, roce.ReadyToReceive} {
		if err := w.qp.Modify(to, &q.attr); err != nil {
			p.logf("DCT %#x: %v", q.Num, err)
		}
	}
}

// drainDCT ends all connections of a target. The driver destroys it after the event.
func drainDCT(p *Port, q *queue, _, _ []byte) status {
	if q.Kind != queueDCT {
		return badResource
	}
	if q.wire != nil {
		// A receive of an unfinished message completes.
		_ = q.wire.qp.Modify(roce.Failed, nil)
		p.net.Remove(q.wire.qp)
		q.wire = nil
	}
	dctcState.put(q.Ctx, dctcDrained)
	p.queueEvent(eventDCTDrained, 0, q.Num)
	return ok
}

func queryDCT(_ *Port, q *queue, _, out []byte) status {
	if q.Kind != queueDCT {
		return badResource
	}
	copy(out[0x10:], q.Ctx)
	return ok
}
