package appraise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

// A crossing says how much of a collective operation passes the NICs of the machine that sends most.
type crossing struct {
	share float64 // bytes a second that pass them, by bus bandwidth
	ranks int     // ranks that send; 0 if all NICs are used anyway
}

// rings pass each byte through the NICs of each machine once, as trees do.
//
// Source: doc/PERFORMANCE.md of nccl-tests, on bus bandwidth.
var rings = []string{"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}

func operationOf(test string) string {
	base, _, _ := strings.Cut(test, "/")
	for _, prefix := range []string{"nccl_", "rccl_"} {
		if op, ok := strings.CutPrefix(base, prefix); ok {
			return op
		}
	}
	return ""
}

// crossingOf returns why if the crossing is not known. placed is the machine of each rank.
func crossingOf(op string, placed []int) (c crossing, why string) {
	n := len(placed)
	ranks := map[int]int{} // by machine
	for _, host := range placed {
		ranks[host]++
	}
	switch {
	case slices.Contains(rings, op):
		return crossing{share: 1}, ""
	case op == "":
		return c, "which operation it is, neither the log nor its name says (as all_reduce.log would)"
	case n == 0:
		return c, "how much of this operation crosses machines depends on how ranks are placed, which the log does " +
			"not list"
	case op == "sendrecv":
		crosses := map[int]int{}
		for i, host := range placed {
			if placed[(i+1)%n] != host {
				crosses[host]++
			}
		}
		most := slices.Max(slices.Collect(maps.Values(crosses)))
		return crossing{float64(most), most}, ""
	case op == "alltoall":
		for _, k := range ranks {
			if share := float64(k*(n-k)) / float64(n-1); share > c.share {
				c = crossing{share, k}
			}
		}
		return c, ""
	case op == "gather", op == "scatter":
		k := ranks[placed[0]] // rank 0 is the root, unless -r names another
		return crossing{float64(n-k) / float64(n-1), 1}, ""
	}
	return c, "how much of this operation crosses machines is not known"
}

type nicPort struct {
	gbps  float64 // GB/s
	limit string  // why it is below its rate, or ""
	id    string  // of its NIC
}

// ports returns the ports with a known rate, the fastest first. Far slower ones are for management and left out.
func (m *machine) ports() (all []nicPort, rateless, down []string) {
	for nic, d := range m.RDMADevices() {
		if topology.IsSoftRDMA(d.Name) || nic.PF != nil {
			continue
		}
		gbps := m.rate(nic, d) / 8
		switch {
		case isDown(d):
			down = append(down, d.Name)
			continue
		case gbps == 0:
			rateless = append(rateless, d.Name)
			continue
		}
		p := nicPort{gbps: gbps, id: nicID(nic, d)}
		if nic.Address != nil {
			link, ok := m.uplink(*nic.Address)
			if ok && link.SpeedGTs != nil && link.Width != nil {
				carried := linkShare * topology.LinkGBps(*link.SpeedGTs, *link.Width)
				if carried > 0 && carried < p.gbps {
					p.gbps, p.limit = carried, "the PCIe link at "+link.Address
				}
			}
		}
		all = append(all, p)
	}
	fastest := lists.Max(all, func(p nicPort) float64 { return p.gbps })
	all = slices.DeleteFunc(all, func(p nicPort) bool { return p.gbps <= fastest/4 })
	slices.SortStableFunc(all, func(a, b nicPort) int { return cmp.Compare(b.gbps, a.gbps) })
	return all, rateless, down
}

// overNICs judges the bus bandwidth over several machines by this machine's NICs.
func (m *machine) overNICs(f *Figure, of importer.Where) {
	c, why := crossingOf(operationOf(f.Test), of.Placed)
	if why != "" {
		f.Text = "no expectation: " + why
		return
	}
	ports, rateless, down := m.ports()
	if len(ports) == 0 {
		f.Text = fmt.Sprintf("no expectation: it was measured over %d machines, and ", of.Hosts)
		switch {
		case len(rateless) > 0:
			f.Text += "the rate of the ports of this one is not told (" + strings.Join(rateless, ", ") + "): add " +
				"ibstat, or ethtool of their network devices"
		case len(down) > 0:
			f.Text += "this one has no active RDMA port: " + strings.Join(down, ", ") + " down"
		default:
			f.Text += "no RDMA device of this one is known"
		}
		return
	}
	if c.ranks > 0 && c.ranks < len(ports) {
		ports = ports[:c.ranks]
	}
	var limits []string
	total := 0.0
	for _, p := range ports {
		total += p.gbps
		f.Devices = append(f.Devices, p.id)
		if p.limit != "" {
			limits = append(limits, p.limit)
		}
	}
	f.Bound = total / c.share
	usual := fmt.Sprintf("%.3g%% of the %.4g GB/s of %d NICs of each of %d machines", 100*f.Value/f.Bound, total,
		len(f.Devices), of.Hosts)
	if c.share != 1 {
		usual = fmt.Sprintf("%.3g%% of %.4g GB/s: as the ranks are placed, %.3g times the figure crosses between "+
			"machines, "+
			"and the NICs carry %.4g GB/s (%d of each of %d machines)", 100*f.Value/f.Bound, f.Bound, c.share, total,
			len(f.Devices), of.Hosts)
	}
	if len(rateless) > 0 {
		usual += "; the rate of " + strings.Join(rateless, ", ") + " is not told and left out: add ibstat"
	}
	// Other operations are further from the limit than rings.
	least := peersShare
	if c.ranks > 0 {
		least = othersLeast
	}
	switch {
	// Switches that reduce at most double the bus bandwidth. 2.2 includes the margin of tooMuch.
	case f.Value > 2.2*f.Bound && len(rateless) == 0:
		f.Verdict, f.Text = Above, "more than in-network reduction gives: "+usual
	case f.Value > tooMuch*f.Bound:
		f.Verdict, f.Text = Normal, usual+": the switches reduce (SHARP), or not all traffic crosses machines"
	case f.Value >= least*f.Bound && len(limits) == 0:
		f.Verdict, f.Text = Normal, usual
	case f.Value >= least*f.Bound:
		f.Verdict, f.Text = Limited, usual+", which "+strings.Join(limits, ", ")+" limits"
	default:
		f.Verdict, f.Text = Low, usual
		f.Causes = []expect.Cause{{What: "NICs or GPUDirect that are not used", Evidence: usual, Possible: true,
			Ceiling: f.Bound, Fix: "NCCL_DEBUG=INFO: all NICs are to be listed (NCCL_IB_HCA), with GDRDMA for each " +
				"GPU; GPU and NIC below one switch; flow control of the fabric (PFC, ECN)"}}
	}
}

// othersLeast applies to operations that are no rings: their messages are smaller, and meet in the switches.
const othersLeast = 0.5
