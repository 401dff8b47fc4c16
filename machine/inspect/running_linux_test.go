package inspect_test

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

func TestTheKernelTellsTheAffinityOfThisThread(t *testing.T) {
	var mine unix.CPUSet
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !mine.IsSet(cpu) {
		cpu++
	}
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	tid := unix.Gettid()
	p, err := inspect.ReadProcess(os.DirFS("/"), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Threads, func(t facts.Thread) bool { return t.TID == tid })
	if i < 0 {
		t.Fatalf("thread %d is not among %v", tid, p.Threads)
	}
	got := p.Threads[i]
	if !got.Allowed.Equal(topology.CPUs(cpu)) || got.LastCPU != cpu || got.PID != os.Getpid() || got.Kernel ||
		got.Fixed {
		t.Errorf("got %+v, want CPU %d alone", got, cpu)
	}
	run, err := inspect.ReadRunning(t.Context(), os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	i = slices.IndexFunc(run.Threads, func(t facts.Thread) bool { return t.TID == tid })
	if i < 0 || !run.Threads[i].Allowed.Equal(topology.CPUs(cpu)) {
		t.Errorf("among all threads it is %d", i)
	}
}

// numa_maps needs CONFIG_NUMA.
func TestTheKernelTellsWhereMemoryIs(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Skip("this kernel has no numa_maps")
	}
	const size = 48 << 20
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	// A neighbour with the same permissions would be merged.
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		t.Fatal(err)
	}
	p, err := inspect.ReadProcess(os.DirFS("/"), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	start := uint64(uintptr(unsafe.Pointer(&mem[0]))) // the runtime may have reserved as much
	i := slices.IndexFunc(p.Mappings, func(m facts.Mapping) bool { return m.Start == start && m.Bytes == size })
	if i < 0 {
		t.Fatalf("no mapping of %d bytes; not read: %q", size, p.Unread)
	}
	if m := p.Mappings[i]; m.Resident() != size || !m.Anon || m.Huge {
		t.Errorf("got %+v, of which %d bytes are there", m, m.Resident())
	}
	if p.VFIO == nil {
		t.Error("its own open files cannot be read")
	}
}
