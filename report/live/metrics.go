package live

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
)

type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) family {
	return family{prometheus.NewDesc("rackless_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) family {
	return family{prometheus.NewDesc("rackless_"+name, help, labels, nil), prometheus.GaugeValue}
}

func ofPortCounter(name, help string, more ...string) family {
	return counter("fabric_port_"+name, help, slices.Concat(ofPort, more)...)
}

func ofRDMACounter(name, help string, more ...string) family {
	return counter("rdma_port_"+name, help, slices.Concat(ofRDMA, more)...)
}

var (
	ofNode = []string{"lab", "node"}
	ofPort = []string{"lab", "node", "nic"}
	ofRDMA = []string{"lab", "node", "device", "port"}
)

// The metrics of a failed source are absent, because old values would be wrong.
var (
	buildInfo = gauge("build_info", "Version of rackless, and of Go that it was built with; always 1.", "version",
		"goversion")
	sourceUp = gauge("source_up", "1 if this part could be read: labs, studies, results.", "source")

	labInfo = gauge("lab_info", "What a running lab is made by; always 1.", "lab", "driver", "accelerator",
		"emulated")
	labReady  = gauge("lab_ready", "1 if bringing the lab up has come to its end.", "lab")
	nodeState = gauge("node_state", "1 for the state that the node is in, 0 for the others.", "lab", "node", "state")

	// The switch counts bytes and frames, not the nodes.
	fabricUp    = gauge("fabric_up", "1 if the switch of the lab answered.", "lab")
	portUp      = gauge("fabric_port_up", "1 if the node's NIC is connected to the port.", ofPort...)
	portRxBytes = ofPortCounter("receive_bytes_total",
		"Ethernet bytes from the node into the switch, without preamble and checksum.")
	portTxBytes = ofPortCounter("transmit_bytes_total",
		"Ethernet bytes from the switch to the node, without preamble and checksum.")
	portRxFrames = ofPortCounter("receive_frames_total", "Frames from the node into the switch.")
	portTxFrames = ofPortCounter("transmit_frames_total", "Frames from the switch to the node.")
	portRxDrops  = ofPortCounter("receive_drops_total", "Frames from the node that the switch forwarded to no port.")
	portTxDrops  = ofPortCounter("transmit_drops_total", "Frames for the node that did not reach it, by reason.",
		"reason")
	portReordered = ofPortCounter("transmit_reordered_frames_total",
		"Frames that overtook others on the impaired link to the node.")
	portECN = ofPortCounter("transmit_ecn_marked_frames_total",
		"Frames that the impaired link to the node marked as having met congestion.")
	portPauses = ofPortCounter("pauses_total",
		"How often the node was held because a receiver with PFC did not keep up.")
	portPaused = ofPortCounter("paused_seconds_total",
		"Time for which the node was held, by a pause of its NIC or by not reading from it.")
	portQueueBytes = gauge("fabric_port_queue_bytes", "Bytes that wait for the node now.", ofPort...)

	// Reading these costs the nodes CPU time.
	rdmaUp = gauge("rdma_up", "1 if the RDMA counters of the node were read; 0 also while a study measures, "+
		"which reading them would disturb.", ofNode...)
	rdmaAge       = gauge("rdma_age_seconds", "How long ago the RDMA counters of the lab were read.", "lab")
	rdmaRxPackets = ofRDMACounter("receive_packets_total", "Packets that the port received: port_rcv_packets.")
	rdmaTxPackets = ofRDMACounter("transmit_packets_total", "Packets that the port sent: port_xmit_packets.")
	rdmaEvents    = ofRDMACounter("events_total",
		"Hardware counters of the device (hw_counters), by the name that its driver gives them.", "counter")

	// Stored by verify and bench: a scrape runs no checks.
	checkState = gauge("check_state", "1 for the outcome that the check had when the lab was last verified, by "+
		"verify or by bench, 0 for the others.", "lab", "check", "code", "subject", "state")
	checkAge = gauge("check_age_seconds", "How long ago that was.", "lab")

	// Figures are no metrics: they belong to one moment and have a report.
	resultsStored = gauge("results", "Measurements of the lab that are stored.", "lab")
	resultAge     = gauge("result_age_seconds", "How long ago the last of them was made.", "lab")
	resultFailed  = gauge("result_failed_measurements", "Measurements without a figure in the last result.", "lab")

	// Progress of studies.
	studyRunning = gauge("study_running", "1 while runs of the study are made.", "study")
	studyRuns    = gauge("study_runs", "Runs of the study by how they ended; they start anew when the study does.",
		"study", "status")
	studyPlanned = gauge("study_planned_runs",
		"Runs that the study will have; absent where a budget of time decides.", "study")
	studyRemaining = gauge("study_remaining_seconds",
		"About how long the study still takes, as its runs have taken so far; absent while that is not known.", "study")
)

type scrape struct {
	s   *server
	ctx context.Context
}

// Describe sends nothing, because metrics depend on the current labs and studies.
func (scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c scrape) Collect(out chan<- prometheus.Metric) {
	m := sink{out: out, seen: make(map[string]bool)}
	st := c.s.state(c.ctx)
	m.put(buildInfo, 1, c.s.version, runtime.Version())
	m.put(sourceUp, truth(st.labsErr == nil), "labs")
	m.put(sourceUp, truth(st.studiesErr == nil), "studies")
	m.put(sourceUp, truth(st.resultsErr == nil), "results")
	now := c.s.now()
	for _, l := range st.labs {
		m.lab(l)
	}
	m.nodesRDMA(c, st.labs)
	m.results(st.results, now)
	m.checks(st.labs, st.results, now)
	for _, x := range st.studies {
		m.study(x)
	}
}

// A sink drops a duplicate, which would invalidate the whole scrape.
type sink struct {
	out  chan<- prometheus.Metric
	seen map[string]bool
}

func (m *sink) put(f family, value float64, labels ...string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	key := f.desc.String() + "\x00" + strings.Join(labels, "\x00")
	if m.seen[key] {
		return
	}
	m.seen[key] = true
	m.out <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *sink) lab(l labState) {
	m.put(labInfo, 1, l.Name, l.Driver, l.Accelerator, strconv.FormatBool(l.Emulated))
	m.put(labReady, truth(l.Ready), l.Name)
	for _, n := range l.Nodes {
		for _, state := range nodeStates {
			m.put(nodeState, truth(n.State == state), l.Name, n.Name, state)
		}
	}
	if !l.HasSwitch {
		return
	}
	m.put(fabricUp, truth(l.flow != nil), l.Name)
	if l.flow == nil {
		return
	}
	for _, p := range l.flow.Ports {
		port := []string{l.Name, p.Node, p.NIC}
		if p.Node == "" {
			port[2] = p.Name
		}
		put := func(f family, value float64, more ...string) { m.put(f, value, append(slices.Clone(port), more...)...) }
		put(portUp, truth(p.Connected))
		put(portRxBytes, float64(p.RxBytes))
		put(portTxBytes, float64(p.TxBytes))
		put(portRxFrames, float64(p.RxFrames))
		put(portTxFrames, float64(p.TxFrames))
		put(portRxDrops, float64(p.rxDrops()))
		put(portTxDrops, float64(p.Drops.QueueFull), "queue_full")
		put(portTxDrops, float64(p.Drops.Disconnected), "disconnected")
		put(portTxDrops, float64(p.Drops.BufferFull), "buffer_full")
		put(portTxDrops, float64(p.Drops.Lost), "lost")
		put(portReordered, float64(p.Reordered))
		put(portECN, float64(p.ECNMarked))
		put(portPauses, float64(p.Pauses))
		put(portPaused, p.Paused.Seconds())
		put(portQueueBytes, float64(p.QueueBytes))
	}
}

// noCounter lists files of hw_counters that hold settings.
var noCounter = []string{"lifespan"}

func (m *sink) nodesRDMA(c scrape, labs []labState) {
	type read struct {
		nodes []NodeRDMA
		at    time.Time
	}
	all := make([]read, len(labs))
	var wg sync.WaitGroup
	for i, l := range labs {
		if !l.Ready {
			continue // its nodes are still booting
		}
		wg.Go(func() {
			nodes, at, err := c.s.rdma.get(c.ctx, l.Name)
			if err == nil {
				all[i] = read{nodes, at}
			}
		})
	}
	wg.Wait()
	now := c.s.now()
	for i, l := range labs {
		answered := map[string]bool{}
		for _, n := range all[i].nodes {
			answered[n.Node] = n.Err == nil
			for _, d := range n.Devices {
				device := []string{l.Name, n.Node, d.Name, "1"}
				// Every driver has these two; others differ by vendor.
				for name, f := range map[string]family{"port_rcv_packets": rdmaRxPackets,
					"port_xmit_packets": rdmaTxPackets} {
					if v, ok := d.Port[name]; ok {
						m.put(f, float64(v), slices.Clone(device)...)
					}
				}
				for _, name := range lists.Keys(d.HW) {
					if !slices.Contains(noCounter, name) {
						m.put(rdmaEvents, float64(d.HW[name]), append(slices.Clone(device), name)...)
					}
				}
			}
		}
		for _, n := range l.Nodes {
			m.put(rdmaUp, truth(answered[n.Name]), l.Name, n.Name)
		}
		if !all[i].at.IsZero() {
			m.put(rdmaAge, now.Sub(all[i].at).Seconds(), l.Name)
		}
	}
}

type checked struct {
	at       time.Time
	findings []finding.Finding
}

// lastChecks are of the last verify or measurement of a running lab.
func lastChecks(labs []labState, results []Result) map[string]checked {
	last := map[string]checked{}
	for _, r := range results {
		if have, ok := last[r.Lab]; len(r.Findings) > 0 && (!ok || r.Generated.After(have.at)) {
			last[r.Lab] = checked{r.Generated, r.Findings}
		}
	}
	for _, l := range labs {
		if have, ok := last[l.Name]; len(l.Findings) > 0 && (!ok || l.Checked.After(have.at)) {
			last[l.Name] = checked{l.Checked, l.Findings}
		}
	}
	return last
}

func (m *sink) checks(labs []labState, results []Result, now time.Time) {
	for lab, c := range lastChecks(labs, results) {
		m.put(checkAge, now.Sub(c.at).Seconds(), lab)
		for _, f := range c.findings {
			for _, state := range []finding.Status{finding.OK, finding.Failed, finding.Unknown} {
				m.put(checkState, truth(f.Status == state), lab, f.ID, f.Code, f.Subject, string(state))
			}
		}
	}
}

// results are latest first, so the first of a lab is its last.
func (m *sink) results(all []Result, now time.Time) {
	stored := map[string]int{}
	for _, r := range all {
		stored[r.Lab]++
		if stored[r.Lab] > 1 || !r.Detailed || r.Error != "" {
			continue
		}
		m.put(resultAge, now.Sub(r.Generated).Seconds(), r.Lab)
		m.put(resultFailed, float64(r.Failed), r.Lab)
	}
	// Labs that do not run have results too.
	for lab, n := range stored {
		m.put(resultsStored, float64(n), lab)
	}
}

// study leaves out unknown values, because a 0 would look like the end.
func (m *sink) study(x Study) {
	if x.Error != "" {
		return
	}
	m.put(studyRunning, truth(x.Running), x.Name)
	m.put(studyRuns, float64(x.Done), x.Name, "done")
	m.put(studyRuns, float64(x.Failed), x.Name, "failed")
	m.put(studyRuns, float64(x.Disturbed), x.Name, "disturbed")
	if x.Total > 0 {
		m.put(studyPlanned, float64(x.Total), x.Name)
	}
	if x.Left > 0 || x.Complete {
		m.put(studyRemaining, x.Left.Seconds(), x.Name)
	}
}

func (s *server) registry(ctx context.Context) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(scrape{s, ctx})
	return r
}

// metrics fails as a whole, because missing metrics would look like values that disappeared.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.registry(r.Context()), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, r)
}
