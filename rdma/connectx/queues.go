package connectx

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

type sendWR = roce.SendWR

const (
	queueQP  = iota
	queueSQ  // Ethernet
	queueRQ  // Ethernet
	queueRMP // shared receives
	queueSRQ // shared receives of XRC
	queueDCT // a target of dynamic connections
)

// Services of a QP (st of the QPC), and the source of its receives (rq_type).
const (
	serviceRC   = 0
	serviceUC   = 1
	serviceUD   = 2
	serviceXRC  = 3
	serviceDCI  = 5
	serviceGSI  = 8
	serviceUMR  = 0xc
	receivesOwn = 0
	receivesSRQ = 1
)

const (
	wqReset = 0
	wqReady = 1
	wqError = 3
)

// queue is a QP, or one half of one: the driver's Ethernet queues are an SQ or an RQ, and an SRQ has only receives.
// Numbers are unique, because doorbells and CQEs have nothing else.
//
// Exported fields are saved. SI and RI are free-running 16-bit counters. SI counts blocks of 64 bytes and RI whole
// WQEs, as in the doorbell record (DBR): its first word is the guest's counter of receives, its second that of sends.
type queue struct {
	Num      uint32
	Kind     uint8
	Service  uint8
	State    roce.State // RQs and SQs: 0, 1 and 3
	PD       uint32
	User     uint32 // user_index, by which libmlx5 finds its queue
	SendCQ   uint32
	RecvCQ   uint32
	Receives uint8
	SRQ      uint32
	SendLog  uint8 // log of the number of 64-byte blocks
	NoSend   bool
	SendOff  uint64 // offset of the sends in the ring
	RecvLog  uint8
	NoRecv   bool
	StepLog  uint8 // log of the size of a receive WQE
	Linked   bool  // receives are a linked list
	Headed   bool  // receives in a ring have a segment before the list, as linked ones have
	Head     uint32
	SI, RI   uint16 // next
	DBR      uint64
	Counter  uint32
	Limit    uint16 // of a shared queue's event
	Ctx      []byte
	Ring     ring
	KeepVLAN bool
	UID      uint16
	Umems    umemsOf
	Rate     uint32 // row of tables.Rates of an SQ, or 0

	rang time.Duration // time of the last doorbell
	due  time.Duration // when the wire will have carried the message at the head; 0 if not booked
	// copied is the bytes of the message at the head that the direct path has copied.
	copied uint64
	free   time.Duration // when the last frame of a paced SQ has passed
	frame  int           // frames sent of the Ethernet request at the head
	idle   time.Duration // before the next flush of a failed queue
	attr   roce.Attr     // derived from Ctx by setAttr
	wire   *wireQP
	faults [2]pageFault
	shared roce.Memory // XRC: the last shared queue, kept since each conversion to an interface allocates
}

// bounded checks sizes. A receive WQE holds at least a data segment, after another one in a linked queue, and nextRecv
// reads them without checks.
func (q *queue) bounded() bool {
	if q.RecvLog > maxQueueLog || q.SendLog > maxQueueLog || q.StepLog > maxStepLog {
		return false
	}
	least := uint8(4)
	if q.Linked || q.Headed {
		least = 5
	}
	return q.NoRecv || q.StepLog >= least
}

// shape keeps a ring (receives first, then sends) below 1 GiB, and shifts within their words.
func (p *Port) shape(q *queue, s *source) status {
	size := uint64(0)
	if !q.NoRecv {
		size = 1 << (uint64(q.RecvLog) + uint64(q.StepLog))
	}
	q.SendOff = size
	if !q.NoSend {
		size += 64 << q.SendLog
	}
	if !q.bounded() {
		return limit
	}
	if q.NoSend && q.NoRecv {
		q.DBR = 0
		return ok
	}
	return p.acquireMemory(s, size, &q.Ring, &q.DBR, &q.Umems)
}

// pages returns what a queue is charged for, beside its ring: a target for all links that peers may make.
func (q *queue) pages() int {
	if q.Kind == queueDCT {
		return queuePages + roce.MaxLinks*linkSize/8
	}
	return queuePages
}

func (p *Port) addQueue(q *queue, out []byte) status {
	q.Num = p.number(kindQueue, maxQueueNumber, func(n uint32) bool { return p.Queues[n] != nil })
	if q.Num == 0 || !p.charge(q.pages()) {
		p.drop(&q.Ring)
		p.releaseUmems(&q.Umems)
		return limit
	}
	p.Queues[q.Num] = q
	put24(out, q.Num)
	return ok
}

// destroyQueue ends messages in flight without completions, because the driver has flushed the QP, or wants none.
func destroyQueue(p *Port, q *queue, _, _ []byte) status {
	if q.wire != nil {
		p.net.Remove(q.wire.qp)
	}
	p.drop(&q.Ring)
	p.releaseUmems(&q.Umems)
	p.NPages -= q.pages()
	delete(p.waiting, q)
	delete(p.Queues, q.Num)
	return ok
}

// Bytes of struct qpc, of the contexts of RQs, SQs and RMPs, of struct xrc_srqc and of struct cqc. Restore checks them,
// because a saved context is indexed without checks.
const (
	qpcSize  = 0xe8
	wqcSize  = 0xf0
	srqcSize = 0x40
	cqcSize  = 0x40
)

// Limits as powers of two: entries (blocks of 64 bytes for sends), the size of a receive, and the entries of a CQ or
// EQ.
const (
	maxQueueLog = 15
	maxStepLog  = 12
	maxEventLog = 22
)

// createQP starts in Reset. Most of the context comes again with the transitions.
func createQP(p *Port, in, out []byte, _ uint32) status {
	x := in[0x18 : 0x18+qpcSize]
	q := &queue{Kind: queueQP, Service: uint8(qpcSt.get(x)), PD: qpcPd.get32(x), User: qpcUserIndex.get32(x),
		SendCQ: qpcCqnSnd.get32(x), RecvCQ: qpcCqnRcv.get32(x), Receives: uint8(qpcRqType.get(x)),
		SRQ: qpcSrqnRmpnXrqn.get32(x), SendLog: uint8(qpcLogSqSize.get(x)), NoSend: qpcNoSq.is(x),
		RecvLog: uint8(qpcLogRqSize.get(x)), StepLog: uint8(qpcLogRqStride.get(x)) + 4, DBR: qpcDbrAddr.get(x),
		Counter: qpcCounterSetId.get32(x), Ctx: append([]byte(nil), x...), UID: uidOf(in)}
	q.NoRecv = q.Receives != receivesOwn
	// mlx5_ib builds raw packet QPs from an RQ and an SQ. A service without a transport would fail silently.
	if _, has := services[q.Service]; !has && q.Service != serviceUMR || q.Service == serviceDCI && !p.newer() {
		return badParam
	}
	s := source{uid: q.UID, pas: in[0x110:], logPage: qpcLogPageSize.get(x), pageOff: qpcPageOffset.get(x),
		inUmem: createQPUmemValid.is(in), umem: createQPUmemId.get32(in), off: createQPUmemOffset.get(in),
		dbInUmem: qpcDbrUmemValid.is(x), dbUmem: qpcDbrUmemId.get32(x)}
	if st := p.shape(q, &s); st != ok {
		return st
	}
	return p.addQueue(q, out)
}

// createWQ creates an RQ, SQ or RMP, with their struct wq in the same place.
func createWQ(kind uint8) handler {
	return func(p *Port, in, out []byte, _ uint32) status {
		x := in[0x20:]
		w := x[0x30:]
		q := &queue{Kind: kind, PD: wqPd.get32(w), DBR: wqDbrAddr.get(w), Ctx: append([]byte(nil), x[:wqcSize]...),
			UID: uidOf(in)}
		log, step := uint8(wqLogWqSz.get(w)), uint8(wqLogWqStride.get(w))
		q.NoSend, q.NoRecv = kind != queueSQ, kind == queueSQ
		switch kind {
		case queueSQ:
			q.SendLog, q.SendCQ, q.User = log, sqcCqn.get32(x), sqcUserIndex.get32(x)
			q.Rate = sqcRate.get32(x)
		case queueRQ:
			q.RecvCQ, q.User, q.Counter = rqcCqn.get32(x), rqcUserIndex.get32(x), rqcCounterSetId.get32(x)
			q.KeepVLAN = rqcVsd.is(x)
		// An RMP is ready at once.
		case queueRMP:
			q.State = wqReady
			q.Headed = wqWqType.get(w) != 0 && !rmpcBasic.is(x)
		}
		if !q.NoRecv {
			q.RecvLog, q.StepLog, q.Linked = log, step, wqWqType.get(w) == 0
		}
		s := source{uid: q.UID, pas: w[0xc0:], logPage: wqLogWqPgSz.get(w), pageOff: wqPageOffset.get(w),
			inUmem: wqUmemValid.is(w), umem: wqUmemId.get32(w), off: wqUmemOffset.get(w),
			dbInUmem: wqDbrValid.is(w), dbUmem: wqDbrUmemId.get32(w)}
		if st := p.shape(q, &s); st != ok {
			return st
		}
		return p.addQueue(q, out)
	}
}

// createXSRQ creates an XRC SRQ, which is always a linked list.
func createXSRQ(p *Port, in, out []byte, _ uint32) status {
	x := in[0x10:]
	q := &queue{Kind: queueSRQ, State: wqReady, PD: xsrqPd.get32(x), RecvCQ: xsrqCqn.get32(x),
		User: xsrqUserIndex.get32(x), RecvLog: uint8(xsrqLogXrcSrqSize.get(x)),
		StepLog: uint8(xsrqLogRqStride.get(x)) + 4, NoSend: true, Linked: true, Ctx: append([]byte(nil),
			x[:srqcSize]...),
		UID: uidOf(in),
		DBR: xsrqDbRecordAddrH.get(x)<<32 | xsrqDbRecordAddrL.get(x)<<2}
	// No driver or program here has one in a umem.
	if createCQUmemValid.is(in) || xsrqDbrUmemValid.is(x) {
		return badParam
	}
	s := source{uid: q.UID, pas: in[0x110:], logPage: xsrqLogPageSize.get(x), pageOff: xsrqPageOffset.get(x)}
	if st := p.shape(q, &s); st != ok {
		return st
	}
	return p.addQueue(q, out)
}

// modifyWQ moves an RQ or SQ. In Reset, the counters restart at 0, like the driver's.
func modifyWQ(kind uint8) handler {
	return func(p *Port, in, _ []byte, id uint32) status {
		q := p.Queues[id]
		if q == nil || q.Kind != kind {
			return badResource
		}
		to := roce.State(sqcState.get(in[0x20:])) // as in rqc
		if to == wqReset {
			q.SI, q.RI, q.frame = 0, 0, 0
			delete(p.waiting, q)
		}
		q.State = to
		sqcState.put(q.Ctx, uint64(to))
		if kind == queueSQ && be.Uint64(in[0x10:])&1 != 0 { // the rate's bit of modify_bitmask
			q.Rate = sqcRate.get32(in[0x20:])
			sqcRate.put(q.Ctx, uint64(q.Rate))
		}
		return ok
	}
}

// queryWQ returns also the level of a shared queue, which an event sets to 0.
func queryWQ(kind uint8) handler {
	return func(p *Port, _, out []byte, id uint32) status {
		q := p.Queues[id]
		if q == nil || q.Kind != kind {
			return badResource
		}
		switch kind {
		case queueSRQ:
			copy(out[0x10:], q.Ctx)
			xsrqLwm.put(out[0x10:], uint64(q.Limit))
		case queueRMP:
			copy(out[0x20:], q.Ctx)
			wqLwm.put(out[0x50:], uint64(q.Limit))
		default:
			copy(out[0x20:], q.Ctx)
		}
		return ok
	}
}

func armLimit(p *Port, q *queue, in, _ []byte) status {
	q.Limit = be.Uint16(in[14:])
	return ok
}

// modifyRMP sets only the level, like mlx5_ib.
func modifyRMP(_ *Port, q *queue, in, _ []byte) status {
	if q.Kind != queueRMP {
		return badResource
	}
	if in[0x17]&1 != 0 { // lwm of the bitmask
		q.Limit = uint16(wqLwm.get(in[0x50:]))
	}
	return ok
}

// posted returns 0 for more than the queue's size: the guest may write any value, and up to 65535 old WQEs would be
// taken for new ones.
func (p *Port) posted(q *queue) uint16 {
	end, has := p.mem.Load32(q.DBR)
	n := uint16(end) - q.RI
	if !has || uint32(n) > 1<<q.RecvLog {
		return 0
	}
	return n
}

// receives returns the queue for a QP's receives, or nil if it has none, or names one that is gone or of another kind.
// srq is the shared queue of a message of XRC.
func (p *Port) receives(q *queue, srq uint32) *queue {
	if q.Kind != queueQP && q.Kind != queueDCT || q.Receives == receivesOwn {
		return q
	}
	if q.Service == serviceXRC {
		return p.xrcShared(q, srq)
	}
	s := p.Queues[q.SRQ]
	if q.Receives != receivesSRQ || s == nil || s.Kind != queueRMP && s.Kind != queueSRQ || !serves(q.UID, s.UID) {
		return nil
	}
	return s
}

// maxRecvSegs is the number of segments in the largest WQE.
const maxRecvSegs = 64

// nextRecv takes the next receive, with its index as ID. A WQE is a list of length, key and address. In a linked queue
// its first segment has the index of the next WQE in bytes 2 and 3, and the driver puts the completion's index back
// into its list. Indices are masked, so that a guest's list cannot lead outside.
//
// A posted receive rings no doorbell. A caller that finds none must try again, on the wire by the sender's RNR timer.
func (p *Port) nextRecv(q *queue, wr *roce.RecvWR) bool {
	s := p.receives(q, wr.SRQ)
	if s == nil || s.NoRecv || s.DBR == 0 || p.posted(s) == 0 {
		return false
	}
	var b [16 * maxRecvSegs]byte
	mask := uint32(1)<<s.RecvLog - 1
	at := uint32(s.RI)
	if s.Linked {
		at = s.Head
	}
	w := b[:min(1<<s.StepLog, len(b))]
	if !s.Ring.read(p.mem, uint64(at&mask)<<s.StepLog, w) {
		return false
	}
	wr.ID = uint64(at & 0xffff)
	s.RI++
	if s.Linked {
		wr.ID = uint64(at & mask)
		s.Head = uint32(be.Uint16(w[2:]))
	}
	if s.Linked || s.Headed {
		w = w[16:]
	}
	if s.Kind == queueRMP || s.Kind == queueSRQ {
		p.belowLimit(s)
	}
	wr.SG = wr.SG[:0]
	for ; len(w) >= 16; w = w[16:] {
		n, key := be.Uint32(w)&0x7fffffff, be.Uint32(w[4:])
		if key == reservedKey {
			break
		}
		if n > 0 {
			wr.SG = append(wr.SG, roce.SGE{Key: key, Len: n, VA: be.Uint64(w[8:])})
		}
	}
	return true
}

// belowLimit raises the event of a shared queue that runs low once, until the driver arms it again (ARM_RQ).
func (p *Port) belowLimit(s *queue) {
	if s.Limit > 0 && p.posted(s) < s.Limit {
		s.Limit = 0
		p.queueEvent(eventSRQLimit, byte(s.Kind), s.Num)
	}
}

// Opcodes of send WQEs (linux/mlx5/device.h).
const (
	wqeNop       = 0x00
	wqeSendInv   = 0x01
	wqeWrite     = 0x08
	wqeWriteImm  = 0x09
	wqeSend      = 0x0a
	wqeSendImm   = 0x0b
	wqeLSO       = 0x0e
	wqeRead      = 0x10
	wqeCmpSwap   = 0x11
	wqeFetchAdd  = 0x12
	wqeLocalInv  = 0x1b
	wqeUMR       = 0x25
	ctrlSize     = 16
	avSize       = 48
	flagComplete = 0x08
	flagSolicit  = 0x02
)

// MLX5_FENCE_MODE_*, in the top three bits of a send WQE's flags. The small one orders a request with earlier changes
// of keys, as all are here.
const (
	fenceReads         = 2
	fenceAll           = 3
	fenceReadsAndSmall = 4
)

// operations has the opcodes of a QP. Others are refused, because completing work that was not done would mislead the
// driver.
var operations = map[byte]roce.WROp{wqeNop: roce.WRNop, wqeSendInv: roce.WRSendInv, wqeWrite: roce.WRWrite,
	wqeWriteImm: roce.WRWriteImm, wqeSend: roce.WRSend, wqeSendImm: roce.WRSendImm, wqeRead: roce.WRRead,
	wqeCmpSwap: roce.WRCmpSwap, wqeFetchAdd: roce.WRFetchAdd, wqeLocalInv: roce.WRLocalInv, wqeUMR: roce.WRUpdate}

// maxWQE is the largest WQE: 63 units of 16 bytes, in blocks of 64. It is also max_wqe_sz_sq.
const maxWQE = 1024

// nextWQE copies the WQE at the head, so that a guest cannot change a value after its check. It may wrap around, and is
// cut to the posted blocks. If more are posted than the queue has, the doorbell record is wrong, and ok is false. The
// bytes are valid until the next call, or until the lock is released.
func (p *Port) nextWQE(q *queue) (w []byte, blocks uint16, ok bool) {
	b := &p.wqe
	if q.NoSend || q.DBR == 0 {
		return nil, 0, false
	}
	end, has := p.mem.Load32(q.DBR + 4)
	left := uint16(end) - q.SI
	if !has || left == 0 || uint32(left) > 1<<q.SendLog {
		return nil, 0, false
	}
	block := func(i uint16, b []byte) bool {
		return q.Ring.read(p.mem, q.SendOff+uint64(uint32(i)&(1<<q.SendLog-1))*64, b)
	}
	if !block(q.SI, b[:64]) {
		return nil, 0, false
	}
	units := int(be.Uint32(b[4:]) & 0x3f)
	blocks = uint16(max(1, (units+3)/4))
	blocks = min(blocks, left)
	for i := uint16(1); i < blocks; i++ {
		if !block(q.SI+i, b[64*int(i):64*int(i)+64]) {
			return nil, 0, false
		}
	}
	return b[:max(ctrlSize, min(16*units, 64*int(blocks)))], blocks, true
}

func sendID(w []byte) uint64 { return uint64(be.Uint32(w) & 0xffffff) } // index and opcode

// parse sets wr.Fail for a wrong WQE. After the control segment come the address (for datagrams), the remote address,
// atomic operands and data. wr and its lists are reused.
func (p *Port) parse(q *queue, w []byte, wr *sendWR) {
	op := w[3]
	*wr = sendWR{ID: sendID(w), Signaled: w[11]&flagComplete != 0, Solicited: w[11]&flagSolicit != 0,
		Imm: be.Uint32(w[12:]), SG: wr.SG[:0], Inline: wr.Inline[:0]}
	fence := w[11] >> 5
	wr.Fence, wr.Last = fence == fenceReads || fence == fenceReadsAndSmall, fence == fenceAll
	var known bool
	if wr.Op, known = operations[op]; !known {
		wr.Fail = roce.LocalQPOp
		return
	}
	w = w[ctrlSize:]
	if op == wqeUMR {
		wr.Inline = append(wr.Inline, w...)
		return
	}
	if op == wqeNop || op == wqeLocalInv {
		return
	}
	if q.Service == serviceXRC { // struct mlx5_wqe_xrc_seg
		if len(w) < 16 {
			wr.Fail = roce.LocalQPOp
			return
		}
		wr.SRQ, w = be.Uint32(w)&0xffffff, w[16:]
	}
	if q.datagrams() || q.Service == serviceDCI {
		if q.Service == serviceDCI && len(w) >= 8 {
			wr.DCKey = be.Uint64(w)
		}
		if w = p.parseAV(q, w, wr); w == nil {
			wr.Fail = roce.LocalQPOp
			return
		}
	}
	if wr.Op >= roce.WRWrite && wr.Op <= roce.WRFetchAdd {
		if len(w) < 16 {
			wr.Fail = roce.LocalQPOp
			return
		}
		wr.VA, wr.RKey = be.Uint64(w), be.Uint32(w[8:])
		w = w[16:]
	}
	if wr.Op == roce.WRCmpSwap || wr.Op == roce.WRFetchAdd {
		if len(w) < 16 {
			wr.Fail = roce.LocalQPOp
			return
		}
		wr.Atomic = roce.AtomicOp{Add: wr.Op == roce.WRFetchAdd, Operand: be.Uint64(w), Want: be.Uint64(w[8:])}
		w = w[16:]
	}
	wr.Fail = parseData(w, wr)
}

func (q *queue) datagrams() bool { return q.Service == serviceUD || q.Service == serviceGSI }

// parseAV reads struct mlx5_av, and returns the rest, or nil if it is too short. The top bit of byte 8 marks 48 bytes,
// the only form for RoCE. Its row of the GIDs is the source.
func (p *Port) parseAV(q *queue, w []byte, wr *sendWR) []byte {
	if len(w) < avSize || w[8]&0x80 == 0 {
		return nil
	}
	wr.QKey, wr.QPN = be.Uint32(w), be.Uint32(w[8:])&0xffffff
	if wr.QKey>>31 != 0 { // a privileged key stands for the QP's own
		wr.QKey = q.attr.QKey
	}
	fl := be.Uint32(w[28:])
	wr.To = p.path(fl>>20&0xff, [6]byte(w[20:26]), roce.GID(w[32:48]))
	wr.To.TClass, wr.To.HopLimit, wr.To.FlowLabel = w[26], w[27], fl&0xfffff
	wr.To.Prio, wr.To.SrcPort = w[12]&7, be.Uint16(w[14:])
	return w[avSize:]
}

func (p *Port) path(index uint32, mac [6]byte, to roce.GID) roce.Path {
	g, has := p.GIDs[index]
	return roce.Path{SrcMAC: g.MAC, DstMAC: mac, Src: g.GID, Dst: to, V1: has && g.Version == 0, Tagged: g.Tagged,
		VLAN: g.VLAN}
}

// parseData reads memory and inline data, marked by a length with its top bit and padded to 16 bytes, in any order.
// Lengths are checked against the WQE here, keys at their use.
func parseData(w []byte, wr *sendWR) roce.Status {
	for len(w) >= 16 {
		n := be.Uint32(w)
		if n>>31 != 0 {
			l := int(n & 0x3ff)
			if 4+l > len(w) {
				return roce.LocalQPOp
			}
			if l > 0 {
				wr.SG = append(wr.SG, roce.SGE{Len: uint32(l), VA: uint64(len(wr.Inline)), Inline: true})
				wr.Inline = append(wr.Inline, w[4:4+l]...)
			}
			w = w[min(len(w), (4+l+15)&^15):]
			continue
		}
		if n > 0 {
			wr.SG = append(wr.SG, roce.SGE{Key: be.Uint32(w[4:]), Len: n, VA: be.Uint64(w[8:])})
		}
		w = w[16:]
	}
	return 0
}
