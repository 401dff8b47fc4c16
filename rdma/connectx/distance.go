package connectx

import (
	"slices"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// Paths to memory of GPUs have modelled rates (NIC.PathRate). A message takes as long as the slowest of the cable and
// the paths at both ends. All GPUs of one rate share it.

// A path leads to the memory of the GPUs at one distance.
type path struct {
	rate int64
	free [2]float64 // when it is, in nanoseconds, by direction
}

const (
	fromMemory = iota
	toMemory
)

func (p *Port) limited() bool { return p.nic.PathRate != nil && p.nic.RateBits > 0 }

// slowest returns the least rate of the paths to some memory, or 0 for none.
func (p *Port) slowest(list []seg) int64 {
	least := int64(0)
	for i := range list {
		if r := p.nic.PathRate(list[i].addr); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least
}

// carry books n bytes on a path, and returns when it has carried them, or 0 without a rate. They start when the path is
// free, if it has been for no longer than lag, and otherwise at start.
func (p *Port) carry(direction int, list []seg, n uint64, start, lag time.Duration) time.Duration {
	rate := p.slowest(list)
	if rate == 0 {
		return 0
	}
	i := slices.IndexFunc(p.paths, func(x path) bool { return x.rate == rate })
	if i < 0 {
		i = len(p.paths)
		p.paths = append(p.paths, path{rate: rate})
	}
	free := &p.paths[i].free[direction]
	if *free < float64(start-lag) {
		*free = float64(start)
	}
	*free += float64(n) * 8e9 / float64(rate)
	return time.Duration(*free)
}

// pathsPass books the paths at both ends. Both ports are locked.
func (m *message) pathsPass(start time.Duration) time.Duration {
	from, to, src, dst := m.p, m.peer, m.src, m.dst
	if m.access() == 0 && to.limited() {
		m.ofPeer(func() bool {
			dst = m.buffer(dst)
			return true
		})
	}
	if m.reads() {
		from, to, src, dst = to, from, dst, src
	}
	end := time.Duration(0)
	if from.limited() {
		end = from.carry(fromMemory, src, m.n, start, 0)
	}
	if to.limited() {
		end = max(end, to.carry(toMemory, dst, m.n, start, 0))
	}
	return end
}

// buffer returns the beginning of a SEND's buffer, and leaves it posted. A shared queue's event may come one message
// early.
func (m *message) buffer(out []seg) []seg {
	s := m.peer.receives(m.d, 0)
	if s == nil {
		return out
	}
	index, head := s.RI, s.Head
	var r roce.RecvWR
	if m.peer.nextRecv(m.d, &r) && len(r.SG) > 0 {
		e := r.SG[0]
		out, _ = m.peer.translate(out, e.Key, s.PD, e.VA, min(uint64(e.Len), m.n), roce.LocalWrite)
	}
	s.RI, s.Head = index, head
	return out
}

// pathLag is how much a late port may catch up.
const pathLag = time.Millisecond

// hold makes the queue's next data wait for the bytes that it sent or asked for, and its acknowledgements for the bytes
// that it received. So a sender that needs none, of UC or UD, is not slowed down by the receiver's memory.
func (d domain) hold(list []seg, n int, a roce.Access, write bool) {
	q := d.p.Queues[d.qpn]
	if q == nil || q.wire == nil || q.wire.qp == nil {
		return
	}
	direction := fromMemory
	if write {
		direction = toMemory
	}
	until := d.p.carry(direction, list, uint64(n), d.p.s.now(), pathLag)
	switch {
	case until == 0:
	case write && (d.received || a == roce.RemoteWrite):
		q.wire.qp.HoldReplies(until)
	default:
		q.wire.qp.HoldData(until)
	}
}
