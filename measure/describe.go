package measure

import (
	"context"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/hostview"
)

// Describe gathers what a report on a lab shows beside the figures. by is the version of rackless.
func Describe(ctx context.Context, r *rack.Rack, findings []finding.Finding, samples []bench.Sample,
	by string) report.Data {
	s := r.State
	data := report.Data{
		Lab: r.Lab.Name, Generated: time.Now().UTC().Truncate(time.Second), Rackless: by,
		Findings: findings, Samples: samples, Environment: environment(s, samples), Emulated: r.Emulated(),
		EmulatedHost: s.EmulatedHost,
	}
	if h, err := inspect.Read(ctx, inspect.Live()); err == nil { // else the page is without the machine's picture
		var svg strings.Builder
		if hostview.NewDocument(h, diagnose.Host(h)).WriteSVG(&svg) == nil {
			data.HostPicture = svg.String()
		}
	}
	for i, n := range r.Lab.Nodes {
		node := reportNode(r.Lab, n)
		node.Accelerator, node.Driver = s.Nodes[i].Accelerator, s.Driver
		if ep, err := r.Endpoint(n.Name); err == nil && ep.Device != "" {
			// else the node is shown without an RDMA device, and a finding says why
			node.RDMADevice, node.GIDIndex, node.IBMTU = ep.Device, ep.GIDIndex, r.Lab.Fabric.RDMAPayload()
		}
		data.Nodes = append(data.Nodes, node)
	}
	return data
}

// reportNode is a node as its lab has it, known by its first NIC. One on a real host may have none.
func reportNode(l *lab.Lab, n lab.Node) report.Node {
	node := report.Node{Name: n.Name, CPUs: n.CPUs, Memory: int64(n.Memory)}
	if len(n.NICs) > 0 {
		node.Address, node.MAC, node.MTU = n.NICs[0].Addr.String(), n.NICs[0].MAC, l.Fabric.MTU
	}
	return node
}
