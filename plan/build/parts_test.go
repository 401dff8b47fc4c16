package build_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
)

func TestPartsOfGPUsAreNotSupportedYet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ask  lab.DeviceRequest
		part bool
	}{
		{lab.DeviceRequest{Count: 1, Address: "MIG-3f0a1b2c-0000-5000-8000-123456789012"}, true},
		{lab.DeviceRequest{Count: 1, Address: "mig-1g.10gb"}, true},
		{lab.DeviceRequest{Count: 1, Address: "nvidia-558"}, true},
		{lab.DeviceRequest{Count: 2, Model: "3g.40gb"}, true},
		{lab.DeviceRequest{Count: 1, Model: "GRID A100-4C"}, true},
		{lab.DeviceRequest{Count: 1, Model: "NVIDIA A40-8Q"}, true},
		{lab.DeviceRequest{Count: 1, Model: "vGPU"}, true},
		{lab.DeviceRequest{Count: 1, Address: "GPU-8c187ce0-5465-11ec-a6a5-13a6a9a1234b"}, false},
		{lab.DeviceRequest{Count: 1, Address: "GPU9"}, false},
		{lab.DeviceRequest{Count: 1, Address: "0000:99:00.0"}, false},
		{lab.DeviceRequest{Count: 1, Model: "A100-SXM4-80GB"}, false},
		{lab.DeviceRequest{Count: 1, Model: "Migration"}, false},
	} {
		_, err := build.Problem(h20(t), labOf(1, gpus(tt.ask)), build.Options{})
		if err == nil || strings.Contains(err.Error(), "MIG and vGPU are not supported yet") != tt.part {
			t.Errorf("%+v: %v; want that parts of GPUs are not supported: %v", tt.ask, err, tt.part)
		}
	}
}

func TestADeviceAtAnUnknownNUMANodeIsSaid(t *testing.T) {
	t.Parallel()
	noted := func(h *topology.Host, l *lab.Lab) bool {
		return slices.ContainsFunc(problem(t, h, l, build.Options{}).Notes, func(n string) bool {
			return strings.Contains(n, "the distance of cores and memory to them is not considered")
		})
	}
	h := h20(t)
	if noted(h, labOf(1, gpus(some(1)))) {
		t.Error("all are known, and one is said not to be")
	}
	h.GPUs[2].NUMANode = nil
	if !noted(h, labOf(1, gpus(some(1)))) {
		t.Error("the NUMA node of a GPU is not known, and nothing says so")
	}
	if noted(h, labOf(1, cpus(2))) {
		t.Error("nobody asks for a GPU, and one is spoken of")
	}
}

func TestKindsOfCoresAreKnownFromFrequencies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		mhz  []int64
		want int // number of small cores
	}{
		{"performance and efficiency cores", []int64{5200, 3900}, 7},
		{"favoured cores are large ones too", []int64{5800, 5500, 4300, 4300, 4300, 4300, 4300}, 10},
		{"favoured cores alone", []int64{5200, 4900}, 0},
		{"all alike", []int64{2500}, 0},
		{"one is not known", []int64{5200, 0}, 0},
	} {
		h := hybrid(t)
		for i := range h.Cores {
			h.Cores[i].Kind, h.Cores[i].MaxKHz = "", new(tt.mhz[i*len(tt.mhz)/len(h.Cores)]*1000)
		}
		small := 0
		for _, c := range problem(t, h, labOf(1, cpus(2)), build.Options{}).Cores {
			if c.Efficiency {
				small++
			}
		}
		if small != tt.want {
			t.Errorf("%s: %d small cores, want %d", tt.name, small, tt.want)
		}
	}
}
