package gpu

import (
	"encoding/binary"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// Flags of descriptors, chapter 2.7.5, and of the ring of available requests.
const (
	descNext     = 1
	descWrite    = 2
	descIndirect = 4

	availNoInterrupt = 1
)

type piece struct {
	addr uint64
	n    uint32
}

// request has only the beginning of a request, because commands with an effect are short.
type request struct {
	in  [96]byte
	n   int
	out []piece
}

// serve answers at most as many requests as the queue has room for, each in bounded time. Only this guest waits
// meanwhile.
func (g *GPU) serve(n int) {
	g.serving.Lock()
	defer g.serving.Unlock()
	g.maps.RLock()
	defer g.maps.RUnlock()
	q, ok := g.active(n)
	if !ok {
		return
	}
	before := q.Done
	sound := g.drain(n, &q)
	wanted := q.Done != before && g.wantsInterrupt(&q)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := &g.virtio.Queues[n]
	now.Next, now.Done = q.Next, q.Done
	if !sound {
		g.violated()
	}
	if wanted {
		g.interrupt(q.Vector, interruptQueue)
	}
}

func (g *GPU) active(n int) (q queue, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q = g.virtio.Queues[n]
	return q, g.fault != Lost && q.Enabled && g.config[cfgCommand]&commandMaster != 0 &&
		g.virtio.Status&(statusDriverOK|statusNeedsReset) == statusDriverOK
}

// drain returns false if the driver has violated the rules of queues.
func (g *GPU) drain(n int, q *queue) bool {
	mem := &g.vfu.Mem
	avail, ok := load16(mem, q.Avail+2)
	if !ok || avail-q.Next > q.Size {
		return false
	}
	for q.Next != avail {
		head, ok := load16(mem, q.Avail+4+2*uint64(q.Next%q.Size))
		if !ok {
			return false
		}
		var r request
		if r.out = g.pieces[:0]; !r.collect(mem, q, head) {
			return false
		}
		g.pieces = r.out
		q.Next++
		written, ok := r.answer(mem, g.command(n, r.in[:r.n]))
		if !ok || !q.give(mem, head, written) {
			return false
		}
	}
	return true
}

// collect reads a chain, at most as long as its queue, which also ends circles. Parts to be read come before those to
// be written, and a table of further descriptors comes last.
func (r *request) collect(mem *vfiouser.Memory, q *queue, head uint16) bool {
	table, size, at := q.Desc, q.Size, head
	indirect := false
	for range int(q.Size) + 1 {
		var d [16]byte
		if at >= size || !mem.Read(table+16*uint64(at), d[:]) {
			return false
		}
		addr, n, flags := le.Uint64(d[:]), le.Uint32(d[8:]), le.Uint16(d[12:])
		switch {
		case flags&descIndirect != 0:
			if indirect || flags&descNext != 0 || n == 0 || n%16 != 0 || n/16 > uint32(q.Size) {
				return false
			}
			table, size, at, indirect = addr, uint16(n/16), 0, true
			continue
		case flags&descWrite != 0:
			r.out = append(r.out, piece{addr, n})
		case len(r.out) > 0:
			return false
		default:
			k := min(int(n), len(r.in)-r.n)
			if k > 0 && !mem.Read(addr, r.in[r.n:r.n+k]) {
				return false
			}
			r.n += k
		}
		if flags&descNext == 0 {
			return true
		}
		at = le.Uint16(d[14:])
	}
	return false
}

// answer writes as much as there is room for.
func (r *request) answer(mem *vfiouser.Memory, b []byte) (written uint32, ok bool) {
	for _, p := range r.out {
		k := min(uint64(p.n), uint64(len(b)))
		if k > 0 && !mem.Write(p.addr, b[:k]) {
			return written, false
		}
		b, written = b[k:], written+uint32(k)
	}
	return written, true
}

// give makes the ring's index visible after the entry, in one access.
func (q *queue) give(mem *vfiouser.Memory, head uint16, written uint32) bool {
	var e [8]byte
	le.PutUint32(e[:], uint32(head))
	le.PutUint32(e[4:], written)
	if !mem.Write(q.Used+4+8*uint64(q.Done%q.Size), e[:]) {
		return false
	}
	q.Done++
	return mem.Store32(q.Used, [4]byte{2: byte(q.Done), 3: byte(q.Done >> 8)})
}

func (g *GPU) wantsInterrupt(q *queue) bool {
	flags, ok := load16(&g.vfu.Mem, q.Avail)
	return ok && flags&availNoInterrupt == 0
}

// load16 uses one access: a copy of bytes might see half of an index that the guest is writing.
func load16(mem *vfiouser.Memory, addr uint64) (uint16, bool) {
	w, ok := mem.Load32(addr &^ 3)
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], w)
	return le.Uint16(b[addr&2:]), ok
}
