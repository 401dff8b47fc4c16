package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/study/record"
)

// fixtures are in testdata; all figures are made up.
var fixtures = []string{"two-nodes", "failures"}

func TestFixturesAreWhatTheirGeneratorsMake(t *testing.T) {
	for name, d := range map[string]record.Record{
		"two-nodes": synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 2)),
		"failures":  syntheticFailures(),
	} {
		golden.Check(t, "testdata/"+name+".json", marshalFixture(t, d))
	}
}

func loadFixture(t testing.TB, name string) record.Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var d record.Record
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("fixture %s: %v", name, err)
	}
	return d
}

// marshalFixture has one sample on each line, for readable diffs.
func marshalFixture(t *testing.T, d record.Record) []byte {
	t.Helper()
	samples := d.Samples
	d.Samples = nil
	b, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBuffer(bytes.TrimSuffix(b, []byte("\n}")))
	out.WriteString(",\n \"samples\": [")
	for i, s := range samples {
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, "\n  %s", line)
	}
	out.WriteString("\n ]\n}\n")
	return out.Bytes()
}

func sizes(first, last, step int) []int64 {
	var out []int64
	for e := first; e <= last; e += step {
		out = append(out, 1<<e)
	}
	return out
}

// jitter is near 1 and depends only on its arguments.
func jitter(of ...any) float64 {
	h := fnv.New32a()
	fmt.Fprintln(h, of...)
	return 0.9 + 0.2*float64(h.Sum32()%1000)/1000
}

var started = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)

func synthetic(nodes int, pairs [][2]int, bytes []int64) record.Record {
	d := record.Record{
		Lab: "demo", Title: fmt.Sprintf("Synthetic report of %d nodes", nodes), Generated: started.Add(time.Hour),
		Rackless: "v0.1.0-synthetic", Emulated: true,
		HostPicture: `<svg xmlns="http://www.w3.org/2000/svg" width="1480" height="60">` +
			`<rect width="1480" height="60" fill="#9ec9e8"/></svg>`,
		Environment: []record.Fact{
			{Key: "note", Value: "synthetic: made up for tests, measured nowhere"},
			{Key: "host CPU", Value: "Example CPU at 2.00GHz, 2 cores"},
			{Key: "host kernel", Value: "6.1.0-synthetic"},
			{Key: "QEMU", Value: "10.0.2"},
			{Key: "accelerator", Value: "tcg"},
			{Key: "guest kernel", Value: "6.1.0-synthetic-amd64"},
			{Key: "perftest", Value: "4.5"},
		},
	}
	for i := range nodes {
		name := fmt.Sprintf("vm%02d", i)
		d.Nodes = append(d.Nodes, record.Node{
			Name: name, Address: fmt.Sprintf("10.77.0.%d/24", 10+i), MAC: fmt.Sprintf("52:54:00:77:00:%02x", i),
			RDMADevice: "rxe0", GIDIndex: 1,
			MTU: 4200, IBMTU: 4096, CPUs: 1, Memory: 512 << 20, Accelerator: "tcg", Driver: "qemu",
		})
		d.Findings = append(d.Findings,
			finding.Finding{ID: "rdma-active-mtu", Subject: name, Title: "RDMA port uses the largest MTU",
				Status: finding.OK, Have: "4096", Want: "4096", Evidence: "ibv_devinfo -d rxe0"},
			finding.Finding{ID: "rdma-gid-type", Subject: name, Title: "GID is of type RoCE v2", Status: finding.OK,
				Have: "RoCE v2", Want: "RoCE v2", Evidence: "/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1"})
	}
	for _, p := range pairs {
		for _, verb := range []string{"write", "read", "send"} {
			for _, n := range bytes {
				d.Samples = append(d.Samples, syntheticRun(d.Nodes[p[0]], d.Nodes[p[1]], "ib_"+verb+"_bw", n, 1)...)
			}
			for _, n := range bytes {
				d.Samples = append(d.Samples, syntheticRun(d.Nodes[p[0]], d.Nodes[p[1]], "ib_"+verb+"_lat", n, 1)...)
			}
		}
	}
	return d
}

func syntheticRun(client, server record.Node, test string, n int64, attempt int) []bench.Sample {
	base := bench.Sample{
		Run: fmt.Sprintf("%s-%s-%s-%d", test, client.Name, server.Name, attempt), Test: test, Client: client.Name,
		Server: server.Name, Bytes: n, Iterations: 1000,
		Tool: "perftest", Version: "4.5-synthetic", Accelerator: "tcg", Emulated: true, Started: started, Seconds: 4.25,
		Attempt:       attempt,
		Command:       test + " -d rxe0 -x 1 -F -a -n 1000 10.77.0.10",
		ServerCommand: test + " -d rxe0 -x 1 -F -a -n 1000",
	}
	var out []bench.Sample
	add := func(metric, unit string, v float64) {
		s := base
		s.Metric, s.Unit, s.Value = metric, unit, math.Max(1e-6, math.Round(v*1e6)/1e6)
		if unit == "us" {
			s.Value = math.Round(v*100) / 100
		}
		out = append(out, s)
	}
	j := jitter(client.Name, server.Name, test, n, attempt)
	microseconds := (380 + float64(n)*8/250) * j // at most 0.25 Gb/s
	if test == "ib_read_bw" || test == "ib_read_lat" {
		microseconds *= 1.6
	}
	if test[len(test)-3:] == "_bw" {
		rate := 1 / microseconds * 4 // Mpps, several in flight
		rate = math.Min(rate, 0.25*j*1e3/float64(n)/8)
		add(bench.MetricBWPeak, "Gb/s", rate*float64(n)*8/1e3*1.2)
		add(bench.MetricBWAverage, "Gb/s", rate*float64(n)*8/1e3)
		add(bench.MetricMessageRate, "Mpps", rate)
		return out
	}
	add(bench.MetricLatencyMin, "us", microseconds*0.8)
	add(bench.MetricLatencyMax, "us", microseconds*9*j)
	add(bench.MetricLatencyTypical, "us", microseconds)
	add(bench.MetricLatencyAverage, "us", microseconds*1.2)
	add(bench.MetricLatencyStdev, "us", microseconds*0.4)
	add(bench.MetricLatencyP99, "us", microseconds*5.7*j)
	add(bench.MetricLatencyP999, "us", microseconds*8*j)
	return out
}

// syntheticFailures has three nodes with failures and repeats, at one size.
func syntheticFailures() record.Record {
	d := synthetic(3, nil, nil)
	d.Title = "Synthetic report with failures"
	for attempt := 1; attempt <= 3; attempt++ {
		d.Samples = append(d.Samples, syntheticRun(d.Nodes[1], d.Nodes[0], "ib_write_bw", 65536, attempt)...)
		d.Samples = append(d.Samples, syntheticRun(d.Nodes[1], d.Nodes[0], "ib_write_lat", 2, attempt)...)
	}
	fail := func(client, server int, test string, n int64, why string) {
		s := syntheticRun(d.Nodes[client], d.Nodes[server], test, n, 1)[0]
		s.Metric, s.Unit, s.Value, s.Iterations, s.Error = "", "", 0, 0, why
		d.Samples = append(d.Samples, s)
	}
	fail(2, 0, "ib_write_bw", 65536,
		`run "ib_write_bw" on vm02: exit status 1: Couldn't connect to 10.77.0.10:18515: `+
			`unable to read the server's answer; is the server's firewall open?`)
	fail(1, 0, "ib_read_lat", 2,
		`parse ib_read_lat: clock calibration failed ("Correlation coefficient r^2: 0.731 < 0.9") `+
			`and every figure is 0.000; run it again on a quieter host`)
	d.Samples = append(d.Samples, syntheticRun(d.Nodes[1], d.Nodes[0], "ib_read_lat", 2, 2)...)
	tcp := bench.Sample{Run: "iperf3-1", Test: "iperf3", Client: "vm01", Server: "vm00", Metric: bench.MetricThroughput,
		Value: 0.43, Unit: "Gb/s", Tool: "iperf3",
		Version: "3.12-synthetic", Command: "iperf3 -c 10.77.0.10 -J -t 10", ServerCommand: "iperf3 -s -1 -J",
		Accelerator: "tcg", Emulated: true, Started: started, Seconds: 10, Attempt: 1}
	retransmits := tcp
	retransmits.Metric, retransmits.Value, retransmits.Unit = bench.MetricRetransmits, 0, "segments"
	d.Samples = append(d.Samples, tcp, retransmits)
	d.Findings[0].Status, d.Findings[0].Have = finding.Failed, "1024"
	d.Findings[0].Fix = "set the MTU of eth0 to 4200 on vm00: ip link set eth0 mtu 4200"
	d.Findings[3].Status, d.Findings[3].Have = finding.Unknown, ""
	d.Findings[3].Fix = "start the guest agent on vm01, then run the checks again"
	return d
}

func fullMesh(n int) [][2]int {
	var out [][2]int
	for i := range n {
		for j := range n {
			if i != j {
				out = append(out, [2]int{i, j})
			}
		}
	}
	return out
}

func star(n int) [][2]int {
	var out [][2]int
	for i := 1; i < n; i++ {
		out = append(out, [2]int{i, 0})
	}
	return out
}
