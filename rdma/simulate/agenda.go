package simulate

import "math/bits"

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

// An event is an entry of the agenda.
type event struct {
	at  int64
	seq uint32 // counts late events, and wraps
	ref uint32 // the kind, and the index of the link, port or host
}

const kindBits = 3

func (e *event) kind() eventKind { return eventKind(e.ref & (1<<kindBits - 1)) }
func (e *event) of() int32       { return int32(e.ref >> kindBits) }

// before compares times, and for the same time the order of addition. Events of one time are much closer to each other
// than half of all numbers.
func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && int32(e.seq-o.seq) < 0 }

// The wheel has a slot for each nanosecond of this time from now on. Most events are nearer: a packet takes less than a
// microsecond on a fast link. The others are late.
const (
	wheelSize = 1 << 16
	wheelMask = wheelSize - 1
)

// A slot is a list of events of one time, by their numbers among the notes.
type slot struct{ first, last int32 }

// A note is an event of the wheel. Its time is that of its slot.
type note struct {
	ref  uint32
	next int32 // 0 means none
}

// An agenda holds the coming events. Events of the same time happen in the order in which they were added, so that a
// run can be repeated exactly. Late events were added before those of the wheel that have the same time.
type agenda struct {
	time  int64 // of the last event
	slots []slot
	full  [wheelSize / 64]uint64      // slots that have events
	some  [wheelSize / 64 / 64]uint64 // words of full that are not 0
	notes []note                      // the first one is not used
	spare int32                       // a list of notes
	late  later
}

func (a *agenda) add(at int64, kind eventKind, of int32) {
	ref := uint32(of)<<kindBits | uint32(kind)
	if uint64(at-a.time) >= wheelSize {
		a.late.add(at, ref)
		return
	}
	if a.slots == nil {
		a.slots, a.notes = make([]slot, wheelSize), make([]note, 1, 1024)
	}
	i := a.spare
	if i == 0 {
		i = int32(len(a.notes))
		a.notes = append(a.notes, note{})
	} else {
		a.spare = a.notes[i].next
	}
	a.notes[i] = note{ref: ref}
	k := at & wheelMask
	s := &a.slots[k]
	if s.first == 0 {
		s.first = i
		a.full[k>>6] |= 1 << (k & 63)
		a.some[k>>12] |= 1 << (k >> 6 & 63)
	} else {
		a.notes[s.last].next = i
	}
	s.last = i
}

// next removes the earliest event. ok is false if there is none, or none before the end.
func (a *agenda) next(end int64) (e event, ok bool) {
	k := a.soonest()
	at := a.time + (k-a.time)&wheelMask
	if h := a.late.heap; len(h) > 0 && (k < 0 || h[0].at <= at) {
		if h[0].at > end {
			return e, false
		}
		e = a.late.next()
		a.time = max(a.time, e.at)
		return e, true
	}
	if k < 0 || at > end {
		return e, false
	}
	s := &a.slots[k]
	i := s.first
	n := &a.notes[i]
	if s.first = n.next; s.first == 0 {
		if a.full[k>>6] &^= 1 << (k & 63); a.full[k>>6] == 0 {
			a.some[k>>12] &^= 1 << (k >> 6 & 63)
		}
	}
	n.next, a.spare = a.spare, i
	a.time = at
	return event{at: at, ref: n.ref}, true
}

// soonest returns the first slot from now on that has events, around the wheel, or -1.
func (a *agenda) soonest() int64 {
	now := a.time & wheelMask
	w := now >> 6
	if rest := a.full[w] >> (now & 63); rest != 0 {
		return now + int64(bits.TrailingZeros64(rest))
	}
	// The words after this one, all others, and the slots of this one before now.
	v := w >> 6
	if rest := a.some[v] &^ (1<<(w&63+1) - 1); rest != 0 {
		return a.firstOf(v, rest)
	}
	for i := int64(1); i <= int64(len(a.some)); i++ {
		if u := (v + i) % int64(len(a.some)); a.some[u] != 0 {
			return a.firstOf(u, a.some[u])
		}
	}
	return -1
}

// firstOf returns the first slot of a group of words, some of which have events.
func (a *agenda) firstOf(group int64, some uint64) int64 {
	w := group<<6 + int64(bits.TrailingZeros64(some))
	return w<<6 + int64(bits.TrailingZeros64(a.full[w]))
}

// later holds late events in a heap with four children a node.
type later struct {
	heap []event
	seq  uint32
}

func (a *later) add(at int64, ref uint32) {
	a.seq++
	e := event{at: at, seq: a.seq, ref: ref}
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

// next removes the earliest event, of which there is one.
func (a *later) next() event {
	h := a.heap
	e := h[0]
	last := h[len(h)-1]
	h = h[:len(h)-1]
	a.heap = h
	if len(h) == 0 {
		return e
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
	return e
}
