package appraise

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

// fallTimes is the smallest ratio of the best figure to all larger sizes that is a fault. Changes of protocol and
// caches cost less.
const fallTimes = 3

// fall notes that the bandwidth between machines falls several times with the message size, and stays low. Larger
// messages are easier to send.
func (f *Figure) fall(all []importer.Sample, infiniband bool) {
	w := all[0].Origin.Where
	// Within a machine, caches do this; InfiniBand loses nothing.
	if f.Metric != bench.MetricBusBandwidth && (f.Metric != bench.MetricBWAverage || w.Link != "Ethernet") ||
		f.Metric == bench.MetricBusBandwidth && w.Hosts < 2 {
		return
	}
	bySize := func(a, b importer.Sample) int { return cmp.Compare(a.Bytes, b.Bytes) }
	sorted := slices.SortedStableFunc(slices.Values(all), bySize)
	best := slices.MaxFunc(sorted, func(a, b importer.Sample) int { return cmp.Compare(a.Value, b.Value) })
	larger := slices.DeleteFunc(sorted, func(x importer.Sample) bool { return x.Bytes <= best.Bytes })
	if len(larger) < 2 {
		return
	}
	most := slices.MaxFunc(larger, func(a, b importer.Sample) int { return cmp.Compare(a.Value, b.Value) })
	if fallTimes*most.Value > best.Value {
		return
	}
	size := func(x importer.Sample) string { return words.Exact(x.Bytes) }
	evidence := fmt.Sprintf("%.3g %s at %s, and at most %.3g from %s on", best.Value, f.Unit, size(best), most.Value,
		size(larger[0]))
	if f.Verdict == Unknown {
		f.Verdict, f.Text = Low, "the same run gives more with smaller messages: "+evidence+"; "+f.Text
	}
	cause := expect.Cause{What: "packets that are lost", Possible: true, Evidence: evidence +
		": as long as the buffers of the switches hold what is under way, nothing is lost",
		Fix: "flow control on the whole way, in NICs and switches (PFC for the priority of RoCE, ECN): mlnx_qos, and " +
			"what ethtool -S and rdma statistic count (discards, out_of_sequence, packet_seq_err, np_cnp_sent)"}
	if infiniband {
		cause.What, cause.Evidence = "a way that is congested or broken", evidence
		cause.Fix = "errors and waits of the ports on the way (ibqueryerrors, PortXmitWait), and other jobs there"
	}
	f.Causes = slices.Insert(f.Causes, 0, cause)
}

func (m *machine) infiniband() bool {
	found := false
	for n, d := range m.RDMADevices() {
		if isDown(d) {
			continue
		}
		if m.LinkLayer(n, d, d.Port(1)) != topology.LinkInfiniBand {
			return false
		}
		found = true
	}
	return found
}
