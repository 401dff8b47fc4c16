package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// A link is one direction of a cable.
type link struct {
	index  int32
	rate   float64 // bits/s
	delay  int64
	flight fifo
	last   int64 // arrival of the last packet in flight
	down   bool
	host   *host // the receiver: a host, or a port of a switch
	port   *port
	tap    *Capture // nil unless the link is captured
	way    int      // number of its direction in the capture
}

// A network is one run: everything that changes in it, and the time.
type network struct {
	agenda
	now         int64
	links       []*link
	ports       []*port // of all switches
	hosts       []*host
	switches    []*netSwitch
	flows       []*flow
	starts      int // flows that have started
	open        int // flows that have not ended
	free        *packet
	room        *packet // for the next frame of a NIC
	ended       []*flow // since the last event
	granted     []*flow // may send another message since then
	collectives []*collective
	stats       Counts
	transport   *roce.Counters // of all queue pairs

	// Courses over time: of rates, whether there are any, and whether the file names the queues.
	rates            []*timeline
	recorded, chosen bool

	watch func() // called after each event, for tests; may be nil

	// Bytes of a packet on a cable and in a buffer beyond its frame.
	overWire, overHeld int
	hpcc               bool // sizes of acknowledgements and whole nanoseconds, as in the simulator of HPCC

	spread    map[cause]*spreadCount
	deadlocks deadlockWatch

	faults []Fault
	named  map[string]*port // ports and hosts that faults may name; nil without faults
}

func (n *network) get() *packet {
	p := n.free
	if p == nil {
		return new(packet)
	}
	n.free = p.next
	return p
}

func (n *network) put(p *packet) { p.next, n.free = n.free, p }

func (n *network) space() []byte {
	if n.room == nil {
		n.room = n.get()
	}
	return n.room.frame[:0]
}

// carry puts a packet on a link, at whose other end it is complete at a time.
func (n *network) carry(l *link, p *packet, at int64) {
	// Rounding to nanoseconds must not let packets overtake each other.
	p.at = max(at, l.last)
	l.last = p.at
	if l.flight.first == nil {
		n.add(p.at, arrival, l.index)
	}
	l.flight.push(p)
}

// arrive takes the first packet off a link.
func (n *network) arrive(l *link) {
	p := l.flight.pop()
	if l.flight.first != nil {
		n.add(l.flight.first.at, arrival, l.index)
	}
	if l.down {
		if p.to >= 0 {
			n.stats.Drops++
		}
		n.put(p)
		return
	}
	n.stats.Hops++
	if l.tap != nil {
		l.tap.packet(n.now, l.way, p)
	}
	if l.host != nil {
		l.host.receive(p)
	} else {
		l.port.receive(p)
	}
}

// run runs until all flows have ended, or to the end. It asks stop now and then whether to end at once.
func (n *network) run(end int64, stop func() bool) {
	for count := 0; n.open > 0; count++ {
		e, ok := n.next(end)
		if !ok {
			n.now = end
			return
		}
		if count&0xffff == 0xffff && stop() {
			n.stats.Stopped = true
			return
		}
		n.now = e.at
		switch e.kind() {
		case arrival:
			n.arrive(n.links[e.of()])
		case departure:
			p := n.ports[e.of()]
			p.waiting = false
			p.send()
		case polling:
			if h := n.hosts[e.of()]; h.pollAt == e.at {
				h.pollAt = none
				h.poll()
			}
		case starting:
			n.startFlows()
		case renewal:
			n.ports[e.of()].renew()
		case failing:
			n.fail(e.of())
		case checking:
			n.checkDeadlock()
		}
		if len(n.granted) > 0 {
			n.resume()
		}
		for _, f := range n.ended {
			f.remove()
		}
		n.ended = n.ended[:0]
		if n.watch != nil {
			n.watch()
		}
	}
}

// startFlows starts the flows that are due.
func (n *network) startFlows() {
	for n.starts < len(n.flows) {
		f := n.flows[n.starts]
		if f.start > n.now {
			n.add(f.start, starting, 0)
			return
		}
		n.starts++
		f.begin()
	}
}

// none is no time.
const none = int64(-1)

// A host has one NIC, whose transport is that of the emulated adapters.
type host struct {
	net    *network
	name   string
	index  int32
	nic    *roce.Port
	rate   float64
	out    *link
	edge   *port // of the switch at the other end
	pollAt int64
	qpn    uint32
	flows  []*flow // of its queue pairs, by their numbers
}

// Send implements [roce.Wire]. The NIC has booked its cable for the frame, so the frame leaves when the cable is free
// again.
func (h *host) Send(_ time.Duration, frame []byte) {
	p := h.net.room
	h.net.room = nil
	p.n = uint8(len(frame))
	full := roce.FullSize(frame)
	p.wire, p.held = int32(full+h.net.overWire), int32(full+h.net.overHeld)
	if h.net.hpcc {
		p.sizeOfNotice()
	}
	p.read()
	h.net.carry(h.out, p, h.slowed(p, int64(h.nic.Share(0)))+h.out.delay)
}

func (h *host) receive(p *packet) {
	if h.net.recorded && p.to >= 0 {
		if f := h.flowOf(p.data()); f.to == h && f.curve != nil {
			f.curve.add(h.net.now, int64(p.wire))
		}
	}
	h.nic.Receive(time.Duration(h.net.now), p.data())
	h.net.put(p)
	h.poll()
}

// poll lets the NIC work, and notes when it has work again.
func (h *host) poll() {
	now := time.Duration(h.net.now)
	next := h.nic.Poll(now)
	for next == now {
		next = h.nic.Poll(now)
	}
	if next < 0 || int64(next) == h.pollAt {
		return
	}
	h.pollAt = int64(next)
	h.net.add(h.pollAt, polling, h.index)
}

// source returns a random sequence for a purpose.
func source(seed uint64, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }
