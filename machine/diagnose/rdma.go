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

// isRoCE excludes iWARP by its node type (node_type_show in drivers/infiniband/core/sysfs.c).
func (p *rdmaPort) isRoCE() bool {
	kind := p.dev.NodeType
	return p.layer == topology.LinkEthernet && !strings.Contains(kind, "RNIC") && !strings.Contains(kind, "usNIC")
}

type rdmaPort struct {
	nic  *topology.NIC
	dev  *topology.RDMADevice
	port *topology.RDMAPort
	// layer is stated or derived, see [topology.Host.LinkLayer].
	layer string
}

func (p *rdmaPort) path() string {
	return fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", p.dev.Name, p.port.Number)
}

func (v *view) rdmaPorts() []rdmaPort {
	var out []rdmaPort
	for n, d := range v.RDMADevices() {
		for i := range d.Ports {
			p := &d.Ports[i]
			out = append(out, rdmaPort{n, d, p, v.LinkLayer(n, d, p)})
		}
	}
	return out
}

func gidTypesKnown(p *topology.RDMAPort) bool {
	return len(p.GIDs) > 0 && !slices.ContainsFunc(p.GIDs, func(g topology.GID) bool { return g.Type == "" })
}

func gidFacts(p *rdmaPort) string {
	facts := lists.Map(p.port.GIDs,
		func(g topology.GID) string { return fmt.Sprintf("gids/%d=%s (%s)", g.Index, g.GID, g.Type) })
	return at(p.path(), words.Few(facts, 3, " "))
}

// onlyV1 needs the type of every GID, because an unknown one may be v2.
func onlyV1(v *view, p rdmaPort, add func(finding.Finding)) {
	if !p.isRoCE() || p.port.State != "ACTIVE" || !gidTypesKnown(p.port) ||
		slices.ContainsFunc(p.port.GIDs, func(g topology.GID) bool { return g.IsV2() }) {
		return
	}
	add(finding.Finding{Subject: p.nic.ID(), Evidence: gidFacts(&p),
		Fix: "set the driver of " + p.dev.Name + " to RoCE v2 if the NIC has it; else use v1 at both " +
			"ends, on one segment"})
}

// noRoutableGID skips virtual functions, which get an address in the guest.
func noRoutableGID(v *view, p rdmaPort, add func(finding.Finding)) {
	// A port that is down has no address.
	if !p.isRoCE() || p.port.State != "ACTIVE" || p.nic.PF != nil || !gidTypesKnown(p.port) {
		return
	}
	v2, found, understood := false, false, true
	for i := range p.port.GIDs {
		g := &p.port.GIDs[i]
		if !g.IsV2() {
			continue
		}
		a := g.Addr() // without link-local addresses
		v2, found, understood = true, found || a.IsGlobalUnicast(), understood && a.IsValid()
	}
	if !v2 || found || !understood {
		return
	}
	add(finding.Finding{Subject: p.nic.ID(), Evidence: gidFacts(&p)})
}

// carrierOf returns a device with a carrier, or nil.
func carrierOf(p *rdmaPort) *topology.Netdev {
	if d := p.nic.Port(p.nic.NetdevOf(p.port)); d != nil && d.Carrier != nil && *d.Carrier {
		return d
	}
	return nil
}

// portDown needs proof that the link is up. A missing cable is not a fault.
func portDown(v *view, p rdmaPort, add func(finding.Finding)) {
	// Waiting InfiniBand ports are RL093.
	if p.port.State == "" || p.port.State == "ACTIVE" || p.layer != topology.LinkEthernet {
		return
	}
	netdev := carrierOf(&p)
	if p.port.PhysState != "LinkUp" && netdev == nil {
		return
	}
	evidence := p.states()
	if netdev != nil {
		evidence = all(evidence, at("/sys/class/net/"+netdev.Name, "carrier=1"))
	}
	add(finding.Finding{Subject: p.nic.ID(), Evidence: evidence})
}

func (p *rdmaPort) states(facts ...string) string {
	facts = append([]string{"state=" + p.port.State}, facts...)
	if p.port.PhysState != "" {
		facts = append(facts, "phys_state="+p.port.PhysState)
	}
	return at(p.path(), facts...)
}

// noSubnetManager finds a waiting port, and a virtual function without one. Any other port that is DOWN has no cable.
func noSubnetManager(v *view, p rdmaPort, add func(finding.Finding)) {
	// A port without a GUID is RL094.
	if p.layer != topology.LinkInfiniBand || zero(p.dev.NodeGUID) && p.nic.PF == nil {
		return
	}
	evidence := p.states("link_layer=InfiniBand")
	waits := p.port.State == "INIT" || p.port.State == "ARMED"
	switch {
	// An active physical function proves subnet manager and cable.
	case (waits || p.port.State == "DOWN") && p.nic.PF != nil && v.activeAt(*p.nic.PF):
		add(v.virtualPort(&p, evidence))
	case waits && (p.port.PhysState == "LinkUp" || p.port.PhysState == ""):
		add(finding.Finding{Severity: finding.Error, Subject: p.nic.ID(), Evidence: evidence,
			Consequence: "no traffic: the port has no address in the fabric",
			Fix:         "start a subnet manager (opensm) on the switch or on one host of the fabric"})
	}
}

// functionsDown finds virtual functions that are down while the physical one is up. A known RDMA port counts instead:
// RL093. A device not switched on is down too, so that on Ethernet only a missing carrier proves a fault.
func functionsDown(v *view, add func(finding.Finding)) {
	type downFunctions struct {
		down []string
		pf   *topology.Netdev
		ib   bool
	}
	var order []string
	found := map[string]*downFunctions{}
	for i := range v.NICs {
		n := &v.NICs[i]
		for j := range n.Ports {
			d := &n.Ports[j]
			pf := v.physical(n, d)
			if pf == nil || pf.Up() == nil || !*pf.Up() || d.Up() == nil || *d.Up() || portTold(n) {
				continue
			}
			ib := strings.HasPrefix(d.Name, "ib")
			if !ib && d.Carrier == nil && v.fromFiles() {
				continue
			}
			c := found[pf.Name]
			if c == nil {
				c = &downFunctions{pf: pf, ib: ib}
				found[pf.Name] = c
				order = append(order, pf.Name)
			}
			c.down = append(c.down, d.Name)
		}
	}
	for _, name := range order {
		c := found[name]
		f := finding.Finding{Subject: name, Evidence: all(at("/sys/class/net/"+name, "up"),
			at("/sys/class/net/"+c.down[0], "down")+moreDevices(c.down))}
		if !c.ib {
			f.Severity = finding.Info
			f.Fix = "ip link set NETDEV up for the function, ip link set " + name + " vf N state auto for its link; " +
				"in switchdev mode its representor has to be up too"
		}
		add(f)
	}
}

func portTold(n *topology.NIC) bool {
	return slices.ContainsFunc(n.Devices, func(d topology.RDMADevice) bool {
		return slices.ContainsFunc(d.Ports, func(p topology.RDMAPort) bool { return p.State != "" })
	})
}

// physical returns the network device of the physical function of d: the only one at its address, or the one that d is
// named after, else nil.
func (v *view) physical(n *topology.NIC, d *topology.Netdev) *topology.Netdev {
	if n.PF != nil {
		for i := range v.NICs {
			if o := &v.NICs[i]; o.Address != nil && *o.Address == *n.PF && len(o.Ports) == 1 {
				return &o.Ports[0]
			}
		}
	}
	name, _, ok := topology.VFInName(d.Name)
	if !ok {
		return nil
	}
	for i := range v.NICs {
		for j := range v.NICs[i].Ports {
			o := &v.NICs[i].Ports[j]
			if o.Name == name || strings.HasPrefix(o.Name, name+"np") {
				return o
			}
		}
	}
	return nil
}

func (v *view) virtualPort(p *rdmaPort, evidence string) finding.Finding {
	f := finding.Finding{Severity: finding.Warning, Subject: p.nic.ID(), Title: "virtual function has no port in " +
		"the fabric", Evidence: all(evidence, at(pci(*p.nic.PF), "port ACTIVE")), Consequence: "no traffic: the " +
		"physical function is active, so that the fabric has a subnet manager, and the virtual function has no port " +
		"of its own in it", Fix: "set node and port GUID of the function (ip link set NETDEV vf N node_guid GUID, " +
		"port_guid GUID, state auto), turn on virtualisation in the subnet manager (virt_enabled 2), and bind the " +
		"function again"}
	if zero(p.dev.NodeGUID) {
		f.Consequence += "; its node GUID is zero (RL094), which is why"
	}
	return f
}

func zero(guid string) bool { return guid != "" && strings.Trim(guid, "0:x") == "" }

// fewLanes finds one or two of four lanes, because of a splitter cable, a card of half the rate (HDR100), or a faulty
// cable.
func fewLanes(v *view, p rdmaPort, add func(finding.Finding)) {
	if p.layer != topology.LinkInfiniBand || p.port.State != "ACTIVE" || p.nic.PF != nil || p.port.Lanes < 1 ||
		p.port.Lanes > 2 || p.port.RateGbps == nil {
		return
	}
	whole := 4 / float64(p.port.Lanes) * *p.port.RateGbps
	add(finding.Finding{Subject: p.nic.ID(), Evidence: at(p.path(), fmt.Sprintf("rate=%g Gb/sec (%dX)",
		*p.port.RateGbps, p.port.Lanes)),
		Consequence: fmt.Sprintf("%d of 4 lanes: %g Gb/s, where four have %g", p.port.Lanes, *p.port.RateGbps, whole)})
}

func (v *view) activeAt(a topology.PCIAddr) bool {
	return slices.ContainsFunc(v.rdmaPorts(), func(p rdmaPort) bool {
		return p.nic.Address != nil && *p.nic.Address == a && p.port.State == "ACTIVE"
	})
}

// zeroGUID finds virtual functions: physical ones have a GUID from the firmware. Devices that are neither InfiniBand
// nor RoCE (such as EFA) have none.
func zeroGUID(v *view, add func(finding.Finding)) {
	for n, d := range v.RDMADevices() {
		read := at("/sys/class/infiniband/"+d.Name+"/node_guid", d.NodeGUID)
		switch {
		case !zero(d.NodeGUID), strings.HasSuffix(d.NodeType, "unspecified"):
		case n.PF != nil:
			add(finding.Finding{Subject: n.ID(),
				Evidence:    all(read, at(device(n.Address, n.Name), "physfn="+n.PF.String())),
				Consequence: "rdma_cm does not work on it, and programs that use it may crash",
				Fix: "set its MAC (RoCE) or GUIDs (InfiniBand) on " + n.PF.String() +
					", then unbind and bind the function"})
		case n.Address == nil && !v.fromFiles() && !topology.IsSoftRDMA(d.Name):
			add(finding.Finding{Subject: n.ID(), Evidence: read,
				Consequence: "it is a virtual function without a GUID: rdma_cm does not work on it, and on " +
					"InfiniBand its port gets no traffic",
				Fix: "set its MAC (RoCE) or GUIDs (InfiniBand) on the physical function, on the host, then " +
					"unbind and bind the function"})
		}
	}
}

// harmless counters are links that go down as the other end reboots, and congestion marks and notifications.
func harmless(counter string) bool {
	return counter == "link_downed" || named(counter, "cnp", "ecn", "slow_restart")
}

// portErrors is a note, because counters accumulate since the driver was loaded. lossyRoCE has the counters of some
// ports.
func portErrors(v *view, add func(finding.Finding)) {
	judged := v.judgedLossy()
	counts := func(n *topology.NIC, path string, counters map[string]uint64, counts func(string) bool) {
		var facts []string
		for _, name := range lists.Keys(counters) {
			if n := counters[name]; n > 0 && counts(name) {
				facts = append(facts, fmt.Sprintf("%s=%d", name, n))
			}
		}
		if len(facts) == 0 || judged[n.ID()] {
			return
		}
		add(finding.Finding{Subject: n.ID(),
			Evidence: at(path, words.Few(facts, 12, " ")),
			Consequence: "packets were lost or damaged since the driver was loaded; whether they still are, a second " +
				"look under load shows",
			Fix: "read them again after some load; if they grow, look at the cable, or at flow control (PFC, " +
				"DSCP) on NIC and switch"})
	}
	for _, p := range v.rdmaPorts() {
		counts(p.nic, p.path(), p.port.Counters, func(name string) bool { return !harmless(name) })
	}
	for i := range v.NICs {
		n := &v.NICs[i]
		for j := range n.Ports {
			counts(n, "ethtool -S "+n.Ports[j].Name, n.Ports[j].Counters, wireTrouble)
		}
	}
}

// wireTrouble leaves out packets that programs and filters drop.
func wireTrouble(counter string) bool {
	return !harmless(counter) && (strings.HasSuffix(counter, "_phy") ||
		named(counter, "out_of_buffer", "discards", "crc", "symbol", "no_buffer", "missed_errors"))
}

// noPeerMemory is a warning only without dma-buf, which works without the module.
func noPeerMemory(v *view, add func(finding.Finding)) {
	if !v.Kernel.ModulesKnown || v.Kernel.PeerMemory() != "" {
		return
	}
	var gpus []string
	severity := finding.Info
	for _, g := range v.gpus {
		if g.Driver != "nvidia" || g.NoPeers() || g.DMABuf != nil && *g.DMABuf {
			continue
		}
		if g.DMABuf != nil {
			severity = finding.Warning
		}
		gpus = append(gpus, g.ID())
	}
	i := slices.IndexFunc(v.fabric, func(n *topology.NIC) bool { return len(hardwareRDMA(n)) > 0 })
	if len(gpus) == 0 || i < 0 {
		return
	}
	n := v.fabric[i]
	f := finding.Finding{Severity: severity, Subject: strings.Join(gpus, ","), Evidence: all(at("/proc/modules",
		"no nvidia_peermem, no nv_peer_mem"), at("/sys/bus/pci/devices/"+gpus[0], "driver=nvidia")+moreDevices(gpus),
		at(device(n.Address, n.Name), "rdma="+hardwareRDMA(n)[0])), Consequence: "GPUDirect RDMA depends on dma-buf " +
		"(kernel 5.12, open kernel modules of NVIDIA); without it data is copied through the host",
		Fix: "modprobe nvidia-peermem, or test dma-buf with ib_write_bw --use_cuda=0 --use_cuda_dmabuf"}
	if severity == finding.Warning {
		f.Consequence = "the driver offers no dma-buf either: data between GPU and NIC is copied through the host"
		f.Fix = "modprobe nvidia-peermem (the driver must have been built after the RDMA stack)"
	}
	add(f)
}
