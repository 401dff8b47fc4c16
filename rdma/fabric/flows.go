package fabric

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A FlowCounters is a flow between leaves: the frames of one five-tuple, which take one spine.
type FlowCounters struct {
	From    string     `json:"from"` // port of the sender
	To      string     `json:"to"`   // port of the receiver
	Via     string     `json:"via"`  // spine of the last frame
	Src     netip.Addr `json:"src,omitzero"`
	Dst     netip.Addr `json:"dst,omitzero"`
	Proto   uint8      `json:"protocol"` // of IP; 0 for frames that are not IP
	SrcPort uint16     `json:"src_port,omitzero"`
	DstPort uint16     `json:"dst_port,omitzero"` // or the EtherType of frames that are not IP
	QP      *uint32    `json:"dest_qp,omitempty"` // queue pair of the receiver, of RoCE v2
	Frames  uint64     `json:"frames"`
	Bytes   uint64     `json:"bytes"`
	Seen    time.Time  `json:"seen"` // last frame
}

// Text returns the protocol and the ports.
func (f FlowCounters) Text() string {
	ports := fmt.Sprintf(" %d > %d", f.SrcPort, f.DstPort)
	switch {
	case f.QP != nil:
		return fmt.Sprintf("RoCE, port %d", f.SrcPort)
	case f.Proto == protoTCP:
		return "TCP" + ports
	case f.Proto == protoUDP:
		return "UDP" + ports
	case f.Proto == 0:
		return fmt.Sprintf("type 0x%04x", f.DstPort)
	}
	return fmt.Sprintf("IP protocol %d", f.Proto)
}

// QueuePair returns the number of the receiver's queue pair, or "".
func (f FlowCounters) QueuePair() string {
	if f.QP == nil {
		return ""
	}
	return fmt.Sprintf("0x%06x", *f.QP)
}

// Flows are the flows between leaves, busiest first.
type Flows struct {
	At       time.Time      `json:"at"`
	Flows    []FlowCounters `json:"flows"`
	Unlisted uint64         `json:"unlisted"` // frames of flows beyond the limit of their port
}

const (
	// flowsPerPort keeps a node that invents flows from taking memory, and from hiding the flows of others.
	flowsPerPort = 256
	// flowIdle is how long a flow must be silent before it makes room for another one.
	flowIdle = 10 * time.Second

	udpHeader = 8
	bthQPN    = 4 // offset of the byte before the QP's number in the base transport header
)

// A flowTable counts flows by their sender's port.
type flowTable struct {
	ports    map[*port]*flowsOf
	unlisted uint64
}

type flowsOf struct {
	all   map[Flow]*flowRecord
	last  *flowRecord // of the previous frame
	swept int64       // last search for silent flows, Unix nanoseconds
}

type flowRecord struct {
	flow          Flow
	to, via       *port
	frames, bytes uint64
	seen          int64 // Unix nanoseconds
	qp            uint32
	hasQP         bool
}

// count counts a frame; now is in Unix nanoseconds.
func (t *flowTable) count(from, to, via *port, flow *Flow, transport []byte, size int, now int64) {
	of := t.ports[from]
	if of == nil {
		if t.ports == nil {
			t.ports = make(map[*port]*flowsOf)
		}
		of = &flowsOf{all: make(map[Flow]*flowRecord)}
		t.ports[from] = of
	}
	r := of.last
	if r == nil || r.flow != *flow {
		if r = of.all[*flow]; r == nil {
			if len(of.all) >= flowsPerPort && !of.sweep(now) {
				t.unlisted++
				return
			}
			r = &flowRecord{flow: *flow}
			of.all[*flow] = r
		}
		of.last = r
	}
	r.to, r.via, r.seen = to, via, now
	r.frames++
	r.bytes += uint64(size)
	if qp, ok := flow.queuePair(transport); ok {
		r.qp, r.hasQP = qp, true
	}
}

// queuePair returns the destination QP of a RoCE v2 packet.
func (f *Flow) queuePair(transport []byte) (qpn uint32, ok bool) {
	if f.Proto != protoUDP || f.DstPort != rocePort || len(transport) < udpHeader+bthQPN+4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(transport[udpHeader+bthQPN:]) & 0xffffff, true
}

// sweep removes silent flows, at most once a second, and reports whether there is room now.
func (o *flowsOf) sweep(now int64) bool {
	if now-o.swept < int64(sweepEvery) {
		return false
	}
	o.swept, o.last = now, nil
	for f, r := range o.all {
		if now-r.seen > int64(flowIdle) {
			delete(o.all, f)
		}
	}
	return len(o.all) < flowsPerPort
}

// forget removes the flows from and to a port.
func (t *flowTable) forget(p *port) {
	delete(t.ports, p)
	for _, of := range t.ports {
		for f, r := range of.all {
			if r.to == p {
				delete(of.all, f)
				of.last = nil
			}
		}
	}
}

// flows must run in the loop.
func (b *bridge) flows() Flows {
	out := Flows{At: b.now(), Flows: []FlowCounters{}}
	if b.net == nil {
		return out
	}
	out.Unlisted = b.net.flows.unlisted
	for from, of := range b.net.flows.ports {
		for f, r := range of.all {
			c := FlowCounters{From: from.Name, To: r.to.Name, Via: b.net.name(r.via.far.sw), Proto: f.Proto,
				SrcPort: f.SrcPort, DstPort: f.DstPort, Frames: r.frames, Bytes: r.bytes, Seen: time.Unix(0, r.seen)}
			if f.Proto != 0 {
				c.Src, c.Dst = netip.AddrFrom16(f.Src).Unmap(), netip.AddrFrom16(f.Dst).Unmap()
			}
			if r.hasQP {
				c.QP = new(r.qp)
			}
			out.Flows = append(out.Flows, c)
		}
	}
	slices.SortFunc(out.Flows, func(a, b FlowCounters) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To),
			cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.DstPort, b.DstPort), cmp.Compare(a.Proto, b.Proto))
	})
	return out
}
