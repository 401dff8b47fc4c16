package simulate

import (
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// A collective is a ring of flows that all-reduces the data of its hosts. Each message to a host lets that host send
// the next one, so a rank that waits holds up those after it.
type collective struct {
	entry    int32
	flows    []*flow
	messages int64   // of each flow
	chunk    int64   // bytes of each message
	around   float64 // time of a message of each flow on an empty network
}

// chain links the flows of collectives, which stand in the order of their ranks.
func (n *network) chain(c *Config) {
	byRing := map[int32]*collective{}
	for _, f := range n.flows {
		if f.ring == 0 {
			continue
		}
		k := byRing[f.ring]
		if k == nil {
			k = &collective{entry: f.entry}
			byRing[f.ring] = k
			n.collectives = append(n.collectives, k)
		}
		k.flows = append(k.flows, f)
	}
	for _, k := range n.collectives {
		k.messages = steps(len(k.flows))
		k.chunk = k.flows[0].bytes / k.messages
		for i, f := range k.flows {
			f.part, f.next, f.before = k, k.flows[(i+1)%len(k.flows)], k.flows[(i+len(k.flows)-1)%len(k.flows)]
			f.owed, f.way = 1, f.oneWay(k.chunk, headImm)
			k.around += f.way
		}
	}
}

// nextMessage gives the next message of a collective to the queue pair, if the host may send it.
func (f *flow) nextMessage(w *roce.SendWR) bool {
	if f.owed == 0 {
		return false
	}
	f.owed--
	f.left -= f.part.chunk
	w.Op, w.Signaled = roce.WRWriteImm, f.left == 0
	w.SG = append(w.SG, roce.SGE{Len: uint32(f.part.chunk)})
	return true
}

// A receiver is the owner of the receiving end of a flow of a collective.
type receiver struct{ *flow }

// NextSend implements [roce.Owner].
func (receiver) NextSend(*roce.SendWR) bool { return false }

// NextRecv implements [roce.Owner].
func (receiver) NextRecv(*roce.RecvWR) bool { return true }

// Complete implements [roce.Owner]. A message lets the receiver send the next one, but for the last.
func (r receiver) Complete(c *roce.Completion) {
	f := r.flow
	if !c.Recv || c.Status != roce.OK {
		return
	}
	if f.taken++; f.taken < f.part.messages {
		f.next.owed++
		f.net.granted = append(f.net.granted, f.next)
	}
}

// resume lets the flows send that have got the messages they waited for.
func (n *network) resume() {
	for i := 0; i < len(n.granted); i++ {
		if f := n.granted[i]; f.send != nil {
			f.send.Doorbell()
			f.from.poll()
		}
	}
	n.granted = n.granted[:0]
}

// idealRing returns the time of a flow of a collective on an empty network: its last message waits for all messages
// before it on their way around the ring.
func (f *flow) idealRing() time.Duration {
	// They are two for each rank, apart from the next two ranks, of which it is one.
	total := 2*f.part.around - f.next.way - f.next.next.way
	return time.Duration(total + f.answer())
}

// A CollectiveResult is the result of one ring of a collective.
type CollectiveResult struct {
	Pattern    string        `json:"pattern"`
	Ranks      int           `json:"ranks"`
	Bytes      int64         `json:"bytes"` // of each rank
	Start      time.Duration `json:"start_ns"`
	Completion time.Duration `json:"completion_ns,omitzero"` // 0 if it did not end
	Ideal      time.Duration `json:"ideal_ns"`               // on an empty network
	// BusBandwidth is the rate that each link would need for it, as nccl-tests print it, in bits/s.
	BusBandwidth float64 `json:"bus_bandwidth_bits_per_second"`
}

func (k *collective) result(c *Config) CollectiveResult {
	first := k.flows[0]
	r := CollectiveResult{Pattern: c.Traffic[k.entry].Pattern, Ranks: len(k.flows),
		Bytes: k.chunk * int64(len(k.flows)), Start: time.Duration(first.start)}
	end := int64(0)
	for _, f := range k.flows {
		r.Ideal = max(r.Ideal, f.best)
		if f.end == none || end == none {
			end = none
			continue
		}
		end = max(end, f.end)
	}
	if end == none {
		return r
	}
	r.Completion = time.Duration(end - first.start)
	r.BusBandwidth = float64(k.messages*k.chunk) * 8e9 / float64(r.Completion)
	return r
}
