package tool

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

func TestCopiesAboveTheLinkAreNoResult(t *testing.T) {
	h2d := mustEngine(t, "gpu_bandwidth_h2d")
	figure := func(v float64) []bench.Figure {
		return []bench.Figure{{Metric: bench.MetricCopyBandwidth, Value: v, Unit: bench.UnitGBps}}
	}
	pcie := func(gts, most float64) bench.PCILink {
		return bench.PCILink{Address: "0000:41:00.0", Link: topology.Link{SpeedGTs: &gts, MaxSpeedGTs: &most,
			Width: new(16), MaxWidth: new(16)}}
	}
	idle := pcie(2.5, 16)
	for _, tt := range []struct {
		name  string
		e     bench.Engine
		value float64
		links []bench.GPULink
		want  string
	}{
		{"a good figure of an idle link", h2d, 26, []bench.GPULink{{PCILink: idle}}, ""},
		{"as much as its line code allows", h2d, 31.5, []bench.GPULink{{PCILink: idle}}, ""},
		{"more than that", h2d, 31.6, []bench.GPULink{{PCILink: idle}},
			"31.6 GB/s is more than the link of the GPU at 0000:41:00.0 can carry: 31.51 GB/s with 16 GT/s x16 (Gen " +
				"4), before any header: it took another path, or was measured wrongly"},
		{"the slowest of two GPUs", h2d, 26, []bench.GPULink{{PCILink: idle}, {PCILink: pcie(8, 8)}},
			"can carry: 15.75 GB/s with 8 GT/s x16 (Gen 3)"},
		{"nothing is known", h2d, 400, nil, ""},
		{"within a GPU", mustEngine(t, "gpu_bandwidth_local"), 2000, []bench.GPULink{{PCILink: idle}}, ""},
	} {
		err := tt.e.Plugin.(nvbandwidth).checkCopies(tt.links, figure(tt.value))
		var bad *bench.BadResultError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(),
			tt.want)) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

// Figures of a node with NVLink to its GPU, or with unknown links, are accepted.
func TestTheRunnerHoldsCopiesAgainstTheLinks(t *testing.T) {
	const ids, links = "00000009:01:00.0\n", `pci/0009:01:00.0/current_link_speed 2.5 GT/s PCIe
pci/0009:01:00.0/current_link_width 16
pci/0009:01:00.0/max_link_speed 32.0 GT/s PCIe
pci/0009:01:00.0/max_link_width 16
`
	const x86, arm = "nvidia NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n",
		"nvidia NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  550.54.15\n"
	for _, tt := range []struct{ name, ids, says, want string }{
		{"x86-64", ids, x86 + links, "269.33 GB/s is more than the link of the GPU at 0009:01:00.0 can carry: 63.02 " +
			"GB/s with 32 GT/s x16 (Gen 5)"},
		{"Grace, which the output is of", ids, arm + links, ""},
		{"no driver's line", ids, links, ""},
		{"another GPU", "00000000:01:00.0\n", x86 + links, ""},
		{"a virtual GPU has no link", ids, x86 +
			"pci/0009:01:00.0/current_link_speed Unknown\npci/0009:01:00.0/current_link_width 0\n", ""},
		{"nothing that is known", ids, x86 + "pci/0009:01:00.0/numa_node x\n", ""},
	} {
		lab := scripted{
			"sh -c nvidia-smi -L": {Stdout: []byte("GPU 0: NVIDIA GH200 480GB (UUID: a)\n")},
			"nvbandwidth -l":      {Stdout: []byte("0, host_to_device_memcpy_ce:\n")},
			"nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader": {Stdout: []byte(tt.ids)},
			"sh -c " + linksScript: {Stdout: []byte(tt.says)},
			"nvbandwidth -t host_to_device_memcpy_ce": {Stdout: readFile(t,
				"testdata/nvbandwidth/superbench-gh200.log")},
		}
		samples, err := (&bench.Runner{Exec: serverless{lab}, Retries: -1}).RunLocal(t.Context(),
			mustEngine(t, "gpu_bandwidth_h2d"), n2, bench.Options{})
		if err != nil || len(samples) != 1 {
			t.Fatalf("%s: %d samples, error %v", tt.name, len(samples), err)
		}
		if s := samples[0]; tt.want == "" && (s.Error != "" || s.Value != 269.33) ||
			!strings.Contains(s.Error, tt.want) {
			t.Errorf("%s: %+v, want %s", tt.name, s, tt.want)
		}
	}
}

// This machine may have no GPU, but facts must always parse the output.
func TestTheScriptOfLinksPrintsFacts(t *testing.T) {
	out, err := exec.Command("sh", "-c", linksScript).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if _, err := facts.Parse(out); err != nil {
		t.Errorf("%v in\n%s", err, out)
	}
}
