package checks

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/vm/qapi"
)

func need(t *testing.T, program, debian string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI is set and %s is not installed: apt-get install %s", program, debian)
	}
	t.Skipf("%s is not installed: apt-get install %s", program, debian)
	return ""
}

type realQEMU struct {
	pid       int
	vcpus     []int
	iothreads []int
}

func startQEMU(t *testing.T, memory string) realQEMU {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "qmp")
	var said strings.Builder
	cmd := exec.Command(need(t, "qemu-system-x86_64", "qemu-system-x86"), "-S", "-nodefaults", "-display", "none",
		"-accel", "tcg,tb-size=32",
		"-machine", "q35,memory-backend=ram0", "-m", "96", "-smp", "2", "-object",
		memory+",id=ram0,size=96M,prealloc=on,host-nodes=0,policy=bind",
		"-object", "iothread,id=io1", "-qmp", "unix:"+socket+",server=on,wait=off")
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	var conn *qapi.Conn
	for { // until the socket exists
		var err error
		if conn, err = qapi.DialQMP(t.Context(), socket); err == nil {
			break
		}
		select {
		case <-ended:
			t.Fatalf("%v: %s", err, &said)
		case <-time.After(20 * time.Millisecond):
		}
	}
	defer conn.Close()
	type thread struct {
		ID int `json:"thread-id"`
	}
	ask := func(command string) (ids []int) {
		var all []thread
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the machine may be busy
		defer cancel()
		var raw json.RawMessage
		if err := conn.Call(ctx, command, nil, &raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			ids = append(ids, one.ID)
		}
		return ids
	}
	return realQEMU{cmd.Process.Pid, ask("query-cpus-fast"), ask("query-iothreads")}
}

func pin(t *testing.T, tid int, cpus ...int) {
	t.Helper()
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		t.Fatal(err)
	}
}

func TestARealVirtualMachine(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	var cpus []int // available to this process
	for c := 0; len(cpus) < 2 && c < 1024; c++ {
		if mine.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if len(cpus) < 2 {
		t.Skip("this process may use one CPU only: nothing could be pinned to the wrong one")
	}
	_, err := os.Stat("/proc/self/numa_maps")
	hasNUMA := err == nil
	const huge = 2 << 20
	memory, page := "memory-backend-ram", uint64(0)
	if free, err := os.ReadFile("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages"); err ==
		nil && len(strings.TrimSpace(string(free))) > 2 {
		// With hundreds of free hugepages the test may use some.
		memory, page = "memory-backend-memfd,hugetlb=on,hugetlbsize=2M", huge
	}
	q := startQEMU(t, memory)
	root := os.DirFS("/")
	process := func() *facts.Process {
		p, err := inspect.ReadProcess(root, q.pid)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, th := range process().Threads {
		pin(t, th.TID, cpus[0])
	}
	pin(t, q.vcpus[1], cpus[1])
	const size = 96 << 20
	p := &plan.Plan{Lab: "real", Nodes: []plan.Node{{Name: "vm00", VCPUs: cpus, EmulatorCPUs: topology.CPUs(cpus[0]),
		IOThreadCPUs: topology.CPUs(cpus[0]),
		MemoryBytes:  size, Memory: []plan.NodeMemory{{NUMANode: 0, Bytes: size, PageBytes: page}},
		Cells: []plan.Cell{{Bytes: size, VCPUs: 2, NUMANodes: []int{0}}}}}}
	judge := func() []string {
		d := Domain{Node: "vm00", Name: "real.vm00", State: "running", PID: q.pid, VCPUs: q.vcpus,
			IOThreads: q.iothreads, Process: process()}
		got := Domains(p, &topology.Host{}, []Domain{d})
		wellFormed(t, got)
		return notOK(slices.DeleteFunc(got, func(f finding.Finding) bool {
			return !hasNUMA && (f.ID == IDMemoryNodes || f.ID == IDMemoryPages)
		}))
	}
	matches(t, judge(), nil)

	pin(t, q.vcpus[1], cpus...)
	matches(t, judge(), []string{"failed vcpu-affinity | vm00 | 1 of 2 on their CPU: virtual CPU 1 may use "})
	pin(t, q.vcpus[1], cpus[1])
	pin(t, q.pid, cpus[1])
	pin(t, q.iothreads[0], cpus[1])
	matches(t, judge(), []string{"failed emulator-affinity | vm00 | ", "failed iothread-affinity | vm00 | "})
	pin(t, q.pid, cpus[0])
	pin(t, q.iothreads[0], cpus[0])
	matches(t, judge(), nil)
	if hasNUMA {
		p.Nodes[0].Memory[0].NUMANode = 1
		matches(t, judge(), []string{"failed memory-nodes | vm00 | 96 MiB on node 0: too much, 96 MiB on NUMA node 0"})
	}
}
