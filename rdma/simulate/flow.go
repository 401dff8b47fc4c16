package simulate

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// A flow is one message from a host to another, over a queue pair of its own that lives as long as it. It is the
// owner of the sending end.
type flow struct {
	net      *network
	nic      *NICConfig
	index    int
	entry    int32 // of the traffic
	from, to *host
	bytes    int64
	message  int64 // most bytes of a write
	start    int64
	end      int64 // none until the last byte is acknowledged
	left     int64 // bytes that the queue pair has not taken yet
	failed   roce.Status
	send     *roce.QP
	recv     *roce.QP
	counters *roce.Counters
	best     time.Duration // completion on an empty network
	curve    *timeline     // of bytes on the cable of the receiver; nil if it is not recorded

	sourcePort uint16 // at flow level

	// Of a flow of a collective: its ring, the flows of the next and the last rank, and messages that its host may
	// send now and that have arrived.
	ring         int32
	part         *collective
	next, before *flow
	owed, taken  int64
	way          float64 // time of a message on an empty network
}

// longest is the limit of a message of the transport. Longer flows are several messages.
const longest = 1 << 30

// NextSend implements [roce.Owner].
func (f *flow) NextSend(w *roce.SendWR) bool {
	if f.left == 0 {
		return false
	}
	if f.part != nil {
		return f.nextMessage(w)
	}
	n := min(f.left, f.message)
	f.left -= n
	w.Op, w.Signaled = roce.WRWrite, f.left == 0
	w.SG = append(w.SG, roce.SGE{Len: uint32(n)})
	return true
}

// NextRecv implements [roce.Owner].
func (f *flow) NextRecv(*roce.RecvWR) bool { return false }

// Complete implements [roce.Owner].
func (f *flow) Complete(c *roce.Completion) {
	if f.end != none || f.failed != roce.OK {
		return
	}
	if f.failed = c.Status; f.failed == roce.OK {
		f.end = f.net.now
	}
	f.net.open--
	f.net.ended = append(f.net.ended, f)
}

// Event implements [roce.Owner].
func (f *flow) Event(roce.Event) {}

// A sink is the owner of a receiving end: writes need nothing from it.
type sink struct{}

func (sink) NextSend(*roce.SendWR) bool { return false }
func (sink) NextRecv(*roce.RecvWR) bool { return false }
func (sink) Complete(*roce.Completion)  {}
func (sink) Event(roce.Event)           {}

// noMemory is memory that takes everything and keeps nothing.
type noMemory struct{}

func (noMemory) Check(uint32, uint64, uint64, roce.Access) error              { return nil }
func (noMemory) Read(uint32, uint64, []byte, roce.Access) error               { return nil }
func (noMemory) Write(uint32, uint64, []byte, roce.Access) error              { return nil }
func (noMemory) Atomic(uint32, uint64, roce.AtomicOp) (old uint64, err error) { return 0, nil }
func (noMemory) Invalidate(uint32, bool) error                                { return nil }
func (noMemory) Update(uint32, []byte) roce.Status                            { return roce.OK }

// begin makes and connects the queue pairs of a flow, and starts to send.
func (f *flow) begin() {
	f.left = f.bytes
	f.send = f.pair(f.from, f)
	var o roce.Owner = sink{}
	if f.part != nil {
		o = receiver{f}
	}
	f.recv = f.pair(f.to, o)
	f.connect(f.send, f.from, f.to, f.to.qpn)
	f.connect(f.recv, f.to, f.from, f.from.qpn)
	f.send.Doorbell()
	f.from.poll()
}

func (f *flow) pair(h *host, o roce.Owner) *roce.QP {
	h.qpn++
	h.flows = append(h.flows, f)
	q, err := h.nic.NewQP(roce.QPConfig{Type: roce.RC, QPN: h.qpn, Owner: o, Mem: noMemory{}, Counters: f.counters})
	if err != nil {
		panic(err) // numbers are given out once, and the check of the file limits the flows
	}
	return q
}

func (f *flow) connect(q *roce.QP, own, peer *host, qpn uint32) {
	a := roce.Attr{RemoteQPN: qpn, MTU: f.nic.MTU, Access: roce.RemoteWrite, RNRTimer: 12, RNRRetry: 7, Retry: 7,
		AckTimeout: uint8(f.nic.AckTimeout), Window: f.nic.Window, AckEvery: f.nic.AckEvery,
		Path: roce.Path{Src: address(own.index), Dst: address(peer.index), TClass: dscpOf(f.nic.Priority) << 2,
			AckTClass: dscpOf(*f.nic.AckPriority) << 2, Prio: uint8(f.nic.Priority)}}
	for _, s := range []roce.State{roce.Init, roce.ReadyToReceive, roce.ReadyToSend} {
		if err := q.Modify(s, &a); err != nil {
			panic(err) // the check of the file limits all attributes
		}
	}
}

// dscpOf returns a DSCP of a priority. That of priority 3 is 26, which guides for RoCE use.
func dscpOf(prio int) uint8 { return uint8(prio)<<3 | 2 }

// firstQPN is the number of a host's first queue pair.
const firstQPN = 0x100

// flowOf returns the flow that a frame to a host belongs to.
func (h *host) flowOf(frame []byte) *flow {
	return h.flows[be.Uint32(frame[offQPN:])&0xffffff-firstQPN]
}

// remove removes the queue pairs of a flow that has ended.
func (f *flow) remove() {
	f.from.nic.Remove(f.send)
	f.to.nic.Remove(f.recv)
	f.send, f.recv = nil, nil
}

// ideal returns the completion time of the flow on an empty network: each packet is sent on, link by link, when it is
// complete, and the acknowledgement of the last one returns.
func (f *flow) ideal() time.Duration {
	if f.part != nil {
		return f.idealRing()
	}
	return time.Duration(f.oneWay(f.bytes, headWrite) + f.answer())
}

// oneWay returns the time until a message is complete at the receiver. The first packet has a longer header.
func (f *flow) oneWay(bytes int64, first int64) float64 {
	links := f.path()
	mtu := int64(f.nic.MTU)
	message := min(bytes, f.message)
	each := (message + mtu - 1) / mtu // packets of a message
	packets := bytes/message*each + (bytes%message+mtu-1)/mtu
	wire := func(i int64) float64 {
		done := i/each*message + i%each*mtu
		n := min(mtu, message-i%each*mtu, bytes-done)
		n += -n & 3
		size := int64(headData) + n
		if i%each == 0 {
			size += first
		}
		return float64(8e9 * (max(size, minFrame) + int64(f.net.overWire)))
	}
	// After a few packets all links are in step, and a packet takes the time of the slowest one.
	done := make([]float64, len(links))
	const inStep = 64
	mean := float64(8e9 * (headData + mtu + int64(f.net.overWire)))
	if each <= inStep {
		mean = 0
		for i := range each {
			mean += wire(i) / float64(each)
		}
	}
	slowest := 0.0
	for _, l := range links {
		slowest = max(slowest, mean/l.rate)
	}
	skipped := max(0, packets-1-inStep)
	if each <= inStep {
		skipped -= skipped % each
	}
	for i := int64(0); i < packets; i++ {
		if i == inStep && skipped > 0 {
			for k := range done {
				done[k] += float64(skipped) * slowest
			}
			i += skipped
		}
		at := 0.0
		for k, l := range links {
			done[k] = max(at, done[k]) + wire(i)/l.rate
			at = done[k]
		}
	}
	total := done[len(links)-1]
	for _, l := range links {
		total += float64(l.delay)
	}
	return total
}

// answer returns the time of an acknowledgement on an empty network.
func (f *flow) answer() (total float64) {
	for _, l := range f.path() {
		total += float64(l.delay) + 8e9*float64(f.net.ackWire())/l.rate
	}
	return total
}

// ackWire returns the bytes of an acknowledgement on a cable.
func (n *network) ackWire() int {
	if n.hpcc {
		return hpccAck
	}
	return headAck + n.overWire
}

// Sizes of frames of the transport without FCS.
const (
	minFrame  = 60
	headData  = 14 + 20 + 8 + 12 + 4 // Ethernet, IPv4, UDP, BTH, invariant CRC
	headWrite = 16                   // RETH, in the first packet
	headImm   = headWrite + 4        // and immediate data, which tell a receiver of the message
	headAck   = headData + 4         // AETH
)

// path returns the links of a shortest path of the flow.
func (f *flow) path() (links []*link) {
	links = append(links, f.from.out)
	for p := f.from.edge; p.sw != f.to.edge.sw; {
		out := p.sw.towards(f.to)[0]
		links = append(links, out.out)
		p = out.out.port
	}
	return append(links, f.to.edge.out)
}
