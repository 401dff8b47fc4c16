package expect

import (
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

func both(s Side) Path {
	w := Path{Client: s, Server: s}
	w.Client.Node, w.Server.Node = "vm01", "vm00"
	return w
}

func pcie(gts float64, width int, most ...int) bench.PCILink {
	l := bench.PCILink{Address: "0000:41:00.0", Link: topology.Link{SpeedGTs: &gts, Width: &width, MaxSpeedGTs: &gts}}
	for _, m := range most {
		l.MaxWidth = &m
	}
	return l
}

func recordedBandwidth(t *testing.T, file string, bytes int64) float64 {
	t.Helper()
	text, err := os.ReadFile("../tool/testdata/perftest/" + file)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tool.ParsePerftest(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range res.Figures() {
		if x.Bytes == bytes && x.Metric == bench.MetricBWAverage {
			return x.Value
		}
	}
	t.Fatalf("%s has no bandwidth of %d bytes", file, bytes)
	return 0
}

// The limits are computed here by hand.
func TestJudgementsOfRecordedRuns(t *testing.T) {
	// 25 Gb/s, 64 KiB as 16 packets of 4096: 16*82+16 = 1328 bytes of headers, so 25*65536/66864 = 24.503.
	cx4 := Side{Device: "mlx5_0", Rate: 25, IBMTU: 4096, MTU: 4200, PCI: pcie(8, 8, 8), NUMANode: new(2),
		CPUNodes: []int{0, 2}}
	// 200 Gb/s, the same headers: 196.03 for a link, 392.06 for the bond of two.
	h20 := Side{Device: "mlx5_bond_0", Rate: 200, IBMTU: 4096, MTU: 9000, Bond: []string{"reth0", "reth1"},
		NUMANode: new(0), PCI: pcie(32, 16, 16)}
	onGPU := func(gpu string, node int) Path {
		s := h20
		s.GPU = &GPUMemory{gpu, node}
		return both(s)
	}
	contended := both(cx4)
	contended.Load, contended.HostCPUs = 64, 64
	for _, tt := range []struct {
		name    string // source of the run
		test    string
		bytes   int64
		value   float64
		resent  float64
		way     Path
		verdict string
		bound   float64  // Gb/s, computed by hand
		causes  []string // names, in order
		says    []string
	}{
		{name: "an EPYC 7551P with two ConnectX-4 Lx back to back", test: "ib_write_bw", bytes: 65536,
			value: recordedBandwidth(t, "synthetic-write_bw-cx4lx-25g.txt", 65536),
			way:   both(cx4), verdict: VerdictWire, bound: 24.503,
			says: []string{"within 98% of the wire: 24.50 of 24.50 Gb/s (25 Gb/s, IB MTU 4096, headers counted)"}},
		{name: "ConnectX-5 behind a switch, 64 KiB: 96.63 of 100*65536/(65536+16*82) = 98.04", test: "ib_send_bw",
			bytes: 65536, value: 96.63,
			way: both(Side{Device: "mlx5_0", Rate: 100, IBMTU: 4096}), verdict: VerdictWire, bound: 98.04},
		{name: "the same, 4 KiB: the NIC's rate of messages", test: "ib_send_bw", bytes: 4096, value: 88.17,
			way: both(Side{Device: "mlx5_0", Rate: 100, IBMTU: 4096}), verdict: VerdictShort, bound: 98.04,
			causes: []string{"small messages"}, says: []string{"89.9 % of the wire"}},
		// 2728.93 MiB/s = 22.892 Gb/s with Mtu 1024[B] (DaiZhiyuan/study,
		// Distribution/CentOS7/BenchMarkTools/perftest/README.md, commit f9fc11d: under a licence that does not let its
		// log be a fixture). 64 packets: 64*82+16 = 5264, so 25*65536/70800 = 23.141.
		{name: "IB MTU 1024", test: "ib_write_bw", bytes: 65536, value: 2728.93 * (1 << 20) * 8 / 1e9,
			way: both(Side{Device: "mlx5_0", Rate: 25, IBMTU: 1024, MTU: 1500}), verdict: VerdictExplained,
			bound: 23.141, causes: []string{"IB MTU 1024"},
			says: []string{"98.9 % of the wire as it is set up, which carries 23.14 Gb/s; the wire at its best: " +
				"24.50 Gb/s", "active MTU of mlx5_0 on vm01 is 1024", "to 4200"}},
		// Eight H20 and bonds of two 200 Gb/s ports: one queue pair uses one of the ports.
		{name: "one flow on a bond", test: "ib_write_bw/cuda1", bytes: 65536, value: 195.05, way: onGPU("GPU 1", 0),
			verdict: VerdictExplained, bound: 196.03, causes: []string{"one flow on a bond"},
			says: []string{"99.5 % of the wire as it is set up", "1 queue pair, and a bond of 2 links (reth0, reth1)",
				"ib_write_bw/cuda1/q8"}},
		{name: "and a GPU on the other NUMA node", test: "ib_write_bw/cuda4", bytes: 65536, value: 124.38,
			way: onGPU("GPU 4", 1), verdict: VerdictShort, bound: 196.03,
			causes: []string{"one flow on a bond", "wrong NUMA node"},
			says: []string{"63.4 %", "mlx5_bond_0 (0000:41:00.0) is on NUMA node 0 of vm01, and the memory of GPU " +
				"4 on NUMA node 1"}},
		// No known fact distinguishes its path from that of GPU 0, which is as fast as the port.
		{name: "a slow path in one NUMA node", test: "ib_write_bw/cuda2", bytes: 65536, value: 178.81,
			way: func() Path {
				w := onGPU("GPU 2", 0)
				w.Client.Bond, w.Server.Bond = nil, nil
				return w
			}(), verdict: VerdictNoCause, bound: 196.03, says: []string{"91.2 % of the wire",
				"no cause was found in what is known: PCIe link, IB MTU, NUMA nodes; not known: stolen CPU time, " +
					"load of " +
					"the host"}},
		// Intel X520-2 in a slot of PCIe 2.0 x4 ("never exceeds 13.90Gbps",
		// https://ahelpme.com/tag/10-gigabit-sfi-sfp/): 5*4*8/10 = 16, *256/280 = 14.629. By TCP the wire carries
		// 20*1448/1538 = 18.83.
		{name: "PCIe Gen 2", test: "iperf3", value: 13.90,
			way: both(Side{Device: "ixgbe", Rate: 20, MTU: 1500, PCI: pcie(5, 4, 8)}), verdict: VerdictExplained,
			bound:  14.629,
			causes: []string{"PCIe Gen 2 x4 link"}, says: []string{"95.0 % of the PCIe link, which carries 14.63 Gb/s",
				"5 GT/s x4 (Gen 2)", "the card can do 5 GT/s x8 (Gen 2)", "lspci -vv -s 0000:41:00.0"}},
		// QLogic QL41212 with two of its eight lanes, "can only reach to about 13Gbps"
		// (https://lists.freebsd.org/archives/freebsd-hackers/2025-August/004922.html): 8*2*128/130*256/280 = 14.403.
		{name: "two lanes of eight", test: "iperf3", value: 13,
			way: both(Side{Device: "ql0", Rate: 25, MTU: 1500, PCI: pcie(8, 2, 8)}), verdict: VerdictExplained,
			bound:  14.403,
			causes: []string{"PCIe Gen 3 x2 link"}, says: []string{"90.2 % of the PCIe link"}},
		// Virtual machines of the EPYC, with 64 workers of stress-ng on 64 CPUs: TCP with MTU 4200 gets
		// 25*(4200-52)/4238 = 24.469.
		{name: "contention", test: "iperf3", value: 7.9, resent: 6, way: contended, verdict: VerdictShort,
			bound: 24.469, causes: []string{"contention for CPUs", "loss", "wrong NUMA node"},
			says: []string{"32.2 % of the wire, which carries 24.47 Gb/s (25 Gb/s, MTU 4200",
				"64 threads wanted to run on the 64 CPUs", "TCP sent 6 segments again",
				"free to run on CPUs of NUMA nodes 0, 2"}},
		{name: "the same with isolated CPUs: no harm done, so none is named", test: "iperf3", value: 24.1,
			way: contended, verdict: VerdictWire, bound: 24.469},
		{name: "two bytes", test: "ib_write_bw", bytes: 2,
			value: recordedBandwidth(t, "synthetic-write_bw-cx4lx-25g.txt", 2), way: both(cx4), verdict: VerdictShort,
			bound:  0.4902,
			causes: []string{"small messages", "wrong NUMA node"}},
		// No puts of UCX on such a machine are published.
		{name: "puts of UCX on the bond", test: "ucx_put_bw", bytes: 65536, value: 195.05, way: both(h20),
			verdict: VerdictExplained, bound: 196.03, causes: []string{"one flow on a bond"},
			says: []string{"measure with several: ib_write_bw/q8"}},
		{name: "MPI, which chooses its way", test: "osu_bw", bytes: 65536, value: 20,
			way: both(Side{Device: "mlx5_0", Rate: 25, IBMTU: 4096}), verdict: VerdictNone,
			says: []string{"no expectation: the headers of osu_bw on the wire are not known, nor is a PCIe link"}},
		{name: "nothing is known", test: "ib_write_bw", bytes: 65536, value: 20, way: both(Side{}),
			verdict: VerdictNone, says: []string{"neither the rate of the port nor its PCIe link is known"}},
		{name: "only the rate is known", test: "ib_write_bw", bytes: 65536, value: 20, way: both(Side{Rate: 25}),
			verdict: VerdictNoCause, bound: 24.503, says: []string{"which is only the port's rate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			metric := bench.MetricBWAverage
			samples := []bench.Sample{{Run: "2", Test: tt.test, Client: "vm01", Server: "vm00", Bytes: tt.bytes,
				Value: tt.value}}
			if tt.test == "iperf3" {
				metric = bench.MetricThroughput
				samples = append(samples, bench.Sample{Run: "2", Test: tt.test, Client: "vm01", Server: "vm00",
					Metric: bench.MetricRetransmits, Value: tt.resent})
			}
			samples[0].Metric = metric
			got := Judge(samples, func(client, server, run string) Path {
				if client != "vm01" || server != "vm00" || run != "2" {
					t.Errorf("asked for the way from %q to %q in run %q", client, server, run)
				}
				return tt.way
			})
			if len(got) != 1 {
				t.Fatalf("%d judgements", len(got))
			}
			j := got[0]
			if j.Verdict != tt.verdict || math.Abs(j.Bound-tt.bound) > 0.0005*tt.bound {
				t.Errorf("verdict %q, bound %.5g, want %q and %.5g", j.Verdict, j.Bound, tt.verdict, tt.bound)
			}
			var causes []string
			text := j.Text
			for _, c := range j.Causes {
				causes = append(causes, c.What)
				text += "\n" + c.Evidence + "\n" + c.Fix
			}
			if diff := cmp.Diff(tt.causes, slices.Compact(causes)); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
			for _, s := range tt.says {
				if !strings.Contains(text, s) {
					t.Errorf("does not say %q:\n%s", s, text)
				}
			}
		})
	}
}

// The limits are computed here by hand.
func TestJudgementsOfRecordedCopies(t *testing.T) {
	gpu := func(gts float64, width int, mostGTs float64, mostWidth int) Path {
		l := bench.PCILink{Address: "0000:06:00.0", Link: topology.Link{SpeedGTs: &gts, Width: &width,
			MaxSpeedGTs: &mostGTs, MaxWidth: &mostWidth}}
		return Path{Client: Side{Node: "vm00", GPUs: []bench.GPULink{{PCILink: l, NUMANode: new(1)}}}}
	}
	far, free := gpu(16, 16, 16, 16), gpu(16, 16, 16, 16)
	far.Client.MemoryNodes, free.Client.MemoryNodes = []int{0}, []int{0, 1}
	two := gpu(16, 16, 16, 16)
	two.Client.GPUs = append(two.Client.GPUs, gpu(16, 4, 16, 16).Client.GPUs[0])
	two.Client.GPUs[1].Address = "0000:07:00.0"
	stolen := gpu(16, 16, 16, 16)
	stolen.Client.Steal, stolen.HostCPUs = new(0.25), 64
	for _, tt := range []struct {
		name    string // source of the run
		value   float64
		way     Path
		verdict string
		bound   float64 // GB/s, computed by hand
		causes  []string
		says    []string
	}{
		// An RTX 5090 in a virtual machine, "about 5 GB/s" both ways (6erun/vcpu_benchmarks, README.md and
		// utils/qemu_hook.sh, commit 8476fab). Its author writes later that it looked like PCIe Gen 2, the slowest that
		// carries 5 GB/s: 5*16*8/10/8 = 8, *256/280 = 7.314.
		{name: "RTX 5090 at Gen 2", value: 5, way: gpu(5, 16, 32, 16), verdict: VerdictShort, bound: 7.314,
			causes: []string{"PCIe Gen 2 x16 link"},
			says: []string{"68.3 % of the PCIe link, which carries 7.31 GB/s (5 GT/s x16 (Gen 2)",
				"; at its best: 57.6", "the GPU at 0000:06:00.0 on vm00 had 5 GT/s x16 (Gen 2) after the copies",
				"the card can do 32 GT/s x16 (Gen 5)", "current_link_speed while it copies"}},
		// At 2.5 GT/s, the link carries 4 GB/s at most: it was not read during the copies.
		{name: "the same, its link read when it was idle", value: 5, way: gpu(2.5, 16, 32, 16), verdict: VerdictShort,
			bound: 57.614, causes: []string{"PCIe Gen 2 link"},
			says: []string{"8.6 % of the PCIe link at its best, which carries 57.61 GB/s", "it was faster before",
				"fits 5 GT/s x16 (Gen 2), which carries 7.31 GB/s"}},
		// "After retrain about 24 GB/s (Gen4 platform ceiling)": 16*16*128/130/8 = 31.508, *256/280 = 28.807.
		{name: "the same, trained again", value: 24, way: gpu(16, 16, 32, 16), verdict: VerdictExplained, bound: 28.807,
			causes: []string{"PCIe Gen 4 x16 link"},
			says: []string{"83.3 % of the PCIe link, which carries 28.81 GB/s (16 GT/s x16 (Gen 4)",
				"; at its best: 57.61 GB/s (32 GT/s x16 (Gen 5))"}},
		{name: "RTX 4080, the slower end", value: 22, way: gpu(16, 16, 16, 16), verdict: VerdictWire, bound: 28.807,
			says: []string{"76.3 % of the PCIe link, which carries 28.81 GB/s"}},
		{name: "RTX 4090, the faster end", value: 26, way: gpu(16, 16, 16, 16), verdict: VerdictWire, bound: 28.807},
		{name: "the same, its link read when it was idle: no harm done", value: 26, way: gpu(2.5, 16, 16, 16),
			verdict: VerdictWire, bound: 28.807, says: []string{"90.2 %"}},
		// nvbandwidth 0.8 on eight A100-SXM4 (https://forums.developer.nvidia.com/t/352186).
		{name: "A100", value: 24.81, way: gpu(16, 16, 16, 16), verdict: VerdictWire, bound: 28.807,
			says: []string{"86.1 %"}},
		// From here on the facts about the machine are invented.
		{name: "few lanes", value: 5, way: gpu(16, 4, 16, 16), verdict: VerdictShort, bound: 7.202,
			causes: []string{"PCIe Gen 4 x4 link"}},
		{name: "one of two GPUs has few lanes", value: 5, way: two, verdict: VerdictShort, bound: 7.202,
			causes: []string{"PCIe Gen 4 x4 link"}, says: []string{"the GPU at 0000:07:00.0"}},
		{name: "memory of the other NUMA node", value: 5, way: far, verdict: VerdictShort, bound: 28.807,
			causes: []string{"wrong NUMA node"},
			says: []string{"0000:06:00.0 is on NUMA node 1 of vm00, and the memory was taken from NUMA node 0",
				"measure with --numa 1, or without --cpu and --numa"}},
		{name: "memory of any NUMA node", value: 5, way: free, verdict: VerdictShort, bound: 28.807,
			causes: []string{"wrong NUMA node"}, says: []string{"from NUMA node 0, 1"}},
		{name: "stolen time", value: 5, way: stolen, verdict: VerdictShort, bound: 28.807,
			causes: []string{"contention for CPUs"}},
		{name: "nothing explains it", value: 5, way: gpu(16, 16, 16, 16), verdict: VerdictNoCause, bound: 28.807,
			says: []string{"17.3 % of the PCIe link",
				"no cause was found in what is known: PCIe link, NUMA nodes; not known: stolen CPU time, load of " +
					"the host"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, test := range []string{"gpu_bandwidth_h2d", "gpu_bandwidth_d2h"} {
				all := Judge([]bench.Sample{{Run: "2", Test: test, Client: "vm00", Metric: bench.MetricCopyBandwidth,
					Value: tt.value}}, func(_, _, _ string) Path {
					return tt.way
				})
				if len(all) != 1 {
					t.Fatalf("%d judgements", len(all))
				}
				j := all[0]
				if j.Verdict != tt.verdict || math.Abs(j.Bound-tt.bound) > 0.0005*tt.bound {
					t.Errorf("verdict %q, bound %.5g, want %q and %.5g", j.Verdict, j.Bound, tt.verdict, tt.bound)
				}
				var causes []string
				text := j.Text
				for _, c := range j.Causes {
					causes = append(causes, c.What)
					text += "\n" + c.Evidence + "\n" + c.Fix
				}
				if diff := cmp.Diff(tt.causes, causes); diff != "" {
					t.Errorf("causes (-want +got):\n%s", diff)
				}
				for _, s := range tt.says {
					if !strings.Contains(text, s) {
						t.Errorf("does not say %q:\n%s", s, text)
					}
				}
			}
		})
	}
}

// Neither are copies within a GPU.
func TestCopiesOverUnknownLinksAreNotJudged(t *testing.T) {
	known := func(_, _, _ string) Path {
		return Path{Client: Side{Node: "vm00", GPUs: []bench.GPULink{{PCILink: pcie(16, 16, 16)}}}}
	}
	copied := bench.Sample{Test: "gpu_bandwidth_h2d", Client: "vm00", Metric: bench.MetricCopyBandwidth, Value: 5}
	within, failed := copied, copied
	within.Test, failed.Error = "gpu_bandwidth_local", "no result"
	for _, j := range [][]Judgement{
		Judge([]bench.Sample{copied}, func(_, _, _ string) Path { return Path{Client: Side{Node: "vm00"}} }),
		Judge([]bench.Sample{within, failed}, known),
	} {
		if len(j) != 0 {
			t.Errorf("%+v", j)
		}
	}
}

// All are below the limit that is refused.
func TestPublishedCopiesAreAShareOfTheLink(t *testing.T) {
	for _, tt := range []struct{ gts, published float64 }{
		{16, 22}, {16, 26}, {16, 24.81}, // see TestJudgementsOfRecordedCopies
		// a virtual function of an MI350X (6erun/vcpu_benchmarks, generate_report.py, commit 8476fab)
		{32, 54.70}, {32, 57.04},
		// tool/testdata/nvbandwidth/recorded-0.8-h200.txt: by the copy engine, and by the GPU's threads
		{32, 55.39}, {32, 55.30}, {32, 51.36}, {32, 52.58},
		// tool/testdata/nvbandwidth/recorded-0.8-h100.txt
		{32, 54.61}, {32, 54.51}, {32, 50.67}, {32, 51.81},
	} {
		l := pcie(tt.gts, 16, 16)
		if share := tt.published / l.Capacity(); share < copyShare || tt.published > l.LineRate() {
			t.Errorf("%g GB/s over %v is %.3f of what it carries", tt.published, l, share)
		}
	}
}

func TestACopySideIsWhatANodeSaysOfItself(t *testing.T) {
	node, err := facts.Parse(
		[]byte(`nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build
node/0/cpus 0,1
node/1/cpus 2,3
pci/0000:c1:00.0/numa_node 1
pci/0000:c1:00.0/current_link_speed 5.0 GT/s PCIe
pci/0000:c1:00.0/current_link_width 16
pci/0000:c1:00.0/max_link_speed 32.0 GT/s PCIe
pci/0000:c1:00.0/max_link_width 16
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		place  bench.Place
		memory []int
	}{{bench.Place{}, nil}, {bench.Place{CPUs: "0-1"}, []int{0}}, {bench.Place{CPUs: "1-2"}, []int{0, 1}},
		{bench.Place{CPUs: "0-1", Memory: "1"}, []int{1}}} {
		s := CopySideOf(bench.Endpoint{Node: "vm00"}, tt.place, "00000000:C1:00.0\n", node)
		if len(s.GPUs) != 1 || s.GPUs[0].String() != "5 GT/s x16 (Gen 2)" || *s.GPUs[0].NUMANode != 1 ||
			!slices.Equal(s.MemoryNodes, tt.memory) {
			t.Errorf("%+v: %+v", tt.place, s)
		}
	}
	for _, ids := range []string{"", "00000000:C2:00.0\n", "00000000:C1:00.0\n00000000:C2:00.0\n", "[N/A]\n"} {
		if s := CopySideOf(bench.Endpoint{Node: "vm00"}, bench.Place{}, ids, node); s.GPUs != nil {
			t.Errorf("GPUs %q: %+v", ids, s)
		}
	}
	if s := CopySideOf(bench.Endpoint{Node: "vm00"}, bench.Place{Memory: "1"}, "00000000:C1:00.0\n",
		nil); s.GPUs != nil || s.MemoryNodes != nil {
		t.Errorf("a node that says nothing: %+v", s)
	}
}

// Rate x lanes x line code x 256/280.
func TestPCIeLimit(t *testing.T) {
	for _, tt := range []struct {
		gts   float64
		width int
		want  float64
	}{
		{2.5, 1, 2.5 * 0.8 * 256 / 280}, {5, 8, 32 * 256. / 280}, {8, 8, 64 * 128. / 130 * 256 / 280},
		{16, 16, 256 * 128. / 130 * 256 / 280}, {7, 8, 0}, {8, 0, 0},
	} {
		if got := bench.PCIeLimit(tt.gts, tt.width); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%g GT/s x%d: %g, want %g", tt.gts, tt.width, got, tt.want)
		}
	}
	w := both(Side{Device: "d", Rate: 100, IBMTU: 4096, PCI: pcie(8, 8, 8)})
	for test, want := range map[string]float64{"ib_write_bw": 57.6, "ib_write_bw/bidi": 115.2} {
		j := Judge([]bench.Sample{{Test: test, Client: "a", Server: "b", Metric: bench.MetricBWAverage, Bytes: 65536,
			Value: 0.95 * want}}, func(_, _, _ string) Path {
			return w
		})[0]
		if j.Verdict != VerdictExplained || math.Abs(j.Bound-want) > 0.1 {
			t.Errorf("%s: %s, bound %g, want %g", test, j.Verdict, j.Bound, want)
		}
	}
}

// Whether the host reaches the rate of an emulated port says nothing about a set-up.
func TestEmulatedFiguresAreHeldAgainstTheirWire(t *testing.T) {
	for value, want := range map[float64]string{24.4: VerdictWire, 12: VerdictEmulated} {
		j := Judge([]bench.Sample{{Test: "ib_write_bw", Client: "a", Server: "b", Metric: bench.MetricBWAverage,
			Bytes: 65536, Value: value, Emulated: true, Limit: 24.5}}, func(_, _, _ string) Path { return Path{} })
		if len(j) != 1 || j[0].Verdict != want || j[0].Wire != 24.5 || j[0].Bound != 24.5 || j[0].Causes != nil ||
			!j[0].Emulated || !strings.Contains(j[0].Text, "of the emulated wire") {
			t.Errorf("%g: %+v", value, j)
		}
	}
}

func TestEmulatedFiguresAreHeldAgainstNothing(t *testing.T) {
	j := Judge([]bench.Sample{{Test: "ib_write_bw", Client: "a", Server: "b", Metric: bench.MetricBWAverage,
		Bytes: 65536, Value: 0.2, Emulated: true}}, func(_, _, _ string) Path {
		return both(Side{Rate: 2.5, IBMTU: 4096, PCI: pcie(2.5, 1)})
	})
	if len(j) != 1 || j[0].Verdict != VerdictNone || j[0].Bound != 0 || j[0].Causes != nil ||
		!strings.Contains(j[0].Text, "the rate of its wire is made up") {
		t.Errorf("%+v", j)
	}
	if got := ComparePublished([]bench.Sample{{Test: "ib_write_lat", Client: "a", Server: "b",
		Metric: bench.MetricLatencyTypical, Bytes: 2, Value: 339, Emulated: true}}); got != nil {
		t.Errorf("an emulated latency stands beside a published one: %+v", got)
	}
}

// A limit several times above a figure is not its cause, and a log of others has no advice in our flags.
func TestCausesOfLogsOfOthers(t *testing.T) {
	s := Side{Device: "mlx5_0", Rate: 200, IBMTU: 1024, MTU: 9000, NUMANode: new(1), Near: topology.CPURange(8, 15),
		CPUNodes: []int{0, 1}, PCI: pcie(16, 16, 16), Bond: []string{"a", "b"}}
	s.PCI.Address = "0000:41:00.0"
	for _, tt := range []struct {
		value   float64
		foreign bool
		want    []string
		never   string
	}{
		{180, false, []string{"PCIe Gen 4 x16 link", "in a lab file", "ib_write_bw/q8",
			"--cpu 8-15 --numa 1"},
			"numactl"},
		{180, true, []string{"PCIe Gen 4 x16 link", "IB MTU 1024", "perftest has -q 8",
			"numactl --cpunodebind=1 --membind=1", "the log does not tell its CPUs"}, "--numa"},
		{1.69, true, []string{"wrong NUMA node"}, "PCIe Gen"},
		{1.69, false, []string{"wrong NUMA node"}, "IB MTU"},
	} {
		w := both(s)
		w.Foreign = tt.foreign
		j := Judge([]bench.Sample{{Test: "ib_write_bw", Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage,
			Bytes: 65536, Value: tt.value}}, func(_, _, _ string) Path { return w })[0]
		text, err := json.Marshal(j.Causes)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%g Gb/s: no %q in %s", tt.value, want, text)
			}
		}
		if strings.Contains(string(text), tt.never) {
			t.Errorf("%g Gb/s: %q in %s", tt.value, tt.never, text)
		}
	}
}

// Made-up facts: no published bad run includes them.
func TestStolenTimeAndFarCPUsAreNamed(t *testing.T) {
	s := Side{Device: "mlx5_0", Rate: 100, IBMTU: 4096, NUMANode: new(1), Near: topology.CPURange(8, 15),
		CPUNodes: []int{0}, PCI: pcie(16, 16, 16), Steal: new(0.25)}
	j := Judge([]bench.Sample{{Test: "ib_write_bw", Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage,
		Bytes: 65536, Value: 60}}, func(_, _, _ string) Path {
		return both(s)
	})[0]
	text, err := json.Marshal(j.Causes)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"is on NUMA node 1 of vm01, and the tool ran on CPUs of NUMA node 0",
		"measure with --cpu 8-15 --numa 1",
		"CPUs of vm01 had work and were not let run for 25.0 % of the time; CPUs of vm00"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if got := Steal(facts.CPUTime{Busy: 10, Steal: 1}, facts.CPUTime{Busy: 13, Steal: 2}); got == nil || *got != 0.25 {
		t.Errorf("1 s of 4 was stolen: %v", got)
	}
	for _, after := range []facts.CPUTime{{Busy: 10, Steal: 1}, {Busy: 9, Steal: 1}, {Busy: 10, Steal: 0}} {
		if got := Steal(facts.CPUTime{Busy: 10, Steal: 1}, after); got != nil {
			t.Errorf("%+v: %v, want nothing", after, *got)
		}
	}
}

func TestLatenciesStandBesidePublishedOnes(t *testing.T) {
	got := ComparePublished([]bench.Sample{
		{Test: "ib_write_lat", Client: "vm01", Server: "vm00", Metric: bench.MetricLatencyTypical, Bytes: 2,
			Value: 1.62},
		{Test: "ib_write_lat", Client: "vm01", Server: "vm00", Metric: bench.MetricLatencyP99, Bytes: 2, Value: 1.97},
		{Test: "ib_write_lat", Client: "vm01", Server: "vm00", Metric: bench.MetricLatencyP99, Bytes: 64, Value: 3},
	})
	of := "ConnectX-4 Lx, 25 Gb/s, two virtual machines back to back"
	want := []PublishedComparison{{"ib_write_lat", "vm01", "vm00", bench.MetricLatencyTypical, 2, 1.62, 1.44, of},
		{"ib_write_lat", "vm01", "vm00", bench.MetricLatencyP99, 2, 1.97, 1.53, of}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestASideIsWhatANodeSaysOfItself(t *testing.T) {
	node, err := facts.Parse([]byte(`net/bond0/mtu 9000
net/bond0/members reth0 reth1
rdma/mlx5_bond_0/1/rate 200 Gb/sec (2X NDR)
rdma/mlx5_bond_0/1/gid/3 0000:0000:0000:0000:0000:ffff:c812:000e bond0 RoCE v2
rdma/mlx5_bond_0/pci 0000:2c:00.0
node/0/cpus 0,1
node/1/cpus 2,3
pci/0000:2c:00.0/class 0x020000
pci/0000:2c:00.0/numa_node 1
pci/0000:2c:00.0/current_link_speed 16.0 GT/s PCIe
pci/0000:2c:00.0/current_link_width 8
pci/0000:2c:00.0/max_link_speed 32.0 GT/s PCIe
pci/0000:2c:00.0/max_link_width 16
`))
	if err != nil {
		t.Fatal(err)
	}
	ep := bench.Endpoint{Node: "vm00", Addr: netip.MustParseAddr("200.18.0.14"), Device: "mlx5_bond_0", GIDIndex: 3,
		Wire: bench.Wire{Rate: 200, MTU: 4096}}
	s := SideOf(ep, bench.Place{CPUs: "0-1"}, node)
	if s.MTU != 9000 || len(s.Bond) != 2 || s.PCI.String() != "16 GT/s x8 (Gen 4)" || *s.NUMANode != 1 ||
		s.Near.String() != "2-3" || !slices.Equal(s.CPUNodes, []int{0}) {
		t.Errorf("%+v", s)
	}
	if best, down := s.PCI.Trained(); !down || best != "32 GT/s x16 (Gen 5)" {
		t.Errorf("the link could be %s: %v", best, down)
	}
	if s := SideOf(ep, bench.Place{}, node); !slices.Equal(s.CPUNodes, []int{0, 1}) {
		t.Errorf("not pinned: nodes %v", s.CPUNodes)
	}
	if s := SideOf(ep, bench.Place{}, nil); s.Rate != 200 || s.PCI.Address != "" || s.NUMANode != nil {
		t.Errorf("a node that says nothing: %+v", s)
	}
}

// For any facts about a path.
func TestJudgementsAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) Side {
			s := Side{Node: name, Device: "d", Rate: rapid.SampledFrom([]float64{0, 10, 25, 100, 400}).Draw(t, "rate"),
				IBMTU: rapid.SampledFrom([]int{0, 256, 1024, 4096}).Draw(t, "IB MTU"),
				MTU:   rapid.SampledFrom([]int{0, 60, 1500, 9000}).Draw(t, "MTU"), IPv6: rapid.Bool().Draw(t, "IPv6"),
				Bond: make([]string, rapid.IntRange(0, 3).Draw(t, "bond"))}
			if rapid.Bool().Draw(t, "PCIe") {
				s.PCI = pcie(rapid.SampledFrom([]float64{2.5, 5, 16}).Draw(t, "speed"),
					rapid.SampledFrom([]int{1, 8, 16}).Draw(t, "width"), 16)
				s.NUMANode, s.CPUNodes = new(rapid.IntRange(-1, 1).Draw(t, "node")), []int{0}
			}
			return s
		}
		w := Path{Client: side("a"), Server: side("b"), Load: rapid.Float64Range(0, 99).Draw(t, "load"),
			HostCPUs: rapid.IntRange(0, 64).Draw(t, "CPUs")}
		s := bench.Sample{Test: rapid.SampledFrom([]string{"ib_write_bw", "ib_read_bw/q4", "ib_send_bw/ud",
			"ib_write_bw/bidi", "ib_atomic_bw", "iperf3", "ucx_put_bw", "other"}).Draw(t, "test"),
			Client: "a", Server: "b", Metric: bench.MetricBWAverage, Bytes: rapid.Int64Range(1, 1<<23).Draw(t, "bytes"),
			Value: rapid.Float64Range(0.001, 900).Draw(t, "value")}
		if s.Test == "iperf3" {
			s.Metric, s.Bytes = bench.MetricThroughput, 0
		}
		j := Judge([]bench.Sample{s}, func(_, _, _ string) Path { return w })[0]
		if _, err := json.Marshal(j); err != nil {
			t.Fatal(err)
		}
		if j.Wire > 0 && j.Bound > j.Wire*(1+1e-9) {
			t.Errorf("the way carries %g, and the wire %g", j.Bound, j.Wire)
		}
		if named := j.Verdict == VerdictExplained || j.Verdict == VerdictShort; named != (len(j.Causes) > 0) ||
			j.Text == "" {
			t.Errorf("verdict %q with %d causes: %s", j.Verdict, len(j.Causes), j.Text)
		}
		if (j.Verdict == VerdictWire) != (j.Wire > 0 && s.Value >= WireShare*j.Wire) {
			t.Errorf("%g of %g is %q", s.Value, j.Wire, j.Verdict)
		}
		for _, c := range j.Causes {
			if c.What == "" || c.Evidence == "" || c.Fix == "" || c.Ceiling < 0 {
				t.Errorf("a cause says too little: %+v", c)
			}
		}
	})
}

// The same for copies, with any links.
func TestJudgementsOfCopiesAreSound(t *testing.T) {
	d2h, err := tool.EngineByName("gpu_bandwidth_d2h")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var gpus []bench.GPULink
		for range rapid.IntRange(1, 3).Draw(t, "GPUs") {
			speed, width := rapid.SampledFrom([]float64{2.5, 5, 8, 16, 32}), rapid.SampledFrom([]int{1, 4, 8, 16})
			l := bench.PCILink{Address: "0000:41:00.0", Link: topology.Link{SpeedGTs: new(speed.Draw(t, "speed")),
				Width: new(width.Draw(t, "width")), MaxSpeedGTs: new(speed.Draw(t, "best speed")),
				MaxWidth: new(width.Draw(t, "best width"))}}
			gpus = append(gpus, bench.GPULink{PCILink: l, NUMANode: rapid.SampledFrom([]*int{nil, new(-1), new(0),
				new(1)}).Draw(t, "node")})
		}
		w := Path{Client: Side{Node: "a", GPUs: gpus, MemoryNodes: rapid.SampledFrom([][]int{nil, {0}, {0, 1}}).Draw(t,
			"memory")}, Load: rapid.Float64Range(0, 99).Draw(t, "load"), HostCPUs: rapid.IntRange(0, 64).Draw(t,
			"CPUs")}
		s := bench.Sample{Test: d2h.Name, Client: "a", Metric: bench.MetricCopyBandwidth,
			Value: rapid.Float64Range(0.001, 70).Draw(t, "value")}
		most := bench.SlowestLink(gpus, func(g bench.GPULink) float64 { return g.Best().LineRate() }).Best().LineRate()
		if s.Value > most {
			return // no sample
		}
		j := Judge([]bench.Sample{s}, func(_, _, _ string) Path { return w })[0]
		if _, err := json.Marshal(j); err != nil {
			t.Fatal(err)
		}
		if j.Wire <= 0 || j.Bound > j.Wire*(1+1e-9) {
			t.Errorf("the link carries %g, and at its best %g", j.Bound, j.Wire)
		}
		if named := j.Verdict == VerdictExplained || j.Verdict == VerdictShort; named != (len(j.Causes) > 0) ||
			j.Text == "" {
			t.Errorf("verdict %q with %d causes: %s", j.Verdict, len(j.Causes), j.Text)
		}
		if (j.Verdict == VerdictWire) != (s.Value >= copyShare*j.Wire) {
			t.Errorf("%g of %g is %q", s.Value, j.Wire, j.Verdict)
		}
		for _, c := range j.Causes {
			if c.What == "" || c.Evidence == "" || c.Fix == "" || c.Ceiling < 0 {
				t.Errorf("a cause says too little: %+v", c)
			}
		}
	})
}
