package live

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
)

const assertion = "/dev/kvm opens, but the trial boot failed: qemu-system-x86_64: ../target/i386/kvm/kvm.c:3213: " +
	"kvm_buf_set_msrs: Assertion `ret == cpu->kvm_msr_buf->nmsrs' failed."

var start = time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC)

// A fake is a source whose methods can fail or hang.
type fake struct {
	labs    []Lab
	fabrics map[string]Fabric
	rdma    map[string][]NodeRDMA
	studies []Study
	docs    map[string]*study.Document
	results []Result
	data    record.Record
	host    Host

	fail   map[string]error // errors by method
	panics string           // method that panics
	hang   chan struct{}    // methods in stuck wait for it, whatever their context

	mu        sync.Mutex
	stuck     map[string]bool
	calls     map[string]int
	now       time.Time
	onStudies func(n int) // called with the number of calls
	moving    bool        // the clock advances by a tick at each reading
}

func (f *fake) enter(method string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[method]++
	stuck := f.stuck[method]
	if method == "studies" && f.onStudies != nil {
		f.onStudies(f.calls[method])
	}
	f.mu.Unlock()
	if stuck {
		<-f.hang
	}
	if method == f.panics {
		panic("index out of range")
	}
	return f.fail[method]
}

// tick is small: a page reads the clock tens of times, and each update must show new values.
const tick = 200 * time.Millisecond

func (f *fake) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moving {
		f.now = f.now.Add(tick)
	}
	return f.now
}

func (f *fake) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fake) Labs(context.Context) ([]Lab, error) { return f.labs, f.enter("labs") }

func (f *fake) Fabric(_ context.Context, lab string) (Fabric, error) {
	if err := f.enter("fabric " + lab); err != nil {
		return Fabric{}, err
	}
	out, ok := f.fabrics[lab]
	if !ok {
		return Fabric{}, errors.New("the switch of lab " + lab + " does not answer")
	}
	out.Ports = append([]Port{}, out.Ports...)
	out.At = f.clock()
	// 125,000 bytes per second are 1 Mb/s.
	passed := uint64(out.At.Sub(start).Milliseconds())
	for i := range out.Ports {
		p := &out.Ports[i]
		p.RxBytes += 125 * passed * uint64(i+1)
		p.TxBytes += 125 * passed * uint64(len(out.Ports)-i)
		p.RxFrames += passed * uint64(i+1)
	}
	return out, nil
}

func (f *fake) RDMA(_ context.Context, lab string) ([]NodeRDMA, error) {
	return f.rdma[lab], f.enter("rdma " + lab)
}
func (f *fake) Host(context.Context) (Host, error) { return f.host, f.enter("host") }
func (f *fake) Studies(context.Context) ([]Study, error) {
	err := f.enter("studies") // which may change the studies
	return f.studies, err
}
func (f *fake) Study(_ context.Context, name string) (*study.Document, error) {
	err := f.enter("study " + name)
	if err == nil && f.docs[name] == nil {
		err = errors.New("no runs")
	}
	return f.docs[name], err
}
func (f *fake) Results(context.Context) ([]Result, error) { return f.results, f.enter("results") }
func (f *fake) Result(_ context.Context, r Result) (record.Record, error) {
	return f.data, f.enter("result " + r.Lab + " " + r.Time)
}

func typical(t testing.TB) *fake {
	t.Helper()
	gid := 1
	lab := Lab{Name: "pair", Ready: true, HasSwitch: true, Driver: "qemu", Accelerator: "tcg",
		Reason: "/dev/kvm is not there", Emulated: true, Created: start.Add(-3 * time.Hour)}
	sw := Fabric{Started: start.Add(-3 * time.Hour)}
	var rdma []NodeRDMA
	for i, name := range []string{"vm00", "vm01"} {
		lab.Nodes = append(lab.Nodes, Node{Name: name, State: "running", CPUs: 1, Memory: 256 << 20,
			Started: start.Add(-3 * time.Hour),
			NICs:    []NIC{{Name: "eth0", Address: "10.0.0." + string(rune('1'+i)) + "/24", RDMA: "rxe0", GID: &gid}}})
		sw.Ports = append(sw.Ports, Port{Node: name, NIC: "eth0", PortCounters: fabric.PortCounters{Name: name,
			Connected: true, RxFrames: 48211, RxBytes: 61 << 20, TxFrames: 48190, TxBytes: 60 << 20}})
		rdma = append(rdma, NodeRDMA{Node: name,
			Devices: []RDMADevice{{Name: "rxe0", Port: map[string]uint64{"port_xmit_packets": 100,
				"port_rcv_packets": 99},
				HW: map[string]uint64{"sent_pkts": 100, "duplicate_request": 2, "lifespan": 10}}}})
	}
	sw.Ports[1].Impaired, sw.Ports[1].Drops.Lost = "delay 50us, loss 0.1%", 48
	half := Lab{Name: "half", HasSwitch: true, Driver: "qemu", Accelerator: "tcg", Emulated: true,
		Created: start.Add(-time.Minute), Nodes: []Node{
			{Name: "vm00", State: "dead", CPUs: 2, Memory: 512 << 20, Started: start.Add(-time.Minute),
				NICs: []NIC{{Name: "eth0", Address: "10.1.0.1/24"}}},
			{Name: "vm01", State: "unknown", Error: "its machine did not answer within 1s", CPUs: 2, Memory: 512 << 20},
			{Name: "vm02", State: "starting", CPUs: 2, Memory: 512 << 20},
		}}
	return &fake{
		now: start, labs: []Lab{half, lab}, fabrics: map[string]Fabric{"pair": sw},
		rdma: map[string][]NodeRDMA{"pair": rdma},
		studies: []Study{
			{Name: "demo", Question: "What does loss do to RDMA and to TCP?", Lab: "../pair.yaml",
				Created: start.Add(-50 * time.Hour), Complete: true, Done: 24, Failed: 1, Total: 24, Emulated: true},
			{Name: "contention", Question: "Does pinning help?", Lab: "../pair.yaml", Created: start.Add(-time.Hour),
				Running: true, Done: 10, Disturbed: 2, Total: 32,
				Left: 9 * time.Minute, Cell: "placement=pin contention=cpu:2", Emulated: true},
		},
		host: Host{Document: hostview.NewDocument(&topology.Host{
			Provenance: topology.Provenance{Name: "box", Emulated: true},
			NUMANodes:  []topology.NUMANode{{ID: 0}},
		}, nil), Doctor: []HostUse{{For: "emulated labs", Checks: []finding.Finding{
			{Title: "KVM", Status: finding.Warn, Evidence: assertion, Fix: "use another machine"},
			{Title: "QEMU", Status: finding.OK, Evidence: "10.0.2"},
		}}, {For: "emulated hosts"}}},
		docs: map[string]*study.Document{"contention": document(t, "contention"), "demo": document(t, "demo")},
		results: []Result{
			{Lab: "pair", Time: "20261122T200000Z", Detailed: true, Generated: start.Add(-time.Hour), Emulated: true,
				Tests: []string{"ib_write_bw", "ib_write_lat", "iperf3"}, Figures: 61,
				Findings: []finding.Finding{{ID: "link", Code: "RL401", Title: "link up", Subject: "vm00 eth0",
					Status: finding.OK, Have: "carrier 1", Want: "carrier 1", Evidence: "/sys/class/net/eth0/carrier"},
					{ID: "rdma-active-mtu", Code: "RL405", Title: "active IB MTU", Subject: "vm00 rxe0",
						Status: finding.Failed, Have: "1024", Want: "4096", Evidence: "ibv_devinfo -d rxe0",
						Fix: "set the MTU of eth0 to 4200"}}},
			{Lab: "pair", Time: "20261120T100000Z", Detailed: true, Generated: start.Add(-59 * time.Hour),
				Emulated: true, Tests: []string{"iperf3"}, Figures: 2,
				Findings: []finding.Finding{{ID: "link", Code: "RL401", Subject: "vm00 eth0", Status: finding.OK}}},
			{Lab: "torn", Time: "20261119T100000Z", Detailed: true, Error: "report.json: unexpected end of JSON input"},
		},
		data: record.Record{Lab: "pair", Generated: start.Add(-time.Hour), Rackless: "test", Emulated: true,
			Samples: []bench.Sample{{
				Run: "1", Test: "iperf3", Client: "vm01", Server: "vm00", Metric: "throughput", Value: 0.43,
				Unit: "Gb/s",
				Tool: "iperf3", Command: "iperf3 -c 10.0.0.1", Accelerator: "tcg", Emulated: true,
				Started: start, Seconds: 5, Attempt: 1,
			}}},
	}
}

func document(t testing.TB, name string) *study.Document {
	t.Helper()
	spec, err := study.Parse("study.yaml",
		[]byte("name: "+name+"\nquestion: Does loss matter?\nlab: pair.yaml\nfactors:\n  link.loss: [\"0%\", "+
			"\"1%\"]\nmeasure: [{test: iperf3, seconds: 2}]\nblocks: 8\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := &study.Data{Spec: spec}
	for b := 1; b <= 3; b++ {
		for _, r := range spec.Block(b) {
			cell := spec.Settings(r.Cell)
			v := 1 + float64(len(d.Runs)%5)/100
			if cell["link.loss"] == "1%" {
				v /= 2
			}
			d.Runs = append(d.Runs, study.Observation{Run: int64(len(d.Runs) + 1), Block: b, Place: r.Place, Attempt: 1,
				Cell: cell, Status: study.StatusDone, Started: start, Seconds: 4,
				Values: []study.Value{{Test: "iperf3", Metric: "throughput", Value: v, Unit: "Gb/s"}}})
		}
	}
	result, err := study.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	return &study.Document{Result: result, Data: d, Emulated: true, Generated: start, Rackless: "test"}
}
