package simulate

// An eventKind is the kind of an event.
type eventKind uint8

const (
	arrival   eventKind = iota // the first packet in flight reaches the end of a link
	departure                  // a port of a switch is free for the next packet
	polling                    // a NIC has work
	starting                   // the next flows start
	renewal                    // a port of a switch repeats its pauses before they expire
	failing                    // a link becomes slow or goes down
	checking                   // pauses may have become a deadlock
)

// An event is an entry of the agenda, of 16 bytes, so that four fit into a line of a CPU's cache.
type event struct {
	at  int64
	seq uint32 // counts events, and wraps
	ref uint32 // the kind, and the index of the link, port or host
}

const kindBits = 3

func (e *event) kind() eventKind { return eventKind(e.ref & (1<<kindBits - 1)) }
func (e *event) of() int32       { return int32(e.ref >> kindBits) }

// before compares times, and for the same time the order of addition. Events of one time are much closer to each other
// than half of all numbers.
func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && int32(e.seq-o.seq) < 0 }

// An agenda holds the coming events in a heap with four children a node. Events of the same time happen in the order
// in which they were added, so that a run can be repeated exactly.
type agenda struct {
	heap []event
	seq  uint32
}

func (a *agenda) add(at int64, kind eventKind, of int32) {
	a.seq++
	e := event{at: at, seq: a.seq, ref: uint32(of)<<kindBits | uint32(kind)}
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

// next removes the earliest event. ok is false if there is none, or none before the end.
func (a *agenda) next(end int64) (e event, ok bool) {
	h := a.heap
	if len(h) == 0 || h[0].at > end {
		return e, false
	}
	e = h[0]
	last := h[len(h)-1]
	h = h[:len(h)-1]
	a.heap = h
	if len(h) == 0 {
		return e, true
	}
	i := 0
	for {
		c := 4*i + 1
		if c >= len(h) {
			break
		}
		best := c
		for k := c + 1; k < min(c+4, len(h)); k++ {
			if h[k].before(&h[best]) {
				best = k
			}
		}
		if !h[best].before(&last) {
			break
		}
		h[i] = h[best]
		i = best
	}
	h[i] = last
	return e, true
}
