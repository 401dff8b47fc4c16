package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A roceFlow is a port of RoCE with its accounts of priorities and flow control. They may be of a network device and
// of an RDMA device whose connection is not told.
type roceFlow struct {
	nics   []string // IDs
	netdev *topology.Netdev
	device string // of RDMA; "" if none is known
	port   *topology.RDMAPort
}

// roceFlows returns the ports that have priorities in their accounts. A network device without a known RDMA device is
// joined with the only RDMA device whose network device is not known.
func (v *view) roceFlows() []roceFlow {
	var out, bare []roceFlow
	for i := range v.NICs {
		n := &v.NICs[i]
		var ports []roceFlow
		for d := range n.Devices {
			for p := range n.Devices[d].Ports {
				if port := &n.Devices[d].Ports[p]; port.LinkLayer != "InfiniBand" {
					ports = append(ports, roceFlow{device: n.Devices[d].Name, port: port})
				}
			}
		}
		for j := range n.Ports {
			d := &n.Ports[j]
			if d.QoS == nil && len(d.Flow) == 0 || len(n.Devices) > 0 && len(ports) == 0 {
				continue
			}
			f := roceFlow{nics: []string{n.ID()}, netdev: d}
			if len(ports) == 1 {
				f.device, f.port = ports[0].device, ports[0].port
			}
			out = append(out, f)
		}
		if len(n.Ports) == 0 && len(ports) == 1 {
			ports[0].nics = []string{n.ID()}
			bare = append(bare, ports[0])
		}
	}
	if len(out) == 1 && out[0].port == nil && len(bare) == 1 {
		out[0].nics = append(out[0].nics, bare[0].nics...)
		out[0].device, out[0].port = bare[0].device, bare[0].port
	}
	return out
}

// lossCounters count packets of RDMA that were lost on the way, or came in another order.
var lossCounters = []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err",
	"roce_adp_retrans", "roce_adp_retrans_to", "seq_err_naks_rcvd", "oos_drop_count", "retransmits"}

// A priority is an Ethernet priority of a port, by its counters.
type priority struct{ bytes, drops, received, sent uint64 } // received and sent are pauses

// A lossyPort is the judgement of a roceFlow.
type lossyPort struct {
	roceFlow
	by     map[int]priority // priorities with counters
	at     int              // the priority of RoCE, or -1
	why    string           // how it is known
	sure   bool             // RoCE is in it whatever the sender does
	pfc    []int            // lossless priorities
	told   bool             // pfc is known
	lost   []string         // counters of lost packets of RDMA
	storms uint64
}

func newLossyPort(f roceFlow) *lossyPort {
	p := &lossyPort{roceFlow: f, by: map[int]priority{}, at: -1}
	for name, n := range f.netdev.Flow {
		if prio, what, ok := topology.FlowOf(name); ok {
			b := p.by[prio]
			switch {
			case what == "bytes":
				b.bytes += n
			case what == "drops":
				b.drops += n
			case what == "pause" && strings.Contains(name, "rx_"):
				b.received += n
			case what == "pause":
				b.sent += n
			}
			p.by[prio] = b
		} else if strings.Contains(name, "storm_error") {
			p.storms += n
		}
	}
	if f.port != nil {
		for _, name := range lists.Keys(f.port.Counters) {
			if n := f.port.Counters[name]; n > 0 && slices.Contains(lossCounters, name) {
				p.lost = append(p.lost, fmt.Sprintf("%s=%d", name, n))
			}
		}
	}
	if q := f.netdev.QoS; q != nil {
		p.pfc, p.told = q.PFC, q.PFC != nil
	}
	p.place()
	return p
}

// place finds the priority of RoCE: by the counters of bytes, or by the trust of the port.
func (p *lossyPort) place() {
	q := p.netdev.QoS
	var total, most uint64
	top, counted := 0, 0
	for _, prio := range lists.Keys(p.by) {
		b := p.by[prio]
		total += b.bytes
		if counted++; b.bytes > most {
			top, most = prio, b.bytes
		}
	}
	switch {
	case q != nil && q.Trust == "dscp" && p.port != nil && p.port.TOS != nil:
		dscp := *p.port.TOS >> 2
		prio, mapped := q.DSCP[dscp]
		if !mapped {
			prio = dscp >> 3 // the default of mlx5
		}
		p.at, p.sure, p.why = prio, true, fmt.Sprintf("trust is dscp, and its DSCP is %d", dscp)
	case counted > 1 && most > 0 && most >= total-total/100:
		p.at, p.sure, p.why = top, true, "all bytes are, by the counters"
	case q != nil && q.Trust == "pcp":
		p.at, p.why = 0, "trust is pcp, so that packets without a VLAN tag are there, whatever their DSCP"
		p.sure = p.by[0].received+p.by[0].sent > 0
	}
}

// lossless judges a port. It returns false if there is nothing to say beyond RL095.
func (p *lossyPort) lossless() (finding.Finding, bool) {
	known, may := p.carriesRDMA()
	f := finding.Finding{Subject: strings.Join(p.nics, ","), Severity: finding.Warning, Evidence: p.evidence(),
		Consequence: strings.Join(slices.Concat(p.placed(known), p.losses()), "; "), Fix: p.remedy()}
	drops := p.drops()
	lossy := drops > 0 || len(p.lost) > 0
	switch mismatch := p.mismatch(); {
	case !known && (!may || p.told || !p.sure || p.at != 0):
		return f, false // a port of Ethernet alone
	case known && (drops > 0 || p.storms > 0 || mismatch && (lossy || p.sure && len(p.pfc) > 0) ||
		p.at >= 0 && !p.told && lossy):
		return f, true
	case !known, mismatch && len(p.pfc) > 0, p.at == 0 && !p.told && p.sure:
		f.Severity, f.Title = finding.Info, "RoCE may not be in a lossless priority"
		return f, true
	}
	return f, false
}

// mismatch reports whether RoCE is in a priority that is not lossless.
func (p *lossyPort) mismatch() bool { return p.told && p.at >= 0 && !slices.Contains(p.pfc, p.at) }

func (p *lossyPort) drops() (n uint64) {
	for _, b := range p.by {
		n += b.drops
	}
	return n
}

// placed says in which priority RoCE is, and which ones are lossless.
func (p *lossyPort) placed(known bool) []string {
	roce, pfc := "RoCE is", words.Join(p.pfc, ", ")
	if !known {
		roce = "RoCE, if this port carries any, is"
	}
	roce = fmt.Sprintf("%s in priority %d (%s)", roce, p.at, p.why)
	switch {
	case p.mismatch() && len(p.pfc) == 0:
		return []string{roce + ", and no priority has flow control (PFC)"}
	case p.mismatch():
		return []string{roce + ", and flow control (PFC) is on priority " + pfc + " only"}
	case p.at >= 0 && !p.told:
		return []string{roce + "; which priority is lossless is not told"}
	case p.at >= 0:
		return []string{roce + ", which has flow control (PFC)"}
	case len(p.pfc) > 0:
		return []string{"flow control (PFC) is on priority " + pfc + "; in which one RoCE is, is not told"}
	}
	return nil
}

// losses returns the facts of the counters: drops and pauses by priority, storms, lost packets and congestion.
func (p *lossyPort) losses() (says []string) {
	for _, prio := range lists.Keys(p.by) {
		b, lossless := p.by[prio], slices.Contains(p.pfc, prio)
		if b.drops > 0 {
			say := fmt.Sprintf("%d packets were dropped in priority %d", b.drops, prio)
			if lossless {
				say += " although it has flow control"
			}
			if lossless && p.sharesBuffer(prio) {
				say += ": it has no buffer of its own"
			}
			says = append(says, say)
		}
		if b.received+b.sent > 0 && p.told && !lossless {
			says = append(says, fmt.Sprintf("there were pauses in priority %d (%d received, %d sent), which has "+
				"no flow "+
				"control here", prio, b.received, b.sent))
		}
	}
	if p.storms > 0 {
		says = append(says, fmt.Sprintf("pause storms were cut off %d times, after which packets are "+
			"dropped", p.storms))
	}
	if len(p.lost) > 0 {
		says = append(says, "packets of RDMA were lost or came out of order: "+strings.Join(p.lost, ", "))
	}
	if n, ok := p.cnps(); ok && n == 0 && (p.drops() > 0 || len(p.lost) > 0) {
		says = append(says, "no congestion notification was sent: ECN is off on the way, or on this port")
	}
	return says
}

// carriesRDMA reports whether the port is known to carry RDMA, and whether it may: a counter of RDMA that is zero says
// that it does not.
func (p *lossyPort) carriesRDMA() (known, may bool) {
	rdma, counted := uint64(0), false
	for name, n := range p.netdev.Flow {
		if strings.Contains(name, "vport_rdma") {
			rdma, counted = rdma+n, true
		}
	}
	known = p.port != nil || rdma > 0 || len(p.pfc) > 0
	return known, known || !counted
}

// sharesBuffer reports whether a priority has the receive buffer of one without flow control.
func (p *lossyPort) sharesBuffer(prio int) bool {
	q := p.netdev.QoS
	if q == nil || prio >= len(q.Buffers) {
		return false
	}
	for other, b := range q.Buffers {
		if b == q.Buffers[prio] && !slices.Contains(q.PFC, other) {
			return true
		}
	}
	return false
}

// cnps returns the number of notifications of congestion, and whether it is known.
func (p *lossyPort) cnps() (n uint64, ok bool) {
	if p.port == nil {
		return 0, false
	}
	for name, value := range p.port.Flow {
		if strings.HasSuffix(name, "cnp_sent") || strings.HasSuffix(name, "cnp_handled") {
			n, ok = n+value, true
		}
	}
	return n, ok
}

// evidence has all facts about the port: its settings and its counters.
func (p *lossyPort) evidence() string {
	var parts []string
	if q := p.netdev.QoS; q != nil {
		var facts []string
		if q.Trust != "" {
			facts = append(facts, "trust="+q.Trust)
		}
		if q.PFC != nil {
			facts = append(facts, "pfc="+listOr(q.PFC, "none"))
		}
		if q.Buffers != nil {
			facts = append(facts, "buffers="+words.Join(q.Buffers, ","))
		}
		parts = append(parts, at("mlnx_qos "+p.netdev.Name, facts...))
	}
	if p.port != nil && p.port.TOS != nil {
		parts = append(parts, at("cma_roce_tos "+p.device, fmt.Sprint(*p.port.TOS)))
	}
	var facts []string
	counters := map[string]uint64{}
	for name, n := range p.netdev.Counters {
		if wireTrouble(name) {
			counters[name] = n
		}
	}
	for name, n := range p.netdev.Flow {
		if _, what, ok := topology.FlowOf(name); n > 0 && !(ok && what == "packets") {
			counters[name] = n
		}
	}
	for _, name := range lists.Keys(counters) {
		facts = append(facts, fmt.Sprintf("%s=%d", name, counters[name]))
	}
	if len(facts) > 0 {
		parts = append(parts, at("ethtool -S "+p.netdev.Name, words.Few(facts, maxFlowFacts, " ")))
	}
	if p.port != nil {
		facts = nil
		for _, name := range lists.Keys(p.port.Counters) {
			if n := p.port.Counters[name]; n > 0 && !harmless(name) {
				facts = append(facts, fmt.Sprintf("%s=%d", name, n))
			}
		}
		for _, name := range lists.Keys(p.port.Flow) {
			facts = append(facts, fmt.Sprintf("%s=%d", name, p.port.Flow[name]))
		}
		if len(facts) > 0 {
			parts = append(parts, at(fmt.Sprintf("rdma statistic %s/%d", p.device, p.port.Number), facts...))
		}
	}
	return all(parts...)
}

// maxFlowFacts bounds the counters of a network device in the evidence: some for each of eight priorities.
const maxFlowFacts = 24

func listOr(list []int, none string) string {
	if len(list) == 0 {
		return none
	}
	return words.Join(list, ",")
}

// remedy returns the fix: one priority for RoCE, lossless at both ends and on all switches.
func (p *lossyPort) remedy() string {
	prio := 3
	if len(p.pfc) > 0 {
		prio = p.pfc[0]
	}
	device := p.device
	if device == "" {
		device = "DEVICE"
	}
	// DSCP 26 with ECN, 106, is usual for priority 3; else the first one that the default map has in the priority.
	class := prio<<5 | 2
	if prio == 3 {
		class = 106
	}
	return fmt.Sprintf("put RoCE into one lossless priority: mlnx_qos -i %s --trust dscp and PFC on %d; cma_roce_tos "+
		"-d %s -t %d and the same traffic class in programs (NCCL_IB_TC=%d, UCX_IB_TRAFFIC_CLASS=%d); a buffer for "+
		"priority %d; the same PFC, DSCP map and ECN on the switches", p.netdev.Name, prio, device, class, class, class,
		prio)
}

// lossyRoCE finds ports on which RoCE is not in a lossless priority, or on which a lossless priority drops.
func lossyRoCE(v *view, add func(finding.Finding)) {
	for _, f := range v.roceFlows() {
		if out, ok := newLossyPort(f).lossless(); ok {
			add(out)
		}
	}
}

// judgedLossy returns the IDs of NICs whose counters lossyRoCE judges.
func (v *view) judgedLossy() map[string]bool {
	out := map[string]bool{}
	for _, f := range v.roceFlows() {
		if _, ok := newLossyPort(f).lossless(); ok {
			for _, id := range f.nics {
				out[id] = true
			}
		}
	}
	return out
}
