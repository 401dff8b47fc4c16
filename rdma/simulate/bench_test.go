package simulate

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
)

// cpu returns the CPU time of this process, which other processes do not change as much as the time of day.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchmark(b *testing.B, text string) {
	c := config(b, text)
	hops := uint64(0)
	begin := cpu()
	for b.Loop() {
		hops += Run(c, never).Counts.Hops
	}
	b.ReportMetric(float64(hops)/(cpu()-begin).Seconds(), "hops/cpu-s")
}

func BenchmarkIncast(b *testing.B) {
	benchmark(b, "topology: {form: star, hosts: 17, rate: 100Gbit}\nswitch: {ecn: \"400KiB:1600KiB:20%\"}\n"+
		"traffic: [{pattern: incast, to: h0, senders: 16, bytes: 4MiB}]")
}

func BenchmarkPermutation(b *testing.B) {
	benchmark(b, "topology: {form: leaf-spine, hosts: 16, leaves: 8, spines: 8, rate: 100Gbit, uplink: 200Gbit}\n"+
		"traffic: [{pattern: permutation, bytes: 1MiB, qps: 4}]")
}

func BenchmarkFatTree(b *testing.B) {
	benchmark(b, "topology: {form: fat-tree, k: 8, rate: 400Gbit}\ntraffic: [{pattern: permutation, bytes: 1MiB}]")
}

func BenchmarkRing(b *testing.B) {
	benchmark(b, "topology: {form: fat-tree, k: 8, rate: 400Gbit}\ntraffic: [{pattern: ring-all-reduce, bytes: 8MiB}]")
}

// BenchmarkIdle measures the memory of a port of a switch with its host, and of a queue pair, that do nothing.
func BenchmarkIdle(b *testing.B) {
	const hosts, qps = 1000, 9
	c := config(b, "topology: {form: star, hosts: 1000, rate: 100Gbit}\nswitch: {buffer: 128MiB}\n"+
		"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1KiB}]")
	for b.Loop() {
		n, bytes := onHeap(func() *network { return newNetwork(c) })
		b.ReportMetric(bytes/hosts, "B/port+host")
		c.Traffic = []Traffic{{Pattern: incast, To: "h0", Senders: hosts - 1, Bytes: 1 * lab.KiB, QPs: qps}}
		m, before := onHeap(func() *network { return newNetwork(c) })
		_, bytes = onHeap(func() *network {
			for _, f := range m.flows {
				f.send, f.recv = f.pair(f.from, f), f.pair(f.to, sink{})
			}
			return m
		})
		b.ReportMetric(bytes/(2*qps*(hosts-1)), "B/qp")
		runtime.KeepAlive(n)
		runtime.KeepAlive(before)
	}
}

// onHeap returns by how many bytes the heap is larger after a call.
func onHeap(f func() *network) (n *network, bytes float64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n = f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return n, float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// Idle ports and queue pairs take little memory, so that thousands of hosts fit.
func TestMemory(t *testing.T) {
	c := config(t, "topology: {form: star, hosts: 1000, rate: 100Gbit}\nswitch: {buffer: 128MiB}\n"+
		"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1KiB}]")
	n, bytes := onHeap(func() *network { return newNetwork(c) })
	if bytes > 1000*(sizeHost+sizePort) {
		t.Errorf("%.0f bytes for a host and the port of its switch, want at most %d", bytes/1000, sizeHost+sizePort)
	}
	t.Logf("%.0f bytes for a host and the port of its switch", bytes/1000)
	c.Traffic = []Traffic{{Pattern: incast, To: "h0", Senders: 999, Bytes: 1 * lab.KiB, QPs: 10,
		Start: time.Millisecond}}
	_, bytes = onHeap(func() *network {
		m := newNetwork(c)
		for _, f := range m.flows {
			f.begin()
		}
		return m
	})
	bytes -= 1000 * (sizeHost + sizePort) // at most
	t.Logf("%.0f bytes for a flow with its queue pairs", bytes/9990)
	if bytes > 9990*sizeFlow {
		t.Errorf("%.0f bytes for a flow with its queue pairs, want at most %d", bytes/9990, sizeFlow)
	}
	runtime.KeepAlive(n)
}

// BenchmarkFlowLevel measures the CPU time of a permutation of 8192 hosts whose rates are computed.
func BenchmarkFlowLevel(b *testing.B) {
	c := config(b, "level: flow\ntopology: {form: fat-tree, k: 32, rate: 400Gbit}\n"+
		"traffic: [{pattern: permutation, bytes: 1MiB}]")
	flows := 0
	begin := cpu()
	for b.Loop() {
		flows += len(Run(c, never).Flows)
	}
	b.ReportMetric(float64(flows)/(cpu()-begin).Seconds(), "flows/cpu-s")
}
