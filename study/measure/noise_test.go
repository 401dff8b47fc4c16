package measure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/vm"
)

// proc is a machine of two CPUs. Times are in ticks of 10 ms.
func proc(busy, steal, lab int) fstest.MapFS {
	return fstest.MapFS{
		"stat": {Data: fmt.Appendf(nil, "cpu %d 0 0 100 0 0 0 %d 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\n"+
			"cpu1 1 0 0 0 0 0 0 0 0 0\nintr 1\n", busy, steal)},
		"loadavg": {Data: []byte("13.25 9.00 4.00 2/300 4711\n")},
		"7/stat":  {Data: fmt.Appendf(nil, "7 (qemu) S 1 1 1 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 1 0 0\n", lab)},
	}
}

func TestNoiseFloorIsWithoutTheLab(t *testing.T) {
	t.Parallel()
	files := proc(100, 10, 50)
	n := &noise{proc: files, lab: []int{7, 8}, own: func() float64 { return 0 }, watch: func(context.Context) error {
		for name, f := range proc(1_000_100, 20, 1_000_050) {
			files[name] = f
		}
		return nil
	}}
	f := n.floor(t.Context())
	if f == nil || f.Others != 0 || f.Steal <= 0 || f.Load != 13.25 || f.CPUs != 2 {
		t.Errorf("a lab that used all: %+v", f)
	}
	n.lab = nil
	files = proc(100, 10, 50)
	n.proc = files
	if f := n.floor(t.Context()); f == nil || f.Others <= 1 {
		t.Errorf("other programs: %+v", f)
	}
	n.watch = func(context.Context) error { return errors.New("it ended") }
	if f := n.floor(t.Context()); f != nil {
		t.Errorf("without an end: %+v", f)
	}
	n.proc = fstest.MapFS{}
	if f := n.floor(t.Context()); f != nil {
		t.Errorf("without /proc: %+v", f)
	}
	if f := (*noise)(nil).floor(t.Context()); f != nil {
		t.Errorf("of another machine: %+v", f)
	}
}

// This machine's files have the form that is read.
func TestNoiseFloorOfThisMachine(t *testing.T) {
	t.Parallel()
	n := noiseOf(&rack.State{Driver: "qemu"})
	n.watch = func(context.Context) error { return nil }
	if f := n.floor(t.Context()); f == nil || f.CPUs < 1 {
		t.Errorf("%+v", f)
	}
}

func TestNoiseIsOfTheMachineWithTheNodes(t *testing.T) {
	t.Parallel()
	nodes := []*rack.Node{{Process: vm.Process{PID: 7}, Adapters: &vm.Process{PID: 8}}, {}}
	for _, tt := range []struct {
		state *rack.State
		lab   string
	}{
		{&rack.State{Driver: "qemu", Nodes: nodes, Daemon: &vm.Process{PID: 9}}, "[9 7 8]"},
		{&rack.State{Driver: "libvirt", URI: "qemu:///system", Nodes: nodes}, "[7 8]"},
		{&rack.State{Driver: "libvirt", URI: "qemu+ssh://host/system"}, ""},
		{&rack.State{Driver: "vsphere"}, ""},
	} {
		n := noiseOf(tt.state)
		if got := ""; n != nil {
			got = fmt.Sprint(n.lab)
			if got != tt.lab {
				t.Errorf("%+v: processes %s, want %s", tt.state, got, tt.lab)
			}
		} else if tt.lab != "" {
			t.Errorf("%+v: no noise", tt.state)
		}
	}
}

func TestDisturbedSaysWhatWasBusy(t *testing.T) {
	t.Parallel()
	idle, busy := &record.NoiseFloor{Others: 0.1, CPUs: 2}, &record.NoiseFloor{Others: 1.9, CPUs: 2, Load: 13.2}
	for _, tt := range []struct {
		before, after *record.NoiseFloor
		want          string
	}{
		{idle, idle, ""},
		{nil, nil, ""},
		{busy, idle, "before it other programs used 1.9 of 2 CPUs (load 13.2); an idle"},
		{idle, busy, "after it other programs used 1.9"},
		{&record.NoiseFloor{Others: 1.9, CPUs: 128}, nil, ""},
		{&record.NoiseFloor{Steal: 0.5, CPUs: 2}, nil, "before it a hypervisor took 0.5 of 2 CPUs"},
	} {
		got := disturbed(tt.before, tt.after)
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" || got != "" &&
			!strings.HasPrefix(got, "disturbed: ") {
			t.Errorf("%+v, %+v: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}
