package report

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study/record"
)

// gpuRecord has GPU 0 measured, and GPU 1 failed one way.
func gpuRecord() record.Record {
	d := record.Record{Lab: "gpu", Emulated: true, Nodes: []record.Node{{Name: "vm00"}, {Name: "vm01"}}}
	d.Environment = []record.Fact{{Key: record.FactModelled, Value: "profile h20: pix 195"}}
	for _, node := range []string{"vm00", "vm01"} {
		d.GPUPaths = append(d.GPUPaths, record.GPUPath{Node: node, NIC: 1, Name: "eth1, mlx5_1", Path: "PHB"},
			record.GPUPath{Node: node, GPU: 1, NIC: 1, Name: "eth1, mlx5_1", Path: "PIX"})
	}
	add := func(run, test string, gbps float64, v *bench.VRAM) {
		d.Samples = append(d.Samples, bench.Sample{Run: run, Test: test, Client: "vm01", Server: "vm00",
			Tool:   "perftest",
			Metric: bench.MetricBWAverage, Unit: bench.UnitGbps, Bytes: 65536, Iterations: 100, Value: gbps, VRAM: v,
			Emulated: true}, bench.Sample{Run: run, Test: test, Client: "vm01", Server: "vm00", Tool: "perftest",
			Metric: bench.MetricMessageRate, Unit: bench.UnitMpps, Bytes: 65536, Iterations: 100, Value: 0.04, VRAM: v,
			Emulated: true})
	}
	const moved = 100 * 65536
	ports := bench.Moved{Received: moved + 8000, Sent: 8000}
	add("1", "ib_write_bw/nic1", 92.1, &bench.VRAM{Client: ports, Server: ports})
	add("2", "ib_write_bw/bidi/nic1", 180.5, &bench.VRAM{})
	add("3", "ib_write_bw/cuda0/dmabuf/nic1", 91.75, &bench.VRAM{Client: bench.Moved{Read: moved},
		Server: bench.Moved{Written: moved, Received: moved + 8000}})
	add("4", "ib_write_bw/bidi/cuda0/dmabuf/nic1", 181.25, &bench.VRAM{Client: bench.Moved{Read: moved, Written: moved},
		Server: bench.Moved{Written: moved, Read: moved}})
	d.Samples = append(d.Samples, bench.Sample{Run: "5", Test: "ib_write_bw/cuda1/dmabuf/nic1", Client: "vm01",
		Server: "vm00", Tool: "perftest", Emulated: true, Error: "attempt 1: no memory"})
	add("6", "ib_write_bw/bidi/cuda1/dmabuf/nic1", 180, nil)
	return d
}

func TestStagedTestsAreNotInTheTableOfGPUs(t *testing.T) {
	t.Parallel()
	d := gpuRecord()
	want := gpuTables(d)
	s := d.Samples[0]
	for _, test := range []string{"vram_write_bw/staged/nic1", "vram_write_bw/staged/cuda1/nic1"} {
		s.Test, s.Run, s.Value = test, test, 12
		d.Samples = append(d.Samples, s)
	}
	if got := gpuTables(d); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	s.Test, s.Run = "vram_write_bw/nic1", "direct"
	if d.Samples = append(d.Samples, s); reflect.DeepEqual(gpuTables(d), want) {
		t.Error("a test without staging is not there")
	}
}

func TestGPUsByNICs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Terminal(&b, gpuRecord(), TerminalOptions{Width: 100}); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "GPUs by NICs")
	table, _, _ = strings.Cut("GPUs by NICs"+table, "One way and both ways")
	const page = `GPUs by NICs, vm01 to vm00, one way, Gb/s, emulated
 memory             eth1
─────────────────────────
 main memory        92.1
 GPU 0         PHB 91.75
 GPU 1        PIX FAILED

GPUs by NICs, vm01 to vm00, all figures, emulated
 NIC        memory  path  one way  both ways  into VRAM  out of VRAM  received
RULE
 eth1  main memory     -     92.1      180.5        0 B          0 B  12.5 MiB
 eth1        GPU 0   PHB    91.75      181.2   18.8 MiB     18.8 MiB  6.26 MiB
 eth1        GPU 1   PIX   FAILED        180          -            -         -
`
	want := strings.Replace(page, "RULE", strings.Repeat("─", 79), 1)
	if table != want {
		t.Errorf("got:\n%s\nwant:\n%s", table, want)
	}
	if rest := b.String(); strings.Contains(rest, "average bandwidth and message rate") ||
		!strings.Contains(rest, "attempt 1: no memory") ||
		!strings.Contains(rest, "Rates by path are modelled: profile h20: pix 195.") {
		t.Errorf("got:\n%s", rest)
	}
}

func TestPagesWithGPUsByNICs(t *testing.T) {
	t.Parallel()
	var page, text strings.Builder
	if err := Page(&page, gpuRecord()); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&text, gpuRecord()); err != nil {
		t.Fatal(err)
	}
	for out, wants := range map[string][]string{
		page.String(): {"<h2 id=\"gpus-h\">GPUs by NICs <span class=\"tag\">emulated</span></h2>",
			"<td>PHB 91.75</td>", "<span " +
				"class=\"tag\">emulated</span>",
			"No count proves the figures with a dash."},
		text.String(): {"## GPUs by NICs, vm01 to vm00, emulated", "| GPU 0 | PHB 91.75 |",
			"by the count of the emulation"},
	} {
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in:\n%s", want, out)
			}
		}
	}
}

// There is no table, even if they name a NIC.
func TestNoTableWithoutGPUs(t *testing.T) {
	t.Parallel()
	d := gpuRecord()
	d.Samples = d.Samples[:4]
	if got := gpuTables(d); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := gpuTables(record.Record{Samples: []bench.Sample{{Test: "ib_write_bw/cuda0", Metric: bench.MetricBWAverage,
		Value: 1, Unit: bench.UnitGbps}, {Test: "unknown"}}}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Other paths have no such note.
func TestModelledRatesAreCalledModelled(t *testing.T) {
	t.Parallel()
	const note = "Modelled: the NICs reach GPUs no faster than the profile of the nodes says, by path: PIX 195 " +
		"Gb/s, PHB 150 Gb/s."
	for _, set := range []bool{false, true} {
		d := gpuRecord()
		for i := range d.GPUPaths {
			if set {
				d.GPUPaths[i].ModelledBits = map[string]int64{"PIX": 195e9, "PHB": 150e9}[d.GPUPaths[i].Path]
			}
		}
		if notes := gpuTables(d)[0].Notes; slices.Contains(notes, note) != set {
			t.Errorf("rates set %v: notes %q", set, notes)
		}
	}
}
