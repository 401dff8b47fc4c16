package diagnose

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

func rdmaRules() []rule {
	return []rule{
		{Check{
			ID: "RL090", Title: "only RoCE v1",
			Severity: Warning,
			Summary:  "All GIDs of an active RoCE port are of type RoCE v1.",
			Reads: []string{"/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
				"/sys/class/infiniband/*/ports/*/gids/*"},
			Means: "RoCE v1 is Ethernet without IP: it is not routed, and peers that use v2 cannot talk to it. NICs " +
				"since ConnectX-4 list each " +
				"address twice, once per version. A table with v1 alone belongs to an older NIC, or to a driver that " +
				"was told to do v1 only.",
			Fix: "ConnectX-3 Pro with NVIDIA's own driver package: the parameter roce_mode of mlx4_core. ConnectX-3 " +
				"and older only have v1: then both ends must " +
				"use it, on one segment. For others update driver and firmware.",
			Sources: []string{"NVIDIA/nccl#769", "NVIDIA/nccl#426", "EPYC lab (GID table)"},
		}, onlyV1},
		{Check{
			ID: "RL091", Title: "no routable RoCE v2 GID",
			Severity: Info,
			Summary:  "An active RoCE port has v2 GIDs, and none of them stands for an IPv4 or a global IPv6 address.",
			Reads: []string{"/sys/class/infiniband/*/ports/*/gids/*",
				"/sys/class/infiniband/*/ports/*/gid_attrs/types/*, ndevs/*"},
			Means: "GIDs follow the addresses of the network device. With the link-local one alone, connections work " +
				"at best within the segment; programs " +
				"that pick it end with `modify QP to RTR` timed out, or completion error 12. For a port that only " +
				"virtual machines will use it does " +
				"not matter.\n\nThe index of the right entry differs from NIC to NIC (often 3). Choose it by " +
				"content, never by number.",
			Fix: "Give the network device its address: `ip addr add 10.0.0.1/24 dev NETDEV`. `rackless inspect " +
				"-o json` and `show_gids` list the table.",
			Sources: []string{"NVIDIA/nccl#769", "NVIDIA/nccl#426", "uccl-project/uccl#803", "linux-rdma/perftest#44"},
		}, noRoutableGID},
		{Check{
			ID: "RL092", Title: "RDMA port is not active although the link is up",
			Severity: Warning,
			Summary:  "An RDMA port on Ethernet is down while the link has a carrier.",
			Reads:    []string{"/sys/class/infiniband/*/ports/*/state, phys_state", "/sys/class/net/*/carrier"},
			Means: "The cable is fine and RDMA cannot use it: the driver's RDMA part has an error, the port is in a " +
				"bond that took it over, or the network " +
				"device was set down after the link came up. A port without a cable gives no finding.",
			Fix: "`ip link set NETDEV up`; look at `dmesg` for the driver; `rdma link` shows the state. Reload " +
				"the RDMA module (`modprobe -r mlx5_ib; modprobe mlx5_ib`).",
			Sources: []string{"k8snetworkplumbingwg/sriov-network-device-plugin#269"},
		}, portDown},
		{Check{
			ID: "RL093", Title: "InfiniBand port waits for a subnet manager",
			Severity: Error, Also: []Severity{Warning},
			Summary: "The link is up and the port stays in INIT or ARMED. A warning when it is a virtual function " +
				"that is down while its physical " +
				"function is active.",
			Reads: []string{"/sys/class/infiniband/*/ports/*/state, phys_state, link_layer",
				"ip link show (GUIDs of virtual functions)"},
			Means: "InfiniBand needs one subnet manager per fabric, which gives out addresses and makes ports " +
				"active. None is running, or it does not " +
				"reach this port. A virtual function needs more: a subnet manager that knows virtualisation, and " +
				"node and port GUIDs.",
			Fix: "Start one, on the switch or on one host: `systemctl start opensm`. Two hosts back to back need one " +
				"too. For virtual functions set " +
				"`virt_enabled 2` in opensm.conf, then:\n\n    ip link set NETDEV vf N node_guid GUID\n    ip link " +
				"set NETDEV vf N port_guid GUID\n    ip link set NETDEV vf N state auto\n\n" +
				"and bind the function again.",
			Sources: []string{"k8snetworkplumbingwg/sriov-network-device-plugin#269",
				"k8snetworkplumbingwg/sriov-network-operator#307"},
		}, noSubnetManager},
		{Check{
			ID: "RL094", Title: "node GUID of a virtual function is zero",
			Severity: Error,
			Summary:  "A virtual function's RDMA device has the node GUID 0000:0000:0000:0000.",
			Reads:    []string{"/sys/class/infiniband/*/node_guid", "/sys/bus/pci/devices/*/physfn"},
			Means: "The connection manager tells devices apart by their GUID: rdma_cm fails, and `ib_write_bw -R` " +
				"has been seen to crash. The function was " +
				"created without a MAC address (RoCE) or GUIDs (InfiniBand), which the node GUID is made from.",
			Fix: "Set it on the physical function, and then bind the virtual one again: it reads the GUID only " +
				"then.\n\n" +
				"    ip link set PF vf N mac 02:00:00:00:00:01\n    echo ADDRESS > " +
				"/sys/bus/pci/drivers/mlx5_core/unbind\n    echo ADDRESS > /sys/bus/pci/drivers/mlx5_core/bind",
			Sources: []string{"k8snetworkplumbingwg/sriov-network-operator#267", "openshift/sriov-network-operator#237",
				"openshift/sriov-network-operator#243"},
		}, zeroGUID},
		{Check{
			ID: "RL095", Title: "RDMA port counts errors",
			Severity: Info,
			Summary: "Error or discard counters of an RDMA port are not zero. Links that went down (link_downed) and " +
				"notifications of congestion do not " +
				"count.",
			Reads: []string{"/sys/class/infiniband/*/ports/*/counters/*, hw_counters/*"},
			Means: "The counters run since the driver was loaded, so a figure alone does not say when. symbol_error, " +
				"port_rcv_errors and " +
				"local_link_integrity_errors: a bad cable, module or port. out_of_sequence, packet_seq_err, " +
				"local_ack_timeout_err, implied_nak_seq_err: packets are lost on the way, " +
				"a lossy fabric with flow control that does not match. rnr_nak_retry_err and rx_*discard: the " +
				"receiver is too slow.",
			Fix: "Read them twice, with load between. If they grow: change the cable or module for the first kind; " +
				"for the second set trust to DSCP and " +
				"PFC on the priority in use, on NIC and switch alike (`mlnx_qos -i NETDEV`), and the traffic class " +
				"in the test.",
			Sources: []string{"openucx/ucx#6000", "NVIDIA/nccl#2383"},
		}, portErrors},
		{Check{
			ID: "RL096", Title: "no peer memory module for GPUDirect RDMA",
			Severity: Warning, Also: []Severity{Info},
			Summary: "NVIDIA GPUs and RDMA devices share the host, and neither nvidia_peermem nor nv_peer_mem is " +
				"loaded. A note, because dma-buf may do " +
				"the same; a warning where it is known that it cannot.",
			Reads: []string{"/proc/modules", "/sys/module", "/sys/bus/pci/devices/*/driver"},
			Means: "Without one of the two ways, NICs cannot reach GPU memory: data is copied through the host, or " +
				"`Couldn't allocate MR` ends the test. The " +
				"module is the older way. With kernel 5.12 or newer, NVIDIA's open kernel modules, and a recent " +
				"rdma-core, dma-buf needs no " +
				"module: then there is nothing to do. Both ends need a way of their own.",
			Fix: "    modprobe nvidia-peermem\n\nThe NVIDIA driver must have been built after the RDMA stack " +
				"(MLNX_OFED), or the module does not load. To see whether dma-buf " +
				"works: `ib_write_bw --use_cuda=0 --use_cuda_dmabuf`. NVIDIA supports neither way on GeForce cards.",
			Sources: []string{"GPUDirect manual (the module on every node)", "linux-rdma/perftest#126",
				"linux-rdma/perftest#280", "linux-rdma/perftest#269",
				"NVIDIA/nccl#1939", "flagos-ai/FlagCX#61", "deepseek-ai/DeepEP#55"},
		}, noPeerMemory},
	}
}

// isRoCE reports whether a port carries RDMA over Ethernet as RoCE. iWARP devices, which have a
// link layer of Ethernet too, say so in their node type.
//
// Source: node_type_show in drivers/infiniband/core/sysfs.c.
func isRoCE(d *topology.RDMADevice, p *topology.RDMAPort) bool {
	return p.LinkLayer == "Ethernet" && !strings.Contains(d.NodeType, "RNIC") && !strings.Contains(d.NodeType, "usNIC")
}

// netdevOf returns the name of the network device of an RDMA port: what its GIDs name, else the
// only device of the NIC, else the one with the port's number. "" where it cannot be told.
func netdevOf(n *topology.NIC, p *topology.RDMAPort) string {
	for _, g := range p.GIDs {
		if g.Netdev != "" {
			return g.Netdev
		}
	}
	if len(n.Ports) == 1 {
		return n.Ports[0].Name
	}
	for i := range n.Ports {
		if d := n.Ports[i].DevPort; d != nil && *d == p.Number-1 {
			return n.Ports[i].Name
		}
	}
	return ""
}

// An rdmaPort is a port with what it belongs to.
type rdmaPort struct {
	nic  *topology.NIC
	dev  *topology.RDMADevice
	port *topology.RDMAPort
}

// path is the directory of the port.
func (p *rdmaPort) path() string {
	return fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", p.dev.Name, p.port.Number)
}

// rdmaPorts returns all ports of all RDMA devices.
func (v *view) rdmaPorts() []rdmaPort {
	var out []rdmaPort
	for i := range v.NICs {
		n := &v.NICs[i]
		for j := range n.Devices {
			for k := range n.Devices[j].Ports {
				out = append(out, rdmaPort{n, &n.Devices[j], &n.Devices[j].Ports[k]})
			}
		}
	}
	return out
}

// isV2 reports whether a GID is of RoCE v2.
func isV2(g *topology.GID) bool { return strings.Contains(g.Type, "v2") }

// gidTypesKnown reports whether the type of every GID was read: one that was not could be of any.
func gidTypesKnown(p *topology.RDMAPort) bool {
	return len(p.GIDs) > 0 && !slices.ContainsFunc(p.GIDs, func(g topology.GID) bool { return g.Type == "" })
}

// gidFacts is the evidence on a GID table.
func gidFacts(p *rdmaPort) string {
	var facts []string
	for _, g := range p.port.GIDs {
		facts = append(facts, fmt.Sprintf("gids/%d=%s (%s)", g.Index, g.GID, g.Type))
	}
	return at(p.path(), few(facts, 3, " "))
}

func onlyV1(v *view) []Finding {
	var out []Finding
	for _, p := range v.rdmaPorts() {
		if !isRoCE(p.dev, p.port) || p.port.State != "ACTIVE" || !gidTypesKnown(p.port) ||
			slices.ContainsFunc(p.port.GIDs, func(g topology.GID) bool { return isV2(&g) }) {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: p.nic.ID(), Evidence: gidFacts(&p),
			Consequence: "traffic is not routed and does not reach peers that use RoCE v2",
			Fix: "set the driver of " + p.dev.Name + " to RoCE v2 if the NIC has it; else use v1 at both " +
				"ends, on one segment"})
	}
	return out
}

// routable reports whether a GID stands for an address that is not link-local. known is false where it is no address.
func routable(g *topology.GID) (yes, known bool) {
	a, err := netip.ParseAddr(g.GID)
	if err != nil {
		return false, false
	}
	a = a.Unmap()
	return a.IsGlobalUnicast(), true
}

func noRoutableGID(v *view) []Finding {
	var out []Finding
	for _, p := range v.rdmaPorts() {
		if !isRoCE(p.dev, p.port) || p.port.State != "ACTIVE" || p.nic.PF != nil || !gidTypesKnown(p.port) {
			continue
		}
		v2, found, understood := false, false, true
		for i := range p.port.GIDs {
			g := &p.port.GIDs[i]
			if !isV2(g) {
				continue
			}
			yes, known := routable(g)
			v2, found, understood = true, found || yes, understood && known
		}
		if !v2 || found || !understood {
			continue
		}
		out = append(out, Finding{Severity: Info, Subject: p.nic.ID(), Evidence: gidFacts(&p),
			Consequence: "connections from the host work within one segment at best; programs that pick this GID " +
				"time out",
			Fix: "give the network device an address if the host itself is to use RDMA here"})
	}
	return out
}

// carrierOf returns the network device of a port when it has a carrier.
func carrierOf(p *rdmaPort) *topology.Netdev {
	name := netdevOf(p.nic, p.port)
	for i := range p.nic.Ports {
		if d := &p.nic.Ports[i]; d.Name == name && d.Carrier != nil && *d.Carrier {
			return d
		}
	}
	return nil
}

func portDown(v *view) []Finding {
	var out []Finding
	for _, p := range v.rdmaPorts() {
		if p.port.State == "" || p.port.State == "ACTIVE" || p.port.LinkLayer != "Ethernet" {
			continue
		}
		netdev := carrierOf(&p)
		if p.port.PhysState != "LinkUp" && netdev == nil {
			continue
		}
		facts := []string{"state=" + p.port.State}
		if p.port.PhysState != "" {
			facts = append(facts, "phys_state="+p.port.PhysState)
		}
		evidence := at(p.path(), facts...)
		if netdev != nil {
			evidence = all(evidence, at("/sys/class/net/"+netdev.Name, "carrier=1"))
		}
		out = append(out, Finding{Severity: Warning, Subject: p.nic.ID(), Evidence: evidence,
			Consequence: "the link is up and RDMA cannot use it",
			Fix:         "set the network device up and look at dmesg for the driver; rdma link shows the state"})
	}
	return out
}

func noSubnetManager(v *view) []Finding {
	var out []Finding
	for _, p := range v.rdmaPorts() {
		if p.port.LinkLayer != "InfiniBand" {
			continue
		}
		facts := []string{"state=" + p.port.State, "link_layer=InfiniBand"}
		if p.port.PhysState != "" {
			facts = append(facts, "phys_state="+p.port.PhysState)
		}
		evidence := at(p.path(), facts...)
		switch {
		case (p.port.State == "INIT" || p.port.State == "ARMED") && (p.port.PhysState == "LinkUp" ||
			p.port.PhysState == ""):
			out = append(out, Finding{Severity: Error, Subject: p.nic.ID(), Evidence: evidence,
				Consequence: "no traffic: the port has no address in the fabric",
				Fix:         "start a subnet manager (opensm) on the switch or on one host of the fabric"})
		case p.port.State == "DOWN" && p.nic.PF != nil && v.activeAt(*p.nic.PF):
			out = append(out, Finding{Severity: Warning, Subject: p.nic.ID(),
				Evidence:    all(evidence, at(pci(*p.nic.PF), "port ACTIVE")),
				Consequence: "the virtual function has no port of its own in the fabric",
				Fix: "use a subnet manager with virtualisation, set node and port GUID of the function, and " +
					"bind it again"})
		}
	}
	return out
}

// activeAt reports whether the NIC at a has an active RDMA port.
func (v *view) activeAt(a topology.PCIAddr) bool {
	return slices.ContainsFunc(v.rdmaPorts(), func(p rdmaPort) bool {
		return p.nic.Address != nil && *p.nic.Address == a && p.port.State == "ACTIVE"
	})
}

func zeroGUID(v *view) []Finding {
	var out []Finding
	for i := range v.NICs {
		n := &v.NICs[i]
		for j := range n.Devices {
			d := &n.Devices[j]
			if n.PF == nil || d.NodeGUID == "" || strings.Trim(d.NodeGUID, "0:x") != "" {
				continue
			}
			out = append(out, Finding{Severity: Error, Subject: n.ID(),
				Evidence: all(at("/sys/class/infiniband/"+d.Name+"/node_guid", d.NodeGUID),
					at(device(n.Address, n.Name), "physfn="+n.PF.String())),
				Consequence: "rdma_cm does not work on it, and programs that use it may crash",
				Fix: "set its MAC (RoCE) or GUIDs (InfiniBand) on " + n.PF.String() +
					", then unbind and bind the function"})
		}
	}
	return out
}

// harmless reports whether a counter tells of no fault: links go down at each reboot of the other
// end, and marks and notifications of congestion are flow control at work.
func harmless(counter string) bool {
	return counter == "link_downed" || strings.Contains(counter, "cnp") || strings.Contains(counter, "ecn") ||
		strings.Contains(counter, "slow_restart")
}

func portErrors(v *view) []Finding {
	var out []Finding
	for _, p := range v.rdmaPorts() {
		var facts []string
		for _, name := range slices.Sorted(maps.Keys(p.port.Counters)) {
			if n := p.port.Counters[name]; n > 0 && !harmless(name) {
				facts = append(facts, fmt.Sprintf("%s=%d", name, n))
			}
		}
		if len(facts) == 0 {
			continue
		}
		out = append(out, Finding{Severity: Info, Subject: p.nic.ID(), Evidence: at(p.path(), few(facts, 6, " ")),
			Consequence: "packets were lost or damaged since the driver was loaded; whether they still are, a second " +
				"look under load shows",
			Fix: "read them again after some load; if they grow, look at the cable, or at flow control (PFC, " +
				"DSCP) on NIC and switch"})
	}
	return out
}

func noPeerMemory(v *view) []Finding {
	if !v.Kernel.ModulesKnown {
		return nil
	}
	for _, m := range v.Kernel.Modules {
		switch strings.ReplaceAll(m, "-", "_") {
		case "nvidia_peermem", "nv_peer_mem":
			return nil
		}
	}
	var gpus []string
	severity := Info
	for _, g := range v.gpus {
		if g.Driver != "nvidia" || g.DMABuf != nil && *g.DMABuf {
			continue
		}
		if g.DMABuf != nil {
			severity = Warning
		}
		gpus = append(gpus, g.ID())
	}
	i := slices.IndexFunc(v.fabric, func(n *topology.NIC) bool { return len(hardwareRDMA(n)) > 0 })
	if len(gpus) == 0 || i < 0 {
		return nil
	}
	n := v.fabric[i]
	f := Finding{Severity: severity, Subject: strings.Join(gpus, ","),
		Evidence: all(at("/proc/modules", "no nvidia_peermem, no nv_peer_mem"), at("/sys/bus/pci/devices/"+gpus[0],
			"driver=nvidia")+moreDevices(gpus),
			at(device(n.Address, n.Name), "rdma="+hardwareRDMA(n)[0])),
		Consequence: "GPUDirect RDMA depends on dma-buf (kernel 5.12, open kernel modules of NVIDIA); without it " +
			"data is copied through the host",
		Fix: "modprobe nvidia-peermem, or test dma-buf with ib_write_bw --use_cuda=0 --use_cuda_dmabuf"}
	if severity == Warning {
		f.Consequence = "the driver offers no dma-buf either: data between GPU and NIC is copied through the host"
		f.Fix = "modprobe nvidia-peermem (the driver must have been built after the RDMA stack)"
	}
	return []Finding{f}
}
