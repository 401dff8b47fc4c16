package connectx

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// On-demand paging: a region may lack pages until they are used. Then the adapter sends an event to the driver, which
// loads them by UMR and resumes the queue.

// struct odp_cap: the requests of each service, for which the driver of an adapter brings pages in.
var pagingCaps = map[bits]uint64{
	0x80<<8 | 1: 1, 0x81<<8 | 1: 1, 0x82<<8 | 1: 1, 0x83<<8 | 1: 1, 0x84<<8 | 1: 1, 0x85<<8 | 1: 1, // RC
	0xc0<<8 | 1: 1,                                                                 // UD: sends only
	0xe0<<8 | 1: 1, 0xe2<<8 | 1: 1, 0xe3<<8 | 1: 1, 0xe4<<8 | 1: 1, 0xe5<<8 | 1: 1, // XRC: no receives of its own
}

// nullKey stands for an absent part in the list of an implicit region (null_mkey).
const nullKey = 0x200

// Subtypes of an event, and bits of its type (MLX5_PFAULT_*). An event about a WQE of a shared queue has no bits.
const (
	faultWQE       = 0
	faultRDMA      = 1
	faultRequester = 1 << 0
	faultWrite     = 1 << 1
	faultOfPeer    = 1 << 2
)

// Halves of a queue wait for pages independently: its own requests, and its receives and the requests of its peer.
const (
	ofRequests = iota
	ofReceives
)

// A pageFault is one half's wait for pages.
type pageFault struct {
	pending bool // the driver has not resumed it
	failed  bool // the driver has no pages, so that the request ends with an error
	since   time.Duration
}

// maxFault is the longest wait for a driver. Nodes without KVM are slow.
const maxFault = 30 * time.Second

// pause returns the time before the next look: a peer's half resumes without a word to the sender.
func (f *pageFault) pause(now time.Duration) time.Duration {
	return min(max(peerRetry, (now-f.since)/4), 16*time.Millisecond)
}

// pages returns the queue of events for page faults, or nil if the driver has none.
func (p *Port) pages() *eq { return p.EQs[p.FaultEQ] }

// await sends the event of struct mlx5_eqe_page_fault once, and reports whether to wait. It does not if there is no
// hope: the request then fails as it does without paging.
func (p *Port) await(q *queue, half int, sub byte, d [28]byte) bool {
	f, now := &q.faults[half], p.s.now()
	if f.pending {
		return now-f.since < maxFault
	}
	e := p.pages()
	if e == nil || f.failed {
		return false
	}
	*f = pageFault{pending: true, since: now}
	p.event(e, eventPageFault, sub, d)
	return true
}

// awaitWQE waits for pages of the local memory of a request. index is that of its WQE.
func (p *Port) awaitWQE(q *queue, half int, typ byte, index uint16) bool {
	var d [28]byte
	be.PutUint16(d[6:], index)
	be.PutUint32(d[12:], q.Num)
	be.PutUint32(d[24:], uint32(typ)<<24|q.Num)
	return p.await(q, half, faultWQE, d)
}

// awaitPeer waits for pages of the memory that the queue's peer accesses.
func (p *Port) awaitPeer(q *queue, key uint32, va, n uint64, a roce.Access) bool {
	typ := uint32(faultOfPeer)
	if a&(roce.RemoteWrite|roce.RemoteAtomic) != 0 {
		typ |= faultWrite
	}
	var d [28]byte
	be.PutUint32(d[4:], key)
	be.PutUint16(d[10:], uint16(min(n, 4096)))
	be.PutUint32(d[12:], uint32(n))
	be.PutUint64(d[16:], va)
	be.PutUint32(d[24:], typ<<24|q.Num)
	return p.await(q, ofReceives, faultRDMA, d)
}

// absent reports whether a list lacks pages, and only those. n is the length of the message.
func (p *Port) absent(list []roce.SGE, pd uint32, n uint64, a roce.Access) bool {
	lacks := false
	for _, e := range list {
		if n == 0 {
			break
		}
		l := min(uint64(e.Len), n)
		n -= l
		if e.Inline || l == 0 {
			continue
		}
		switch p.check(e.Key, pd, e.VA, l, a) {
		case 0:
		case roce.FaultPage:
			lacks = true
		default:
			return false
		}
	}
	return lacks
}

// awaitSend waits for the pages of a send request, whose WQE is at SI.
func (p *Port) awaitSend(q *queue, wr *sendWR) bool {
	a, typ := roce.LocalRead, byte(faultRequester)
	if wr.Op == roce.WRRead || wr.Op == roce.WRCmpSwap || wr.Op == roce.WRFetchAdd {
		a, typ = roce.LocalWrite, faultRequester|faultWrite
	}
	return p.pages() != nil && p.absent(wr.SG, q.PD, 1<<32, a) && p.awaitWQE(q, ofRequests, typ, q.SI)
}

// awaitRecv waits for the pages of a receive request. s is the queue that it is of, which may be a shared one.
func (p *Port) awaitRecv(s *queue, wr *roce.RecvWR, n uint64) bool {
	if p.pages() == nil || !p.absent(wr.SG, s.PD, n, roce.LocalWrite) {
		return false
	}
	typ := byte(faultWrite)
	if s.Kind != queueQP {
		typ = 0
	}
	return p.awaitWQE(s, ofReceives, typ, uint16(wr.ID))
}

// awaitsPages reports whether the receiver of a message that was refused has to bring pages in. Its port is locked.
func (m *message) awaitsPages() bool {
	if a := m.access(); a != 0 {
		return m.n > 0 && m.d.attr.Access&a != 0 && m.peer.bound(m.wr.RKey, m.d.Num) &&
			m.peer.check(m.wr.RKey, m.d.PD, m.wr.VA, m.n, a) == roce.FaultPage &&
			m.peer.awaitPeer(m.d, m.wr.RKey, m.wr.VA, m.n, a)
	}
	s := m.peer.receives(m.d, 0)
	if s == nil {
		return false
	}
	index, head, level := s.RI, s.Head, s.Limit
	s.Limit = 0 // the request stays posted
	var r roce.RecvWR
	found := m.peer.nextRecv(m.d, &r)
	s.RI, s.Head, s.Limit = index, head, level
	return found && m.peer.awaitRecv(s, &r, m.n)
}

// refused returns how a message goes on that the receiver did not take: later, or by the wire.
func (m *message) refused() int {
	if !m.ofPeer(m.awaitsPages) {
		return viaWire
	}
	f := &m.d.faults[ofReceives]
	if s := m.peer.receives(m.d, 0); m.access() == 0 && s != nil {
		f = &s.faults[ofReceives]
	}
	m.p.wait(m.q, m.p.s.now()+f.pause(m.p.s.now()))
	return waits
}

// paged reports whether the wire may take a send request, and else looks again after a pause. The error of a request
// whose pages the driver does not have is the wire's.
func (p *Port) paged(q *queue, wr *sendWR) bool {
	if wr.Fail == 0 && p.awaitSend(q, wr) {
		p.wait(q, p.s.now()+q.faults[ofRequests].pause(p.s.now()))
		return false
	}
	q.faults[ofRequests] = pageFault{}
	return true
}

// resumePages is PAGE_FAULT_RESUME: the driver has loaded the pages, or cannot.
func resumePages(p *Port, in, _ []byte, id uint32) status {
	q := p.Queues[id]
	if q == nil {
		return badResource
	}
	half := ofReceives
	if in[8]&faultRequester != 0 {
		half = ofRequests
	}
	f := &q.faults[half]
	if !f.pending {
		return ok
	}
	*f = pageFault{failed: in[8]>>7 != 0}
	if half == ofRequests && q.State == roce.ReadyToSend {
		p.wait(q, p.s.now())
	}
	return ok
}

// parts appends memory behind a key of mode KSM: keys of lists of pages, for parts of one size. A part needs the local
// right of the access, as in pieces, and an access has as many parts at most; those of the driver are 1 GiB each.
func (p *Port) parts(out []seg, check bool, k *mkey, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	size := uint64(1) << k.Shift
	o := va - k.Start
	for count := 0; n > 0; count++ {
		i := o >> k.Shift
		if i >= uint64(len(k.Pages)/2) || count == maxPieces {
			return out, roce.FaultRange
		}
		key, l := uint32(k.Pages[2*i]), min(n, size-o&(size-1))
		if key == nullKey {
			return out, roce.FaultPage
		}
		if in := p.Keys[key>>8]; in == nil || in.Mode != modeMTT {
			return out, roce.FaultKey
		}
		var f roce.Fault
		if out, f = p.find(out, check, key, k.PD, k.Pages[2*i+1]+o&(size-1), l, localRight(a)); f != 0 {
			return out, f
		}
		o, n = o+l, n-l
	}
	return out, 0
}
