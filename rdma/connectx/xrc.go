package connectx

import "github.com/rackless/rackless/rdma/roce"

// Extended reliable connections (XRC, annex A14): a request names a shared receive queue of the peer, so that one
// connection between two nodes serves all processes. The target QP lends it to the shared queues of its XRC domain, and
// their protection domains decide which memory may be accessed.

// xrcShared returns a shared queue that a target QP may use, or nil.
func (p *Port) xrcShared(q *queue, srq uint32) *queue {
	s := p.Queues[srq]
	if s == nil || s.Kind != queueSRQ || xsrqXrcd.get(s.Ctx) != qpcXrcd.get(q.Ctx) ||
		!serves(q.UID, s.UID) {
		return nil
	}
	return s
}

func (p *Port) xrcMemory(q *queue, srq uint32) (roce.Memory, bool) {
	s := p.xrcShared(q, srq)
	if s == nil {
		return nil, false
	}
	if q.shared == nil || q.shared.(domain).pd != s.PD {
		q.shared = domain{p: p, pd: s.PD, qpn: q.Num}
	}
	return q.shared, true
}
