package measure

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack/verify/checks"
)

// aLab is two nodes with an NVIDIA GPU. Each reading of /proc/stat adds 3 s of work and 1 s of stolen time.
type aLab struct {
	looks map[string]int
	asked []string
	deaf  bool
}

func (l *aLab) Exec(_ context.Context, node string, argv []string) (bench.Output, error) {
	l.asked = append(l.asked, node+" "+strings.Join(argv, " "))
	if l.deaf {
		return bench.Output{}, errors.New("it does not answer")
	}
	if argv[0] == "nvidia-smi" {
		return bench.Output{Stdout: []byte("00000000:C1:00.0\n")}, nil
	}
	n := l.looks[node]
	l.looks[node]++
	return bench.Output{Stdout: []byte("cpu " + []string{"100", "400"}[n] + " 0 0 0 0 0 0 " + []string{"100",
		"200"}[n] + " 0 0\n")}, nil
}

func (l *aLab) Facts(_ context.Context, node string) (*facts.Node, error) {
	if l.deaf {
		return nil, errors.New("it does not answer")
	}
	return facts.Parse([]byte(`nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build
net/eth1/mtu 4200
rdma/mlx5_0/1/gid/3 0000:0000:0000:0000:0000:ffff:0a00:0001 eth1 RoCE v2
rdma/mlx5_0/pci 0000:41:00.0
node/0/cpus 0,1
node/1/cpus 2,3
pci/0000:41:00.0/numa_node 0
pci/0000:41:00.0/current_link_speed 5.0 GT/s PCIe
pci/0000:41:00.0/current_link_width 8
pci/0000:c1:00.0/numa_node 1
pci/0000:c1:00.0/current_link_speed 2.5 GT/s PCIe
pci/0000:c1:00.0/current_link_width 16
pci/0000:c1:00.0/max_link_speed 16.0 GT/s PCIe
pci/0000:c1:00.0/max_link_width 16
`))
}

func TestWhatIsKnownOfAPath(t *testing.T) {
	e, err := tool.EngineByName("ib_write_bw/cuda4")
	if err != nil {
		t.Fatal(err)
	}
	at := func(node string) bench.Endpoint {
		return bench.Endpoint{Node: node, Addr: netip.MustParseAddr("10.0.0.1"), Device: "mlx5_0", GIDIndex: 3,
			Wire: bench.Wire{Rate: 100, MTU: 4096}}
	}
	findings := []finding.Finding{{ID: checks.IDIBMTU, Subject: "vm01 mlx5_0", Have: "1024"},
		{ID: checks.IDIBMTU, Subject: "vm00 mlx5_0", Have: "no answer"}}
	measured := func() ([]bench.Sample, error) { return []bench.Sample{{Run: "r"}}, nil }
	lab := &aLab{looks: map[string]int{}}
	w := newPaths(lab, false, bench.Options{CPU: "2-3"}, findings)
	if _, err := w.observe(t.Context(), e, at("vm01"), at("vm00"), measured); err != nil {
		t.Fatal(err)
	}
	got := w.path("vm01", "vm00", "r")
	c := got.Client
	if c.IBMTU != 1024 || got.Server.IBMTU != 0 || c.MTU != 4200 || c.PCI.String() != "5 GT/s x8 (Gen 2)" ||
		*c.NUMANode != 0 || len(c.CPUNodes) != 1 || c.CPUNodes[0] != 1 {
		t.Errorf("client: %+v, server: %+v", c, got.Server)
	}
	if c.Steal == nil || *c.Steal != 0.25 {
		t.Errorf("1 s of 4 was stolen: %v", c.Steal)
	}
	if c.GPU == nil || c.GPU.NUMANode != 1 || c.GPU.Name != "GPU 4" {
		t.Errorf("GPU: %+v", c.GPU)
	}
	// Unreadable values stop nothing.
	w = newPaths(&aLab{looks: map[string]int{}, deaf: true}, false, bench.Options{}, nil)
	if _, err := w.observe(t.Context(), e, at("vm01"), at("vm00"), measured); err != nil {
		t.Fatal(err)
	}
	if c := w.path("", "", "r").Client; c.Rate != 100 || c.Steal != nil || c.GPU != nil || c.NUMANode != nil {
		t.Errorf("a node that does not answer: %+v", c)
	}
	// An emulated lab is not queried.
	lab = &aLab{looks: map[string]int{}}
	w = newPaths(lab, true, bench.Options{}, findings)
	if _, err := w.observe(t.Context(), e, at("vm01"), at("vm00"), measured); err != nil || len(lab.asked) > 0 ||
		len(w.runs) > 0 {
		t.Errorf("%v; asked %q, knows %v", err, lab.asked, w.runs)
	}
	failed := errors.New("ended")
	if _, err := newPaths(lab, false, bench.Options{}, nil).observe(t.Context(), e, at("vm01"), at("vm00"),
		func() ([]bench.Sample, error) {
			return nil, failed
		}); !errors.Is(err, failed) {
		t.Errorf("the error of the measurement is lost: %v", err)
	}
}

func TestWhatIsKnownOfCopies(t *testing.T) {
	engine := func(name string) bench.Engine {
		e, err := tool.EngineByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	measured := func() ([]bench.Sample, error) { return []bench.Sample{{Run: "r"}}, nil }
	lab := &aLab{looks: map[string]int{}}
	w := newPaths(lab, false, bench.Options{CPU: "2-3"}, nil)
	if _, err := w.observe(t.Context(), engine("gpu_bandwidth_h2d"), bench.Endpoint{Node: "vm01"}, bench.Endpoint{},
		measured); err != nil {
		t.Fatal(err)
	}
	way := w.path("vm01", "", "r")
	if c := way.Client; len(c.GPUs) != 1 || c.GPUs[0].String() != "2.5 GT/s x16 (Gen 1)" || len(c.MemoryNodes) != 1 ||
		c.MemoryNodes[0] != 1 || c.Steal == nil || *c.Steal != 0.25 || way.HostCPUs == 0 {
		t.Errorf("%+v", way)
	}
	for _, asked := range lab.asked {
		if !strings.HasPrefix(asked, "vm01 ") {
			t.Errorf("asked %q", asked)
		}
	}
	// Copies within a GPU have no path.
	lab = &aLab{looks: map[string]int{}}
	w = newPaths(lab, false, bench.Options{}, nil)
	if _, err := w.observe(t.Context(), engine("gpu_bandwidth_local"), bench.Endpoint{Node: "vm01"}, bench.Endpoint{},
		measured); err != nil || len(lab.asked) > 0 || len(w.runs) > 0 {
		t.Errorf("%v; asked %q, knows %v", err, lab.asked, w.runs)
	}
	w = newPaths(&aLab{looks: map[string]int{}, deaf: true}, false, bench.Options{}, nil)
	if _, err := w.observe(t.Context(), engine("gpu_bandwidth_d2h"), bench.Endpoint{Node: "vm01"}, bench.Endpoint{},
		measured); err != nil || w.path("vm01", "", "r").Client.GPUs != nil {
		t.Errorf("%v; knows %+v", err, w.runs)
	}
}
