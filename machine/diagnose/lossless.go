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

// A roceFlow may join a network device and an RDMA device whose connection is not told.
type roceFlow struct {
	nics   []string // IDs
	netdev *topology.Netdev
	device string // "" if none is known
	port   *topology.RDMAPort
}

// roceFlows joins a network device without a known RDMA device with the only RDMA device without a known network
// device.
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

// lossCounters count lost or reordered packets.
var lossCounters = []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err",
	"roce_adp_retrans", "roce_adp_retrans_to", "seq_err_naks_rcvd", "oos_drop_count", "retransmits"}

// A priority has counters of a port.
type priority struct{ bytes, drops, received, sent uint64 } // received and sent are pauses

type lossyPort struct {
	roceFlow
	by     map[int]priority // priorities with counters
	at     int              // of RoCE, or -1
	why    string           // how it is known
	sure   bool             // whatever the sender does
	pfc    []int            // lossless priorities
	told   bool             // pfc is known
	lost   []string         // of RDMA packets
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

// place finds RoCE's priority by bytes, or by the port's trust.
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

// lossless returns false if RL095 says all.
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

func (p *lossyPort) mismatch() bool { return p.told && p.at >= 0 && !slices.Contains(p.pfc, p.at) }

func (p *lossyPort) drops() (n uint64) {
	for _, b := range p.by {
		n += b.drops
	}
	return n
}

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

// carriesRDMA reports whether the port carries RDMA, and whether it may: not if a counter is zero.
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

// sharesBuffer reports whether a priority shares the receive buffer of one without flow control.
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

// cnps counts notifications of congestion.
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

// maxFlowFacts bounds counters in the evidence.
const maxFlowFacts = 24

func listOr(list []int, none string) string {
	if len(list) == 0 {
		return none
	}
	return words.Join(list, ",")
}

func (p *lossyPort) remedy() string {
	prio := 3
	if len(p.pfc) > 0 {
		prio = p.pfc[0]
	}
	device := p.device
	if device == "" {
		device = "DEVICE"
	}
	// DSCP 26 with ECN, 106, is usual for priority 3; else the first one of the default map.
	class := prio<<5 | 2
	if prio == 3 {
		class = 106
	}
	return fmt.Sprintf("put RoCE into one lossless priority: mlnx_qos -i %s --trust dscp and PFC on %d; cma_roce_tos "+
		"-d %s -t %d and the same traffic class in programs (NCCL_IB_TC=%d, UCX_IB_TRAFFIC_CLASS=%d); a buffer for "+
		"priority %d; the same PFC, DSCP map and ECN on the switches", p.netdev.Name, prio, device, class, class, class,
		prio)
}

func lossyRoCE(v *view, add func(finding.Finding)) {
	for _, f := range v.roceFlows() {
		if out, ok := newLossyPort(f).lossless(); ok {
			add(out)
		}
	}
}

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
