package connectx

import (
	"cmp"
	"slices"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

type transition struct {
	from []roce.State // nil means any state
	to   roce.State
	take []bits // required fields of the QPC
	path bool   // takes the address path too
}

// optional has the fields that bits of opt_param_mask announce (MLX5_QP_OPTPAR_* of linux/mlx5/qp.h).
var optional = map[uint]bits{1: qpcRre, 2: qpcRae, 3: qpcRwe, 5: qpcQKey, 6: qpcMinRnrNak, 8: qpcLogSraMax,
	9: qpcLogRraMax, 12: qpcRetryCount, 13: qpcRnrRetry, 18: qpcSrqnRmpnXrqn, 19: qpcCqnRcv, 25: qpcCounterSetId}

const (
	optPath    = 7
	optTimeout = 14
	optSport   = 2 // of the upper bits, after the QPC
)

// transitions are the edges of a QP's states (IBTA 10.3.1) by opcode, with mlx5_ib's fields. ERR and RST can be reached
// from every state.
var transitions = map[uint16]transition{
	0x502: { // RST2INIT_QP
		from: []roce.State{roce.Reset}, to: roce.Init, take: []bits{qpcSt, qpcPd, qpcCqnSnd, qpcCqnRcv, qpcSrqnRmpnXrqn,
			qpcQKey, qpcRre, qpcRwe, qpcRae, qpcCounterSetId, qpcDethSqpn}, path: true},
	0x50e: {from: []roce.State{roce.Init}, to: roce.Init}, // INIT2INIT_QP
	0x503: { // INIT2RTR_QP
		from: []roce.State{roce.Init}, to: roce.ReadyToReceive, take: []bits{qpcMtu, qpcRemoteQpn, qpcNextRcvPsn,
			qpcLogRraMax, qpcMinRnrNak}, path: true},
	0x504: { // RTR2RTS_QP
		from: []roce.State{roce.ReadyToReceive}, to: roce.ReadyToSend, take: []bits{qpcNextSendPsn, qpcRetryCount,
			qpcRnrRetry, qpcLogSraMax}},
	0x505: {from: []roce.State{roce.ReadyToSend}, to: roce.ReadyToSend}, // RTS2RTS_QP
	0x506: {from: []roce.State{roce.SendError}, to: roce.ReadyToSend},   // SQERR2RTS_QP
	0x50c: {from: []roce.State{roce.SendDrain}, to: roce.ReadyToSend},   // SQD_RTS_QP
	0x507: {to: roce.Failed},                                            // 2ERR_QP
	0x50a: {to: roce.Reset},                                             // 2RST_QP
}

// modifyQP gives badQPState only to a misbehaving guest: the driver checks the order.
func modifyQP(op uint16) handler {
	t := transitions[op]
	return func(p *Port, in, _ []byte, id uint32) status {
		q := p.Queues[id]
		if q == nil || q.Kind != queueQP {
			return badResource
		}
		if t.from != nil && !slices.Contains(t.from, q.State) {
			return badQPState
		}
		if t.to != roce.Reset && t.to != roce.Failed {
			if op == 0x505 && len(in) >= 0x110 && be.Uint64(in[0x108:])>>optSport&1 != 0 {
				// Programs change it without the driver (mlx5dv_modify_qp_udp_sport).
				adsUdpSport.put(q.Ctx[qpcPath:], adsUdpSport.get(in[0x18+qpcPath:]))
			}
			p.takeQPC(q, &t, be.Uint32(in[0x10:]), in[0x18:])
		}
		p.setState(q, t.to)
		return ok
	}
}

// takeQPC stores only a transition's fields, because it sends zeros in others. QUERY_QP, Save and setAttr need all
// fields.
func (p *Port) takeQPC(q *queue, t *transition, mask uint32, x []byte) {
	for _, f := range t.take {
		f.put(q.Ctx, f.get(x))
	}
	for b, f := range optional {
		if mask>>b&1 != 0 {
			f.put(q.Ctx, f.get(x))
		}
	}
	at := q.Ctx[qpcPath:]
	// The sender's timeout comes with RTR2RTS, separately from the path of INIT2RTR.
	switch old := adsAckTimeout.get(at); {
	case t.path || mask>>optPath&1 != 0:
		copy(at[:adsSize], x[qpcPath:])
		if t.to == roce.ReadyToReceive && adsAckTimeout.get(at) == 0 {
			adsAckTimeout.put(at, old)
		}
	case t.to == roce.ReadyToSend:
		if t.from[0] == roce.ReadyToReceive || mask>>optTimeout&1 != 0 {
			adsAckTimeout.put(at, adsAckTimeout.get(x[qpcPath:]))
		}
	}
	for f, v := range map[bits]*uint32{qpcCqnSnd: &q.SendCQ, qpcCqnRcv: &q.RecvCQ, qpcSrqnRmpnXrqn: &q.SRQ,
		qpcPd: &q.PD} {
		// A zero means that the driver has not set the field yet.
		if n := f.get32(q.Ctx); n != 0 {
			*v = n
		}
	}
	q.Counter = qpcCounterSetId.get32(q.Ctx)
	p.setAttr(q)
}

const (
	qpcPath = 0x18
	adsSize = 0x2c
	adsGID  = 0x10
)

// setAttr derives the transport's attributes, also when a row of the GIDs changes. MTU is a code from 1, 256 bytes, to
// 5, 4096 bytes. Others count as the nearest, so that no length is 0.
func (p *Port) setAttr(q *queue) {
	x, a := q.Ctx, q.Ctx[qpcPath:]
	var mac [6]byte
	be.PutUint16(mac[:], uint16(adsRmac4732.get(a)))
	be.PutUint32(mac[2:], adsRmac310.get32(a))
	q.attr = roce.Attr{Path: p.path(adsSrcAddrIndex.get32(a), mac, roce.GID(a[adsGID:adsGID+16])),
		RemoteQPN: qpcRemoteQpn.get32(x), QKey: qpcQKey.get32(x), MTU: 128 << max(1, min(5, qpcMtu.get(x))),
		RecvPSN: qpcNextRcvPsn.get32(x), SendPSN: qpcNextSendPsn.get32(x), RNRTimer: uint8(qpcMinRnrNak.get(x)),
		RNRRetry: uint8(qpcRnrRetry.get(x)), Retry: uint8(qpcRetryCount.get(x)),
		AckTimeout: uint8(adsAckTimeout.get(a)),
		MaxReads:   1 << qpcLogSraMax.get(x), PeerReads: 1 << qpcLogRraMax.get(x)}
	t := &q.attr.Path
	t.Prio, t.HopLimit, t.FlowLabel = uint8(adsEthPrio.get(a)), uint8(adsHopLimit.get(a)), adsFlowLabel.get32(a)
	t.TClass, t.SrcPort = uint8(adsTclass.get(a)), uint16(adsUdpSport.get(a))
	// For RoCE v2 mlx5_ib fills in dscp, the upper six bits of the traffic class, instead of tclass.
	t.TClass = cmp.Or(t.TClass, uint8(adsDscp.get(a)<<2))
	for f, r := range map[bits]roce.Access{qpcRre: roce.RemoteRead, qpcRwe: roce.RemoteWrite,
		qpcRae: roce.RemoteAtomic} {
		if f.is(x) {
			q.attr.Access |= r
		}
	}
}

// setState moves a QP with all consequences. Requests posted in RTR rang before they could run, so RTS examines the
// queue again.
func (p *Port) setState(q *queue, to roce.State) {
	q.State = to
	qpcState.put(q.Ctx, uint64(to))
	delete(p.waiting, q)
	q.due, q.copied, q.idle = 0, 0, 0
	p.wireState(q, to)
	switch to {
	case roce.Reset:
		q.SI, q.RI = 0, 0
		q.faults = [2]pageFault{}
	case roce.Failed:
		if p.spent() { // many queues may fail at once
			p.wait(q, p.s.now())
		} else {
			p.flush(q)
		}
	case roce.ReadyToSend:
		q.rang = p.s.now()
		p.wait(q, q.rang) // for requests posted before
	}
}

// flushBatch limits a flush, because a guest may post more while it runs.
const flushBatch = 1 << 10

// flush completes the requests of a failed QP. The driver may post receives later without a doorbell, so the queue is
// examined again until it is reset, after pauses that double from 1 ms to maxIdle, at multiples of the pause, so that
// all failed queues are examined together.
func (p *Port) flush(q *queue) {
	did := false
	var wr roce.RecvWR
	for i := 0; i < flushBatch && q.Receives == receivesOwn && p.nextRecv(q, &wr); i++ {
		p.completion(q, &roce.Completion{ID: wr.ID, Recv: true, Status: roce.Flushed})
		c := p.counters(q)
		c.RespCQEFlushError, c.RespCQEError = c.RespCQEFlushError+1, c.RespCQEError+1
		did = true
	}
	for range flushBatch {
		w, blocks, found := p.nextWQE(q)
		if !found {
			break
		}
		q.SI += blocks
		p.completion(q, &roce.Completion{ID: sendID(w), Status: roce.Flushed})
		c := p.counters(q)
		c.ReqCQEFlushError, c.ReqCQEError = c.ReqCQEFlushError+1, c.ReqCQEError+1
		did = true
	}
	if q.idle *= 2; did || q.idle == 0 {
		q.idle = time.Millisecond
	}
	q.idle = min(q.idle, maxIdle)
	p.wait(q, p.s.now().Truncate(q.idle)+q.idle)
}

const maxIdle = 256 * time.Millisecond

// queryQP shows no change of packet numbers on the direct path.
func queryQP(p *Port, _, out []byte, id uint32) status {
	q := p.Queues[id]
	if q == nil || q.Kind != queueQP {
		return badResource
	}
	x := out[0x18:]
	copy(x, q.Ctx)
	qpcState.put(x, uint64(q.State))
	if q.wire != nil {
		recv, send := q.wire.qp.PSNs()
		qpcNextRcvPsn.put(x, uint64(recv))
		qpcNextSendPsn.put(x, uint64(send))
	}
	qpcHwSqWqebbCounter.put(x, uint64(q.SI))
	qpcHwRqCounter.put(x, uint64(q.RI))
	return ok
}

func (p *Port) counters(q *queue) *roce.Counters {
	if c := p.Counters[q.Counter]; c != nil {
		return c
	}
	if p.count.noSet == nil { // cmp.Or would allocate for each message
		p.count.noSet = &roce.Counters{}
	}
	return p.count.noSet
}
