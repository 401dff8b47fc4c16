package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// unknownNode is silent with one node.
func unknownNode(v *view, add func(finding.Finding)) {
	if !v.several {
		return
	}
	// A stated node shows that the numa_node files could be read.
	stated := slices.ContainsFunc(v.PCI, func(d topology.PCIDevice) bool {
		return d.NUMANode != nil && d.NUMASource == ""
	})
	fix := "update the firmware; until then find the node by measuring (numactl -N N) and pin by hand"
	if v.virtual {
		fix = "give the virtual machine a pcie-expander-bus per guest NUMA node and put the device behind a root " +
			"port on it"
	}
	unknown := "numa_node=-1"
	if !v.fromFiles() {
		unknown = "no NUMA node"
	}
	var lost, inherited []string // without a node, and with one from another source
	first := ""
	for i := range v.PCI {
		d := &v.PCI[i]
		read := stated || d.LocalCPUs != nil || v.Provenance.Kind == topology.SourceLive
		// For a guest, a far disk costs as much as a far NIC.
		nvme := d.Class != nil && d.Class.Sub() == subNVMe && !v.virtual
		if d.PF != nil || d.IsBridge() || d.Address.Function != 0 || !read || !v.isCard(d.Address) && !nvme {
			continue
		}
		switch {
		case d.NUMANode == nil:
			lost = append(lost, d.Address.String())
		case v.fromFiles() && (d.NUMASource == "parent" || d.NUMASource == "local_cpulist"):
			if inherited = append(inherited, d.Address.String()); first == "" {
				first = at(pci(d.Address), "numa_node=-1", fmt.Sprintf("node %d from %s", *d.NUMANode, d.NUMASource))
			}
		}
	}
	if len(inherited) > 0 {
		add(finding.Finding{Severity: finding.Info, Subject: strings.Join(inherited, ","), Evidence: first +
			moreDevices(inherited), Consequence: "rackless knows the node, but NCCL, MPI and libvirt read the " +
			"device's own file and place work anywhere", Fix: fix})
	}
	if len(lost) > 0 {
		add(finding.Finding{Severity: finding.Warning, Subject: strings.Join(lost, ","),
			Evidence: at("/sys/bus/pci/devices/"+lost[0], unknown) + moreDevices(lost) + "; " +
				at("/sys/devices/system/node", fmt.Sprintf("%d nodes", len(v.NUMANodes))),
			Consequence: "nothing can be placed near these devices: CPUs, memory and interrupts may be on the far node",
			Fix:         fix})
	}
}

func moreDevices(list []string) string {
	if len(list) >= 2 {
		return fmt.Sprintf(" (and %d more)", len(list)-1)
	}
	return ""
}

type pairing struct {
	gpu *topology.GPU
	nic *topology.NIC
	via topology.PathClass // over PCIe
}

// pairings returns each GPU with its nearest NIC. Among equally near cards it prefers the GPU's NUMA node, then the
// fewest GPUs, so that two GPUs far from two NICs are two cases.
func (v *view) pairings() []pairing {
	ids := make([]string, len(v.fabric))
	cards := make([]int, len(v.fabric)) // of the card's first function
	for i, n := range v.fabric {
		ids[i] = n.ID()
		cards[i] = slices.IndexFunc(v.fabric, func(o *topology.NIC) bool {
			return o == n || o.Address != nil && n.Address != nil && o.Address.SameDevice(*n.Address)
		})
	}
	taken := make([]int, len(v.fabric))
	var out []pairing
	for _, g := range v.gpus {
		best, bestClass := -1, topology.PathUnknown
		for i := range v.fabric {
			p := v.tree.Path(g.ID(), ids[i])
			class := p.Class
			// Data of a NIC goes over PCIe, despite another link.
			if class == topology.PathNVLink {
				class = p.PCIe
			}
			switch {
			case class == topology.PathUnknown:
			case best < 0, class < bestClass, class == bestClass && cmp.Or(
				cmp.Compare(off(g, v.fabric[i]), off(g, v.fabric[best])),
				cmp.Compare(taken[cards[i]], taken[cards[best]])) < 0:
				best, bestClass = i, class
			}
		}
		if best >= 0 {
			taken[cards[best]]++
			out = append(out, pairing{g, v.fabric[best], bestClass})
		}
	}
	return out
}

// off returns 0 on one NUMA node, else 1.
func off(g *topology.GPU, n *topology.NIC) int {
	if g.NUMANode != nil && n.NUMANode != nil && *g.NUMANode == *n.NUMANode {
		return 0
	}
	return 1
}

func gpuIDs(group []pairing) string {
	return strings.Join(lists.Map(group, func(p pairing) string { return p.gpu.ID() }), ",")
}

// A place is two NUMA nodes; -1 if unknown. Its pairs share a finding.
type place struct{ gpu, nic int }

func placeOf(p pairing) place {
	if p.gpu.Address == nil || p.nic.Address == nil {
		return place{-1, -1}
	}
	nodes := place{-1, -1}
	if p.gpu.NUMANode != nil {
		nodes.gpu = *p.gpu.NUMANode
	}
	if p.nic.NUMANode != nil {
		nodes.nic = *p.nic.NUMANode
	}
	return nodes
}

func farNIC(v *view, add func(finding.Finding)) { v.apart(topology.PathSYS, add) }

// otherRoot is a note, because on some processors this path is as fast as one switch.
func otherRoot(v *view, add func(finding.Finding)) { v.apart(topology.PathNODE, add) }

func (v *view) apart(class topology.PathClass, add func(finding.Finding)) {
	var same group.By[place, pairing]
	wrong := len(v.contradictions()) > 0
	for _, p := range v.pairings() {
		a, b := p.gpu.NUMANode, p.nic.NUMANode
		known := a != nil && b != nil
		// A tool that reports SYS on one node is wrong in one of them: see RL014.
		if class == topology.PathSYS && (known && *a == *b || !known && wrong) {
			continue
		}
		if p.via == class {
			same.Add(placeOf(p), p)
		}
	}
	for _, at := range same.Keys {
		f := v.far(same.Of(at)[0])
		f.Subject = gpuIDs(same.Of(at))
		add(f)
	}
}

// far is a note if the NIC's ports are slower than the path.
func (v *view) far(p pairing) finding.Finding {
	f := finding.Finding{Evidence: v.pathEvidence(p),
		Consequence: "transfers between GPU and NIC cross the interconnect between NUMA nodes", Fix: v.betterSlot(p)}
	before := ""
	if p.via == topology.PathNODE {
		f.Consequence = "transfers between GPU and NIC cross from one host bridge to another"
		before = "measure it first: on some machines this is as fast as one switch; if it is slow, "
	}
	f.Consequence += v.usual(p, p.via, topology.PathPIX)
	rate := v.rateOf(p.nic) / 8000
	path, known := topology.Expect(p.via, 16, 16)
	if e, ok := v.tree.Expect(topology.Path{A: p.gpu.ID(), B: p.nic.ID(), Class: p.via}); ok {
		path, known = e, true
	}
	if rate > 0 && known && rate <= path.GBpsMin {
		f.Severity = finding.Info
		f.Consequence += fmt.Sprintf("; the ports of the NIC have %.1f GB/s, which such a path carries: only the time "+
			"of small transfers grows", rate)
		before = "nothing is needed for bandwidth; for small transfers, "
	}
	f.Fix = before + f.Fix
	return f
}

// Apart returns a function that judges a pair at a path of class SYS or NODE as RL011 and RL012 do.
func Apart(h *topology.Host) func(*topology.GPU, *topology.NIC, topology.PathClass) finding.Finding {
	v := newView(h)
	return func(g *topology.GPU, n *topology.NIC, class topology.PathClass) finding.Finding {
		return v.far(pairing{g, n, class})
	}
}

// rateOf returns a card's Mb/s, or 0.
func (v *view) rateOf(n *topology.NIC) float64 {
	if n.Address != nil {
		return v.portRates(*n.Address)
	}
	if n.SpeedMbps != nil {
		return float64(*n.SpeedMbps)
	}
	return 0
}

// contradictions returns SYS paths between devices that the tool reported on one node.
func (v *view) contradictions() []topology.Path {
	nodes := map[string]*int{}
	for i := range v.GPUs {
		g := &v.GPUs[i]
		nodes[g.ID()] = g.NUMANode
	}
	for i := range v.NICs {
		n := &v.NICs[i]
		nodes[n.ID()] = n.NUMANode
	}
	return slices.DeleteFunc(slices.Clone(v.Reported), func(p topology.Path) bool {
		a, b := nodes[p.A], nodes[p.B]
		return p.Class != topology.PathSYS || a == nil || b == nil || *a != *b
	})
}

// contradicted finds a matrix as nvidia-smi prints it in a virtual machine, or if the kernel does not know the node of
// the host bridges.
func contradicted(v *view, add func(finding.Finding)) {
	paths := v.contradictions()
	if len(paths) == 0 {
		return
	}
	inferred := map[string]bool{}
	for i := range v.NICs {
		n := &v.NICs[i]
		inferred[n.ID()] = n.Address == nil && n.NUMANode != nil
	}
	facts := lists.Map(paths, func(p topology.Path) string {
		fact := fmt.Sprintf("path %s to %s: SYS on one NUMA node", p.A, p.B)
		if inferred[p.A] || inferred[p.B] {
			fact += " (the NIC's is inferred)"
		}
		return fact
	})
	slices.SortStableFunc(facts, func(a, b string) int { return len(b) - len(a) }) // inferred ones first
	f := finding.Finding{Subject: "host", Evidence: strings.Join(facts[:min(3, len(facts))], "; ") +
		moreDevices(facts[min(2, len(facts)-1):])}
	// The NUMA nodes may be wrong and the classes right: then only some GPUs have a NIC of their own.
	var near, far []pairing
	for _, p := range v.pairings() {
		switch {
		case p.via <= topology.PathPXB:
			near = append(near, p)
		case p.via == topology.PathSYS:
			far = append(far, p)
		}
	}
	if len(near) > 0 && len(far) > 0 {
		f.Consequence = fmt.Sprintf("which devices are near each other is not known; if the paths are right, %s "+
			"have a NIC "+
			"below a switch of their own, and %s have none and share those: traffic between machines is that of the "+
			"NICs, "+
			"not of the GPUs", gpuIDs(near), gpuIDs(far))
	}
	add(f)
}

func (v *view) pathEvidence(p pairing) string {
	pieces := make([]string, 0, 3)
	for _, d := range []struct {
		addr *topology.PCIAddr
		name string
		node *int
	}{{p.gpu.Address, p.gpu.Name, p.gpu.NUMANode}, {p.nic.Address, p.nic.Name, p.nic.NUMANode}} {
		facts := []string{node(d.node)}
		if d.node != nil && d.addr == nil && d.name == p.nic.Name {
			facts[0] += " (inferred from the GPUs near it)"
		}
		if d.addr != nil {
			if f := v.tree.Device(*d.addr); f != nil && f.NUMASource != "" && v.fromFiles() {
				facts[0] += " (from " + f.NUMASource + ")"
			}
			if root := v.tree.RootOf(*d.addr); root != "" {
				facts = append(facts, "root="+root)
			}
		}
		pieces = append(pieces, at(device(d.addr, d.name), facts...))
	}
	return all(append(pieces, fmt.Sprintf("path %s to %s: %s", p.gpu.ID(), p.nic.ID(), p.via))...)
}

// usual compares figures of a path with figures of one switch. It returns "" if a link is unknown.
func (v *view) usual(p pairing, now, better topology.PathClass) string {
	have, ok := v.tree.Expect(topology.Path{A: p.gpu.ID(), B: p.nic.ID(), Class: now})
	if !ok {
		return ""
	}
	gts, lanes := v.slowerLink(p)
	want, _ := topology.Expect(better, gts, lanes)
	limit := ""
	if have.Limit != nil {
		limit = ", limited by the link at " + have.Limit.String()
	}
	return fmt.Sprintf(": usually %g to %g GB/s%s and %g to %g us, where one switch gives %g to %g GB/s and %g to %g "+
		"us (expected for these links, not measured)", have.GBpsMin, have.GBpsMax, limit,
		have.UsecMin, have.UsecMax, want.GBpsMin, want.GBpsMax, want.UsecMin, want.UsecMax)
}

// slowerLink returns a rate under load, see [topology.Tree.Trained].
func (v *view) slowerLink(p pairing) (gts float64, lanes int) {
	a, _ := v.tree.Trained(v.tree.Device(*p.gpu.Address))
	if b, _ := v.tree.Trained(v.tree.Device(*p.nic.Address)); b.GBps() < a.GBps() {
		a = b
	}
	return a.GTs, a.Lanes
}

// usualRates are in Gb/s per GPU, by a word of the model's name.
//
// Source: the table of pairings in the H20 guide; if it has two values, the lower.
var usualRates = []struct {
	model string
	gbps  float64
}{
	{"GH200", 400}, {"B200", 800}, {"H200", 400}, {"H100", 400}, {"H20", 200}, {"A100", 200}, {"L40S", 200},
	{"6000 Ada", 200}, {"RTX 4090", 100},
}

// usualRate matches whole words: "GB200" is not a B200. It skips laptop GPUs, which share names with cards.
func usualRate(model string) (name string, gbps float64) {
	if strings.Contains(model, "Laptop") || strings.Contains(model, "Mobile") {
		return "", 0
	}
	for _, u := range usualRates {
		if topology.HasWord(model, u.model) {
			return u.model, u.gbps
		}
	}
	return "", 0
}

// slowNIC is only a note: jobs that stay on one machine need no network. GPUs with the same rate share a finding.
func slowNIC(v *view, add func(finding.Finding)) {
	type key struct {
		model string
		mbps  float64
	}
	var slow group.By[key, pairing]
	for _, p := range v.pairings() {
		model, usual := usualRate(p.gpu.Model)
		rate := v.rateOf(p.nic)
		if usual > 0 && rate > 0 && rate < usual*1000 {
			slow.Add(key{model, rate}, p)
		}
	}
	for _, k := range slow.Keys {
		p := slow.Of(k)[0]
		_, usual := usualRate(p.gpu.Model)
		where := p.nic.ID()
		if len(p.nic.Netdevs) > 0 {
			where = "/sys/class/net/" + p.nic.Netdevs[0]
		}
		add(finding.Finding{Subject: gpuIDs(slow.Of(k)),
			Evidence: all(at(device(p.gpu.Address, p.gpu.Name), "model="+p.gpu.Model),
				at(where, fmt.Sprintf("speed=%.0f", k.mbps))),
			Consequence: fmt.Sprintf("%.0f Gb/s for an %s, where machines of the kind have %.0f: jobs across "+
				"machines wait for the network sooner", k.mbps/1000, k.model, usual)})
	}
}
