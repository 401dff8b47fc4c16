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

func (v *view) port(name string) (*topology.NIC, *topology.Netdev) {
	for i := range v.NICs {
		n := &v.NICs[i]
		if p := n.Port(name); p != nil {
			return n, p
		}
	}
	return nil, nil
}

func (v *view) bondsRDMA(b *topology.Bond) bool {
	return len(b.RDMA) > 0 || slices.ContainsFunc(b.Members, func(m string) bool {
		n, _ := v.port(m)
		return n != nil && v.isFabric(n)
	})
}

func bondFact(b *topology.Bond) string {
	facts := []string{"mode=" + b.Mode}
	if b.HashPolicy != "" {
		facts = append(facts, "xmit_hash_policy="+b.HashPolicy)
	}
	facts = append(facts, "slaves="+strings.Join(b.Members, " "))
	return at("/sys/class/net/"+b.Name+"/bonding", facts...)
}

// oneLink needs layer 4 hashes, which distinguish the one UDP port of each queue pair.
func oneLink(v *view, b *topology.Bond, add func(finding.Finding)) {
	// active-backup uses one member, and balance-rr reorders packets anyway.
	if b.Mode != "802.3ad" && b.Mode != "balance-xor" || len(b.Members) < 2 || !v.bondsRDMA(b) {
		return
	}
	f := finding.Finding{Severity: finding.Info, Subject: b.Name, Evidence: bondFact(b),
		Consequence: "one queue pair or connection has the rate of one member" + v.memberRate(b),
		Fix:         "test with several queue pairs (ib_write_bw -q 4; NCCL_IB_QPS_PER_CONNECTION=4)"}
	if slices.Contains([]string{"layer2", "layer2+3", "vlan+srcmac"}, b.HashPolicy) {
		f.Severity = finding.Warning
		f.Consequence = "all traffic between two hosts takes one member" + v.memberRate(b) +
			", however many queue pairs there are, unless the NIC spreads them itself"
		f.Fix = "ip link set " + b.Name + " type bond xmit_hash_policy layer3+4, and the same on the " +
			"switch; then " + f.Fix
	}
	add(f)
}

// memberRate returns " (200 Gb/s)" of the fastest.
func (v *view) memberRate(b *topology.Bond) string {
	var best int64
	for _, m := range b.Members {
		if _, p := v.port(m); p != nil && p.SpeedMbps != nil {
			best = max(best, *p.SpeedMbps)
		}
	}
	if best > 0 {
		return fmt.Sprintf(" (%g Gb/s)", float64(best)/1000)
	}
	return ""
}

// unequalMembers skips members that are down, without a speed.
func unequalMembers(v *view, b *topology.Bond, add func(finding.Finding)) {
	var facts []string
	speeds := map[int64]bool{}
	for _, m := range b.Members {
		if _, p := v.port(m); p != nil && p.SpeedMbps != nil {
			speeds[*p.SpeedMbps] = true
			facts = append(facts, at("/sys/class/net/"+m, fmt.Sprintf("speed=%d", *p.SpeedMbps)))
		}
	}
	if len(speeds) > 1 {
		add(finding.Finding{Subject: b.Name, Evidence: all(bondFact(b), words.Few(facts, 4, "; "))})
	}
}

// rdmaOffBond finds bonds without an RDMA device, which a NIC that supports the bond would make.
func rdmaOffBond(v *view, b *topology.Bond, add func(finding.Finding)) {
	// mlx5 and bnxt_re make one for a bond of one card (RoCE LAG).
	if len(b.RDMA) > 0 || len(b.Members) < 2 {
		return // the NIC follows the bond
	}
	var devices []string
	var cards []topology.PCIAddr
	allRDMA := true
	for _, m := range b.Members {
		n, _ := v.port(m)
		if n == nil || n.Address == nil || len(hardwareRDMA(n)) == 0 {
			allRDMA = false
			continue
		}
		devices = append(devices, hardwareRDMA(n)...)
		cards = append(cards, *n.Address)
	}
	different := allRDMA && slices.ContainsFunc(cards, func(a topology.PCIAddr) bool { return !a.SameDevice(cards[0]) })
	var why string
	switch {
	// No NIC follows these modes.
	case slices.Contains([]string{"balance-rr", "broadcast", "balance-tlb", "balance-alb"}, b.Mode):
		why = "in this mode"
	case slices.Contains([]string{"802.3ad", "balance-xor", "active-backup"}, b.Mode) && different:
		why = "across different cards"
	}
	if len(devices) == 0 || why == "" {
		return
	}
	add(finding.Finding{Subject: b.Name,
		Evidence:    all(bondFact(b), at("/sys/class/infiniband", strings.Join(lists.Distinct(devices), " "))),
		Consequence: "NICs do not follow a bond " + why + ": RDMA stays on each port alone, without its failover"})
}

// roceHeaders are GRH 40, UDP 8, BTH 12, XRC 4, atomic header 28, ICRC 4 (iboe_get_mtu in include/rdma/ib_addr.h).
const roceHeaders = 96

func roceMTU(mtu int) int {
	return lists.Find([]int{4096, 2048, 1024, 512, 256}, func(m int) bool { return mtu-roceHeaders >= m })
}

func (v *view) mtuOf(name string) *int {
	if d := v.Netdev(name); d != nil && d.MTU != nil {
		return d.MTU
	}
	if b := v.Bond(name); b != nil {
		return b.MTU
	}
	return nil
}

// smallMTU makes one finding per MTU, which usually has one cause.
func smallMTU(v *view, add func(finding.Finding)) {
	type cut struct {
		netdevs, subjects []string
		rdma              string
	}
	byMTU := map[int]*cut{}
	for _, p := range v.rdmaPorts() {
		netdev := p.nic.NetdevOf(p.port)
		mtu := v.mtuOf(netdev)
		if !p.isRoCE() || p.port.State != "ACTIVE" || mtu == nil || *mtu <= 0 || roceMTU(*mtu) >= 4096 {
			continue
		}
		c := byMTU[*mtu]
		if c == nil {
			c = &cut{rdma: p.path()}
			byMTU[*mtu] = c
		}
		c.netdevs = append(c.netdevs, netdev)
		c.subjects = lists.Add(c.subjects, p.nic.ID())
	}
	for _, mtu := range lists.Keys(byMTU) {
		c, got := byMTU[mtu], roceMTU(mtu)
		f := finding.Finding{Subject: strings.Join(c.subjects, ","),
			Evidence: all(at("/sys/class/net/"+c.netdevs[0], fmt.Sprintf("mtu=%d", mtu))+moreDevices(c.netdevs),
				at(c.rdma, "state=ACTIVE link_layer=Ethernet")),
			Consequence: fmt.Sprintf("the RDMA MTU is %d, so a message takes %d times the packets; peers with "+
				"another MTU may hang", got, 4096/max(got, 1)),
			Fix: "set the MTU to 4200 on both ends and on the switches between"}
		if got == 0 {
			f.Consequence = "no RDMA MTU fits: the port cannot carry RDMA"
		}
		add(f)
	}
}

func (v *view) interruptsOf(n *topology.NIC) []*topology.IRQ {
	var out []*topology.IRQ
	for i := range v.IRQs {
		q := &v.IRQs[i]
		// Device is the function's address or, with mlx5, has it within ("mlx5_comp3@pci:0000:41:00.0"), or is the name
		// of the network device. The hyphen keeps eth1 from matching eth10.
		of := n.Address != nil && strings.Contains(q.Device, n.Address.String()) ||
			slices.ContainsFunc(n.Netdevs, func(s string) bool { return strings.HasPrefix(q.Device+"-", s+"-") })
		if of && !q.CPUs.IsEmpty() && served(q) > 0 && !v.tree.ForGuest(q.Device) {
			out = append(out, q)
		}
	}
	return out
}

// Drivers have a few interrupts for commands and events.
const enoughInterrupts = 4

// oneCPU compares affinities rather than counts, to include idle NICs.
func oneCPU(v *view, n *topology.NIC, add func(finding.Finding)) {
	qs := v.interruptsOf(n)
	if len(qs) < enoughInterrupts || v.CPUs.Online.Len() < 2 {
		return
	}
	cpu := qs[0].CPUs
	if cpu.Len() != 1 || slices.ContainsFunc(qs, func(q *topology.IRQ) bool { return !q.CPUs.Equal(cpu) }) {
		return
	}
	add(finding.Finding{Subject: n.ID(), Evidence: irqFact(qs[0]) + fmt.Sprintf(" (and %d more)", len(qs)-1),
		Consequence: "CPU " + cpu.String() + " does the receive work of all queues: small packets and TCP stop at " +
			"what it can do"})
}

// farInterrupts needs all interrupts to be far, because drivers leave some queues to far CPUs on purpose.
func farInterrupts(v *view, n *topology.NIC, add func(finding.Finding)) {
	if !v.several || n.NUMANode == nil {
		return
	}
	home := v.NUMANode(*n.NUMANode)
	if home == nil || home.CPUs.IsEmpty() {
		return
	}
	near := home.CPUs
	qs := v.interruptsOf(n)
	if len(qs) == 0 || slices.ContainsFunc(qs, func(q *topology.IRQ) bool { return q.CPUs.Overlaps(near) }) {
		return
	}
	add(finding.Finding{Subject: n.ID(),
		Evidence: all(irqFact(qs[0])+fmt.Sprintf(" (and %d more)", len(qs)-1), at(device(n.Address, n.Name),
			node(n.NUMANode)), at(nodeFile(*n.NUMANode, "cpulist"), near.String())),
		Fix: "keep some of CPUs " + near.String() + " for the host and bind the interrupts to them"})
}

// onlyNIC is a note: with a second card the host can move its route.
func onlyNIC(v *view, add func(finding.Finding)) {
	if len(v.fabric) == 0 || v.fabric[0].Address == nil || v.virtual {
		return
	}
	card := *v.fabric[0].Address
	if slices.ContainsFunc(v.fabric, func(n *topology.NIC) bool {
		return n.Address == nil || !n.Address.SameDevice(card)
	}) {
		return
	}
	needed := v.needed()
	for _, n := range v.fabric {
		if need, ok := needed[*n.Address]; ok && need.what == "network" {
			add(finding.Finding{Subject: n.ID(), Evidence: at(pci(*n.Address), need.how)})
			return
		}
	}
}
