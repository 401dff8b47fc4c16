package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/vm/images"
)

func TestLabGrid(t *testing.T) {
	began := time.Unix(1000, 0)
	gid := 1
	out := lsOutput{Labs: []rack.Description{{Name: "pair", Driver: "qemu", Accel: "tcg", Nodes: []rack.NodeDescription{
		{Name: "vm00", State: "running", Cloned: true, Started: &began, NICs: []rack.NICDescription{
			{Address: "10.0.0.1/24", RDMA: "rxe0", GID: &gid}, {Address: "10.0.1.1/24", RDMA: "rxe1", GID: &gid}}},
		{Name: "vm01", State: "starting", NICs: []rack.NICDescription{{Address: "10.0.0.2/24"}}},
	}}}}
	want := "" +
		"LAB   NODE  STATE     ADDRESS                  RDMA       GID  DRIVER  ACCEL  SINCE  MADE\n" +
		"pair  vm00  running   10.0.0.1/24,10.0.1.1/24  rxe0,rxe1  1,1  qemu    tcg    5m     cloned\n" +
		"pair  vm01  starting  10.0.0.2/24              -          -    qemu    tcg    -      -\n"
	if diff := cmp.Diff(want, tables.Labs(out.Labs, began.Add(5*time.Minute)).String()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWrongIsSaidOnStandardError(t *testing.T) {
	a, out, stderr := testApp(t)
	err := a.printLabs(lsOutput{Labs: []rack.Description{
		{Name: "one", Switch: "dead", Ready: true, Nodes: []rack.NodeDescription{{Name: "a", State: "dead", PID: 7}}},
		{Name: "two", Switch: "running", Nodes: []rack.NodeDescription{{Name: "b", State: "unknown",
			Error: "refused"}}},
		{Name: "three", Switch: "none", Ready: true}, // uses NICs of a host
		{Name: "four", Switch: "none"},
	}}, nil)
	want := "lab one: its switch is not running: rackless up with its lab file starts it again\n" +
		"one/a: its process 7 is gone: rackless up with the lab's file starts it again\n" +
		"lab two: not ready: up works on it, or was killed; rackless up with its lab file continues\n" +
		"two/b: refused\n" +
		"lab four: not ready: up works on it, or was killed; rackless up with its lab file continues\n"
	if err != nil || stderr.String() != want || out.Len() == 0 {
		t.Errorf("got %v and %q, want %q", err, stderr, want)
	}
}

func TestDiffText(t *testing.T) {
	change := lab.Change{Node: "vm00", Key: "memory", Old: "256MiB", New: "1GiB", Effect: lab.Recreate}
	tests := []struct {
		name string
		in   rack.Difference
		want string
	}{
		{"not running", rack.Difference{Lab: "pair"}, "lab pair is not running: up would start 2 nodes\n"},
		{"equal", rack.Difference{Lab: "pair", Running: true},
			"lab pair is as the file says: up would change nothing\n"},
		{"changed", rack.Difference{Lab: "pair", Running: true, Changes: []lab.Change{change}},
			"vm00: memory 256MiB -> 1GiB (recreate)\n"},
		{"dead", rack.Difference{Lab: "pair", Running: true, Repairs: []string{"vm01: dead"}},
			"vm01: dead (up starts it again)\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.Text(2); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestImageGrid(t *testing.T) {
	made := time.Unix(1000, 0)
	out := images.Listing{
		Images: []images.Item{
			{Key: "aa", State: images.Whole, Current: true, Release: "bookworm", Kernel: "6.1", Bytes: 120 << 20,
				Built: &made,
				Templates: []images.Template{{Key: "bb", State: images.Whole, Accelerator: "tcg", CPUs: 1,
					Memory: 256 << 20, NICs: 1, Bytes: 200 << 20, Made: &made}}},
			{Key: "cc", State: images.Damaged},
		},
		Templates: []images.Template{{Key: "dd", State: images.Damaged}},
	}
	want := "" +
		"KEY   WHAT      STATE    KERNEL  SHAPE                          SIZE  MADE\n" +
		"* aa  image     whole    6.1     bookworm                    120 MiB  5m ago\n" +
		"  bb  template  whole    -       1 CPU, 256 MiB, 1 NIC, tcg  200 MiB  5m ago\n" +
		"  cc  image     damaged  -       -                               0 B  -\n" +
		"  dd  template  damaged  -       -                               0 B  -\n"
	if diff := cmp.Diff(want, tables.Images(out, made.Add(5*time.Minute)).String()); diff != "" {
		t.Error(diff)
	}
}
