package inspect_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

func stat(head, processor string) string {
	return head + " S 1 1 1 0 -1 0 " + strings.Repeat("0 ", 29) + processor + strings.Repeat(" 0", 13) + "\n"
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func link(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }

func machine() fstest.MapFS {
	const status = "Tgid:\t4711\nCpus_allowed_list:\t0-1\n"
	return fstest.MapFS{
		"proc/self":                  link("4711"),
		"proc/4711/task/4711/stat":   file(stat("4711 (qemu)", "1")),
		"proc/4711/task/4711/status": file(status),
		"proc/4711/task/4712/stat":   file(stat("4712 (ended)", "1")),
		"proc/4711/task/4713/stat":   file(stat("4713 (CPU 0/KVM)", "2")),
		"proc/4711/task/4713/status": file("Tgid:\t4711\nCpus_allowed_list:\t2\n"),
		"proc/4711/numa_maps": file("1000 bind:0 huge N0=2 " +
			"kernelpagesize_kB=2048\n"),
		"proc/4711/maps": file("1000-401000 rw-s 0 0 0 /x\n"),
		"proc/4711/fd/3": link("/dev/vfio/vfio"),
		"proc/4711/fd/4": link("/dev/vfio/12"),
		"proc/4711/fd/5": link("/dev/vfio/devices/vfio0"),
		"proc/4711/fd/6": link("/dev/vfio/12"),
		"proc/4711/fd/7": link("socket:[1]"),
		"proc/interrupts": file("CPU0 CPU1\n24: 1 0 chip 5-edge " +
			"nvme0q1\n25: 0 1 chip 6-edge nvme0q2\n"),
		"proc/irq/24/effective_affinity_list": file("0\n"),
		"proc/irq/24/smp_affinity_list":       file("0-1\n"),
		"proc/irq/25/smp_affinity_list":       file("1\n"),
		"proc/mounts": file("hugetlbfs /dev/hugepages hugetlbfs " +
			"rw,pagesize=2M 0 0\n"),
		"sys/devices/virtual/workqueue/cpumask":                           file("f0000000,00000003\n"),
		"sys/fs/cgroup/cgroup.controllers":                                file("cpuset cpu io memory\n"),
		"sys/fs/cgroup/cpuset.cpus.effective":                             file("0-3\n"),
		"sys/fs/cgroup/system.slice/cpuset.cpus.effective":                file("0-1\n"),
		"sys/fs/cgroup/system.slice/cpuset.cpus.partition":                file("member\n"),
		"sys/fs/cgroup/system.slice/cgroup.events":                        file("populated 1\nfrozen 0\n"),
		"sys/fs/cgroup/system.slice/a.service/cgroup.events":              file("populated 1\n"),
		"sys/fs/cgroup/machine.slice/cpuset.cpus.effective":               file("2-3\n"),
		"sys/fs/cgroup/machine.slice/cpuset.cpus.partition":               file("isolated invalid (x)\n"),
		"sys/fs/cgroup/machine.slice/cgroup.events":                       file("populated 0\n"),
		"sys/fs/cgroup/machine.slice/q.scope/cpuset.cpus.effective":       file("2\n"),
		"sys/fs/cgroup/machine.slice/q.scope/vcpu0/cpuset.cpus.effective": file("2\n"),
		"sys/fs/cgroup/user.slice/cgroup.events":                          file("populated 1\n"),
	}
}

func TestReadRunning(t *testing.T) {
	got, err := inspect.ReadRunning(t.Context(), machine())
	if err != nil {
		t.Fatal(err)
	}
	all := topology.CPURange(0, 3)
	want := &facts.Running{
		Threads: []facts.Thread{
			{PID: 4711, TID: 4711, Name: "qemu", Allowed: topology.CPUs(0, 1), LastCPU: 1},
			{PID: 4711, TID: 4713, Name: "CPU 0/KVM", Allowed: topology.CPUs(2), LastCPU: 2},
		},
		Interrupts: []facts.Interrupt{
			{Number: 24, CPUs: topology.CPUs(0), Counts: map[int]uint64{0: 1}, Action: "nvme0q1"},
			{Number: 25, CPUs: topology.CPUs(1), Counts: map[int]uint64{1: 1}, Action: "nvme0q2"},
		},
		Cgroups: []facts.Cgroup{
			{Path: "machine.slice", CPUs: topology.CPUs(2, 3), Partition: "isolated invalid (x)"},
			{Path: "machine.slice/q.scope", CPUs: topology.CPUs(2)},
			{Path: "machine.slice/q.scope/vcpu0", CPUs: topology.CPUs(2)},
			{Path: "system.slice", CPUs: topology.CPUs(0, 1), Partition: "member", Populated: true},
			{Path: "user.slice", CPUs: all, Populated: true},
		},
		Workqueues: new(topology.CPUs(0, 1, 60, 61, 62, 63)),
		HugeMounts: []facts.HugeMount{{Path: "/dev/hugepages", PageBytes: 2 << 20}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(topology.CPUSet.Equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inspect.ReadRunning(ctx, machine()); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestReadRunningSaysWhatCannotBeRead(t *testing.T) {
	got, err := inspect.ReadRunning(t.Context(), fstest.MapFS{})
	if err != nil || got.Threads != nil || got.Interrupts != nil || got.Cgroups != nil || got.Workqueues != nil ||
		got.HugeMounts != nil {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	m := machine()
	m["proc/4711/task/4713/stat"] = file("nonsense")
	m["proc/interrupts"] = file("nonsense\n")
	m["sys/devices/virtual/workqueue/cpumask"] = file("xyz\n")
	m["sys/fs/cgroup/cgroup.controllers"] = file("cpu\n")
	if got, err = inspect.ReadRunning(t.Context(), m); err != nil || got.Interrupts != nil || got.Cgroups != nil ||
		got.Workqueues != nil || len(got.Threads) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	all := strings.Join(got.Unread, "\n")
	for _, want := range []string{`/proc/4711/task/4713: stat "nonsense"`, `/proc/interrupts: first line "nonsense"`,
		"/sys/devices/virtual/workqueue/cpumask: "} {
		if !strings.Contains(all, want) {
			t.Errorf("%q does not say %q", all, want)
		}
	}
}

func TestReadProcess(t *testing.T) {
	got, err := inspect.ReadProcess(machine(), 4711)
	if err != nil {
		t.Fatal(err)
	}
	want := &facts.Process{PID: 4711,
		Threads: []facts.Thread{
			{PID: 4711, TID: 4711, Name: "qemu", Allowed: topology.CPUs(0, 1), LastCPU: 1},
			{PID: 4711, TID: 4713, Name: "CPU 0/KVM", Allowed: topology.CPUs(2), LastCPU: 2},
		},
		Mappings: []facts.Mapping{{Start: 0x1000, Bytes: 4 << 20, Policy: "bind:0", Huge: true,
			Pages: map[int]uint64{0: 2}, PageBytes: 2 << 20}},
		VFIO: []string{"/dev/vfio/12", "/dev/vfio/devices/vfio0"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(topology.CPUSet.Equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := inspect.ReadProcess(machine(), 9); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
		"process 9") {
		t.Errorf("of no process: %v", err)
	}
	m := machine()
	m["proc/4711/numa_maps"] = file("nonsense\n")
	m["proc/4711/maps"] = file("nonsense\n")
	for name := range m {
		if strings.HasPrefix(name, "proc/4711/fd/") {
			delete(m, name)
		}
	}
	got, err = inspect.ReadProcess(m, 4711)
	if err != nil || got.Mappings != nil || got.VFIO != nil || len(got.Unread) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}
