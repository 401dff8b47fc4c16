package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// twoNICs is a node of a lab file.
func twoNICs(t *testing.T) lab.Node {
	t.Helper()
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes:\n  a: {nics: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return l.Nodes[0]
}

func TestDescribeNode(t *testing.T) {
	n := twoNICs(t)
	began := time.Unix(1000, 0)
	running := &rack.Node{
		Process: vm.Process{PID: 7}, Cloned: true, Started: began,
		Facts: &facts.Node{RDMA: map[string]*facts.RDMADevice{
			// rxe1 is that of the first NIC: devices are found by their parent, never by their number.
			"rxe1": {Parent: "eth0", GIDs: []facts.GID{{Index: 3, GID: netip.MustParseAddr("::ffff:10.0.0.1"),
				Type: "RoCE v2", NetDev: "eth0"}}},
			"rxe0": {Parent: "eth1"},
		}},
	}
	gid := 3
	nics := []lsNIC{
		{Name: "eth0", MAC: n.NICs[0].MAC, Address: "10.0.0.1/24", RDMA: "rxe1", GID: &gid},
		{Name: "eth1", MAC: n.NICs[1].MAC, Address: "10.0.1.1/24", RDMA: "rxe0"},
	}
	bare := []lsNIC{{Name: "eth0", MAC: n.NICs[0].MAC, Address: "10.0.0.1/24"}, {Name: "eth1", MAC: n.NICs[1].MAC,
		Address: "10.0.1.1/24"}}
	tests := []struct {
		name string
		in   rack.NodeStatus
		want lsNode
	}{
		{"one that runs", rack.NodeStatus{Lab: n, Node: running, State: vm.Running},
			lsNode{Name: "a", State: "running", PID: 7, CPUs: 1, Memory: 256 << 20, Cloned: true, Started: &began,
				NICs: nics}},
		{"one that was not started yet", rack.NodeStatus{Lab: n, State: rack.Starting},
			lsNode{Name: "a", State: "starting", CPUs: 1, Memory: 256 << 20, NICs: bare}},
		{"one that does not say", rack.NodeStatus{Lab: n, Node: &rack.Node{Started: began},
			Err: errors.New("refused")},
			lsNode{Name: "a", State: "unknown", Error: "refused", CPUs: 1, Memory: 256 << 20, Started: &began,
				NICs: bare}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, describeNode(tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLabGrid(t *testing.T) {
	began := time.Unix(1000, 0)
	gid := 1
	out := lsOutput{Labs: []lsLab{{Name: "pair", Driver: "qemu", Accel: "tcg", Nodes: []lsNode{
		{Name: "vm00", State: "running", Cloned: true, Started: &began, NICs: []lsNIC{
			{Address: "10.0.0.1/24", RDMA: "rxe0", GID: &gid}, {Address: "10.0.1.1/24", RDMA: "rxe1", GID: &gid}}},
		{Name: "vm01", State: "starting", NICs: []lsNIC{{Address: "10.0.0.2/24"}}},
	}}}}
	want := "" +
		"LAB   NODE  STATE     ADDRESS                  RDMA       GID  DRIVER  ACCEL  SINCE  MADE\n" +
		"pair  vm00  running   10.0.0.1/24,10.0.1.1/24  rxe0,rxe1  1,1  qemu    tcg    5m     cloned\n" +
		"pair  vm01  starting  10.0.0.2/24              -          -    qemu    tcg    -      -\n"
	if diff := cmp.Diff(want, labGrid(out, began.Add(5*time.Minute)).String()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWrongIsSaidOnStandardError(t *testing.T) {
	a, out, stderr := testApp(t)
	err := a.printLabs(lsOutput{Labs: []lsLab{
		{Name: "one", Switch: "dead", Ready: true, Nodes: []lsNode{{Name: "a", State: "dead", PID: 7}}},
		{Name: "two", Switch: "running", Nodes: []lsNode{{Name: "b", State: "unknown", Error: "refused"}}},
	}}, nil)
	want := "lab one: its switch is not running: rackless up with its lab file starts it again\n" +
		"one/a: its process 7 is gone: rackless up with the lab's file starts it again\n" +
		"lab two: not ready: up works on it, or was killed; rackless up with its lab file goes on\n" +
		"two/b: refused\n"
	if err != nil || stderr.String() != want || out.Len() == 0 {
		t.Errorf("got %v and %q, want %q", err, stderr, want)
	}
}

func TestDiffText(t *testing.T) {
	change := lab.Change{Node: "vm00", Key: "memory", Old: "256MiB", New: "1GiB", Effect: lab.Recreate}
	tests := []struct {
		name string
		in   diffOutput
		want string
	}{
		{"not running", diffOutput{Lab: "pair"}, "lab pair is not running: up would start 2 nodes\n"},
		{"equal", diffOutput{Lab: "pair", Running: true}, "lab pair is as the file says: up would change nothing\n"},
		{"changed", diffOutput{Lab: "pair", Running: true, Changes: []lab.Change{change}},
			"vm00: memory 256MiB -> 1GiB (recreate)\n"},
		{"dead", diffOutput{Lab: "pair", Running: true, Repairs: []string{"vm01: dead"}},
			"vm01: dead (up starts it again)\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := diffText(tt.in, 2); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestImageGrid(t *testing.T) {
	made := time.Unix(1000, 0)
	out := imageOutput{
		Images: []imageItem{
			{Key: "aa", State: stateWhole, Current: true, Release: "bookworm", Kernel: "6.1", Bytes: 120 << 20,
				Built: &made,
				Templates: []imageTemplate{{Key: "bb", State: stateWhole, Accelerator: "tcg", CPUs: 1,
					Memory: 256 << 20, NICs: 1, Bytes: 200 << 20, Made: &made}}},
			{Key: "cc", State: stateDamaged},
		},
		Templates: []imageTemplate{{Key: "dd", State: stateDamaged}},
	}
	want := "" +
		"KEY   WHAT      STATE    KERNEL  SHAPE                          SIZE  MADE\n" +
		"* aa  image     whole    6.1     bookworm                    120 MiB  5m ago\n" +
		"  bb  template  whole    -       1 CPU, 256 MiB, 1 NIC, tcg  200 MiB  5m ago\n" +
		"  cc  image     damaged  -       -                               0 B  -\n" +
		"  dd  template  damaged  -       -                               0 B  -\n"
	if diff := cmp.Diff(want, imageGrid(out, made.Add(5*time.Minute)).String()); diff != "" {
		t.Error(diff)
	}
}
