package measure

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/record"
)

// gpuRegionsOutput was recorded on a node with two GPUs in an emulated lab.
const gpuRegionsOutput = `00000000:04:00.0 0x00000000fe600000 0x0000000000000000 0x000000ff20000000 0x0000000000000000
00000000:08:00.0 0x00000000fe200000 0x0000000000000000 0x000000ff00000000 0x0000000000000000
`

// topoOutput is of nvidia-smi topo -m on the same node.
const topoOutput = `	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	PHB	PIX	PHB	0	N/A		N/A
GPU1	PHB	 X 	PHB	PIX	0	N/A		N/A
NIC0	PIX	PHB	 X 	PHB
NIC1	PHB	PIX	PHB	 X 

Legend:

  X    = Self
  SYS  = Connection across the link between NUMA nodes
  NODE = Connection across host bridges of one NUMA node
  PHB  = Connection across a PCIe host bridge
  PXB  = Connection across several PCIe bridges, and no host bridge
  PIX  = Connection across at most one PCIe bridge

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
`

type twoGPULab struct {
	written, read, words uint64 // of the server's GPU 1 by eth1, and of each port
}

func (l *twoGPULab) Exec(_ context.Context, _ string, argv []string) (bench.Output, error) {
	switch line := strings.Join(argv, " "); {
	case strings.HasPrefix(line, "sh -c nvidia-smi --query-gpu"):
		return bench.Output{Stdout: []byte(gpuRegionsOutput)}, nil
	case line == "nvidia-smi topo -m":
		return bench.Output{Stdout: []byte(topoOutput)}, nil
	case strings.HasPrefix(line, "cat /sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data "):
		n := string(slices.Concat([]byte("7"), []byte(strings.Repeat("0", int(l.words)))))
		return bench.Output{Stdout: []byte(n + "\n" + n + "\n")}, nil
	}
	return bench.Output{ExitCode: 127}, nil
}

func (l *twoGPULab) VRAM(context.Context) ([]rack.VRAM, error) {
	var all []rack.VRAM
	for _, node := range []string{"vm00", "vm01"} {
		// The emulation's order is not CUDA's.
		all = append(all, rack.VRAM{Node: node, GPU: 0, Address: 0xff00000000, Moved: []rack.Moved{{NIC: "eth0"},
			{NIC: "eth1", Written: l.written, Read: l.read}}}, rack.VRAM{Node: node, GPU: 1, Address: 0xff20000000,
			Moved: []rack.Moved{{NIC: "eth0", Written: 1 << 40}, {NIC: "eth1", Written: 5}}})
	}
	return all, nil
}

func proverOf(lab gpuLab) *prover {
	nics := []string{"eth0", "eth1"}
	return &prover{lab: lab, nics: map[string][]string{"vm00": nics, "vm01": nics}, nodes: map[string]*gpuNode{}}
}

func TestBytesThatWentToMemoryOfGPUs(t *testing.T) {
	t.Parallel()
	client := bench.Endpoint{Node: "vm01", Device: "mlx5_1"}
	server := bench.Endpoint{Node: "vm00", Device: "mlx5_1"}
	const moved = 100 * 65536
	for _, tt := range []struct {
		test          string
		written, read uint64
		err           string
	}{
		{"ib_write_bw/cuda1/dmabuf/nic1", moved, 0, ""},
		{"ib_write_bw/bidi/cuda1/dmabuf/nic1", moved, moved, ""},
		{"ib_write_bw/cuda1/dmabuf/nic1", moved - 1, moved, "on vm00, the NIC has written 6553599 bytes of VRAM, " +
			"and the " +
			"tool says it moved 6400 KiB"},
		{"ib_write_bw/bidi/cuda1/dmabuf/nic1", moved, 0,
			"on vm00, the NIC has read 0 bytes of VRAM, and the tool says " +
				"it moved 6400 KiB"},
		{"ib_write_bw/nic1", 0, 0, ""},
	} {
		e, err := tool.EngineByName(tt.test)
		if err != nil {
			t.Fatal(err)
		}
		lab := &twoGPULab{}
		p := proverOf(lab)
		samples, err := p.observe(t.Context(), e, client, server, func() ([]bench.Sample, error) {
			lab.written, lab.read, lab.words = tt.written, tt.read, 3
			return []bench.Sample{{Test: tt.test, Client: "vm01", Server: "vm00", Metric: bench.MetricBWAverage,
				Value: 9,
				Unit:  bench.UnitGbps, Bytes: 65536, Iterations: 100}}, nil
		})
		if err != nil || len(samples) != 1 || samples[0].Error != tt.err {
			t.Errorf("%s: %+v, error %v, want %q", tt.test, samples, err, tt.err)
			continue
		}
		end := bench.Moved{Written: tt.written, Read: tt.read, Received: 4 * 6993, Sent: 4 * 6993}
		if diff := cmp.Diff(&bench.VRAM{Client: end, Server: end}, samples[0].VRAM); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tt.test, diff)
		}
		want := []record.GPUPath{{Node: "vm01", GPU: 0, NIC: 1, Name: "eth1, mlx5_1", Path: "PHB"},
			{Node: "vm01", GPU: 1, NIC: 1, Name: "eth1, mlx5_1", Path: "PIX"},
			{Node: "vm00", GPU: 0, NIC: 1, Name: "eth1, mlx5_1", Path: "PHB"},
			{Node: "vm00", GPU: 1, NIC: 1, Name: "eth1, mlx5_1", Path: "PIX"}}
		if diff := cmp.Diff(want, p.paths()); diff != "" {
			t.Errorf("%s: paths (-want +got):\n%s", tt.test, diff)
		}
	}
}

// Tests without a NIC and labs with real GPUs are not observed.
func TestTestsWithoutProof(t *testing.T) {
	t.Parallel()
	for test, p := range map[string]*prover{"ib_write_bw/cuda0": proverOf(&twoGPULab{}),
		"ib_write_bw/nic1": proverOf(nil)} {
		e, err := tool.EngineByName(test)
		if err != nil {
			t.Fatal(err)
		}
		if test == "ib_write_bw/nic1" {
			p.lab = nil
		}
		samples, err := p.observe(t.Context(), e, bench.Endpoint{Node: "vm01"}, bench.Endpoint{Node: "vm00"},
			func() ([]bench.Sample, error) { return []bench.Sample{{Test: test}}, nil })
		if err != nil || len(samples) != 1 || samples[0].VRAM != nil || p.paths() != nil {
			t.Errorf("%s: %+v, error %v", test, samples, err)
		}
	}
}

// The report calls rates of profiles modelled.
func TestRatesOfProfiles(t *testing.T) {
	t.Parallel()
	l, err := lab.Parse("f", []byte("name: x\nnodes: {a: {profile: h20}, b: {image: debian-13+gpu, gpus: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	got := modelled([]record.GPUPath{{Node: "a", Path: "PIX"}, {Node: "a", Path: "SYS"}, {Node: "a"},
		{Node: "b", Path: "PIX"}}, l)
	want := []record.GPUPath{{Node: "a", Path: "PIX", ModelledBits: 195e9}, {Node: "a", Path: "SYS",
		ModelledBits: 123e9},
		{Node: "a"}, {Node: "b", Path: "PIX"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
