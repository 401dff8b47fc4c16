package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// acsRedirect makes one finding for each switch.
func acsRedirect(v *view, add func(finding.Finding)) {
	if v.virtual {
		return
	}
	peers := lists.Map(lists.Filter(v.gpus, func(g *topology.GPU) bool { return g.Address != nil }),
		func(g *topology.GPU) topology.PCIAddr { return *g.Address })
	gpus := len(peers)
	peers = append(peers, lists.Map(lists.Filter(v.fabric, func(n *topology.NIC) bool { return n.Address != nil }),
		func(n *topology.NIC) topology.PCIAddr { return *n.Address })...)
	// found is the ports of one switch, and a pair as an example.
	type found struct {
		ports []topology.PCIAddr
		a, b  topology.PCIAddr
	}
	switches := map[topology.PCIAddr]*found{}
	for i, a := range peers[:gpus] {
		for _, b := range peers[i+1:] {
			// Data between two NICs goes through host memory anyway.
			top, ports := v.redirectingPorts(a, b)
			if len(ports) == 0 {
				continue
			}
			f := switches[top]
			if f == nil {
				f = &found{a: a, b: b}
				switches[top] = f
			}
			for _, p := range ports {
				f.ports = lists.Add(f.ports, p)
			}
		}
	}
	for _, top := range slices.SortedFunc(maps.Keys(switches), topology.PCIAddr.Compare) {
		f := switches[top]
		slices.SortFunc(f.ports, topology.PCIAddr.Compare)
		facts := lists.Map(f.ports, func(p topology.PCIAddr) string {
			return at(pci(p)+"/config", "ACSCtl: ReqRedir+")
		})
		add(finding.Finding{Subject: join(f.ports), Evidence: words.Few(facts, 4, "; "),
			Consequence: fmt.Sprintf("traffic between %s and %s goes up to the root complex and back instead of "+
				"across the switch: slower, and shared by all below it", f.a, f.b)})
	}
}

// redirectingPorts returns the nearest bridge above both devices, and the redirecting ports, or none if a device is
// kept for virtual machines.
func (v *view) redirectingPorts(a, b topology.PCIAddr) (top topology.PCIAddr, ports []topology.PCIAddr) {
	da, db := v.tree.Device(a), v.tree.Device(b)
	if da == nil || db == nil || topology.IsVFIO(da.Driver) || topology.IsVFIO(db.Driver) {
		return top, nil
	}
	if ports = v.tree.Redirecting(da, db); len(ports) > 0 {
		top = v.tree.Meet(a, b).Address
	}
	return top, ports
}
