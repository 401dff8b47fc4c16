package connectx

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/fabric"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// Garbage collection once took more time than the messages.
func TestMessagesAllocateNothing(t *testing.T) {
	for _, direct := range []bool{true, false} {
		t.Run(fmt.Sprintf("direct=%v", direct), func(t *testing.T) { allocateNothing(t, direct) })
	}
}

func allocateNothing(t *testing.T, direct bool) {
	nic := NIC{RateBits: 100e9}
	if !direct {
		nic.RateBits = 0 // the timer would still be sending
	}
	s, g := newLab(t, 2, nic, nil)
	s.SetDirect(direct)
	qa, _ := pair(g[0], g[1], serviceRC, nil)
	at, to := g[0].alloc(8), g[1].alloc(8)
	qa.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, g[1].key(to, 8, g[1].pd, allRights...)),
		dataSeg(at, g[0].key(at, 8, g[0].pd, allRights...), 8)}})
	wqe := bytes.Clone(g[0].mem[qa.ring+512:][:64])
	bell := be.AppendUint32(make([]byte, 4), qa.num<<8)
	got := testing.AllocsPerRun(1000, func() {
		copy(g[0].mem[qa.ring+512+uint64(qa.si&(1<<logSQ-1))*64:], wqe)
		qa.si++
		qa.cq.ci++
		be.PutUint32(g[0].mem[qa.cq.dbr:], qa.cq.ci)
		be.PutUint32(g[0].mem[qa.dbr+4:], uint32(qa.si))
		g[0].f.Write(vfiouser.RegionBAR0, g[0].uar+dbSend, bell)
	})
	if got > 0 {
		t.Errorf("a message allocates %v times", got)
	}
	if !bytes.Equal(g[1].mem[to:to+8], g[0].mem[at:at+8]) || qa.state() != 3 {
		t.Error("the messages did not arrive")
	}
}

// BenchmarkWrite measures from doorbell to completion, without a guest's CPU and QEMU, and reports the copy alone.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []uint32{2, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d-frames", n), func(b *testing.B) { benchmarkFrames(b, n) })
		for _, nic := range []NIC{{}, {RateBits: 100e9}} {
			name := fmt.Sprintf("%d", n)
			if nic.RateBits > 0 {
				name += "-paced"
			}
			b.Run(name, func(b *testing.B) { benchmarkWrite(b, n, nic, 1) })
		}
		b.Run(fmt.Sprintf("%d-list", n), func(b *testing.B) { benchmarkWrite(b, n, NIC{}, 16) })
		b.Run(fmt.Sprintf("%d-memcpy", n), func(b *testing.B) {
			from, to := bytes.Repeat([]byte{1}, int(n)), make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(to, from)
			}
		})
	}
}

func benchmarkWrite(b *testing.B, n uint32, nic NIC, list int) {
	_, g := newLab(b, 2, nic, nil)
	qa, _ := pair(g[0], g[1], serviceRC, nil)
	at, to := g[0].alloc(uint64(n)), g[1].alloc(uint64(n))
	w := testWQE{op: wqeWrite, segs: [][]byte{
		remoteSeg(to, g[1].key(to, uint64(n), g[1].pd, allRights...)),
		dataSeg(at, g[0].key(at, uint64(n), g[0].pd, allRights...), n)}}
	ws := slices.Repeat([]testWQE{w}, list)
	b.SetBytes(int64(n) * int64(list))
	b.ReportAllocs()
	cpu := cpuTime(b)
	for b.Loop() {
		qa.send(ws...)
		end := time.Now().Add(time.Second)
		for i := 0; i < list; {
			if qa.cq.poll() != nil {
				i++
			} else if time.Now().After(end) {
				b.Fatal("no completion within a second")
			}
		}
	}
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N*list), "cpu-ns/message")
}

// benchmarkFrames uses an impaired link.
func benchmarkFrames(b *testing.B, n uint32) {
	const posted = 1 << (logSQ - 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 3)) // like the lab's daemon
	s, g := newLab(b, 2, NIC{}, nil)
	joinSwitch(b, s, g)
	qa, _ := pair(g[0], g[1], serviceRC, map[bits]uint64{qpcMtu: 5})
	at, to := g[0].alloc(uint64(n)), g[1].alloc(uint64(n))
	w := testWQE{op: wqeWrite, segs: [][]byte{
		remoteSeg(to, g[1].key(to, uint64(n), g[1].pd, allRights...)),
		dataSeg(at, g[0].key(at, uint64(n), g[0].pd, allRights...), n)}}
	fill(g[0].mem[at:at+uint64(n)], 3)
	b.SetBytes(int64(n))
	b.ReportAllocs()
	out, left := 0, b.N
	cpu := cpuTime(b)
	b.ResetTimer()
	for last := time.Now(); left > 0 || out > 0; {
		if k := min(posted, left); out <= posted && k > 0 {
			ws := make([]testWQE, k)
			for i := range ws {
				ws[i] = w
			}
			qa.send(ws...)
			out, left = out+k, left-k
		}
		if qa.cq.poll() != nil {
			out--
			last = time.Now()
			continue
		}
		if time.Since(last) > time.Second {
			b.Fatal("no completion within a second")
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 20000}, nil)
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N*int(n/4096+1)), "cpu-ns/frame")
	if !bytes.Equal(g[1].mem[to:to+uint64(n)], g[0].mem[at:at+uint64(n)]) {
		b.Error("the data did not arrive")
	}
}

// cpuTime returns the process's CPU time, which means more than elapsed time on a busy machine.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func joinSwitch(b *testing.B, s *Server, g []*guest) {
	dir := b.TempDir()
	plugs := &fabric.Plugs{}
	cfg := fabric.Config{Control: filepath.Join(dir, "control"), Direct: s.SetDirect, Plugs: plugs}
	for i := range len(g) + 1 {
		cfg.Ports = append(cfg.Ports, fabric.Port{Name: fmt.Sprint(i), Path: filepath.Join(dir, fmt.Sprint(i))})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := fabric.Run(ctx, cfg); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	var c *fabric.Client
	var err error
	for range 1000 {
		if c, err = fabric.Dial(cfg.Control); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err == nil {
		err = c.SetLink(ctx, fmt.Sprint(len(g)), fabric.Link{Delay: 1000})
	}
	if err != nil {
		b.Fatal(err)
	}
	for i := range g {
		plug, err := plugs.Plug(cfg.Ports[i].Name, 25e9)
		if err != nil {
			b.Fatal(err)
		}
		p := g[i].p
		p.lock()
		p.nic.Batch = plug.Send
		p.unlock()
		wg.Go(func() {
			for f := plug.Receive(); len(f) > 0; f = plug.Receive() {
				p.DeliverBatch(f)
			}
		})
	}
}

// BenchmarkTimerBesideABusyGuest measures how late an adapter's timer is while another guest is busy.
func BenchmarkTimerBesideABusyGuest(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(*guest) func()
	}{
		{"idle", func(*guest) func() { return func() {} }},
		{"flow-tables", (*guest).manyFlows},
		{"tiny-segments", (*guest).tinySegments},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, g := newLab(b, 2, NIC{}, nil)
			start, p := c.make(g[1]), g[0].p
			var late []time.Duration
			begun := time.Now()
			for b.Loop() {
				if len(late) == 0 || time.Since(begun) > 20*time.Millisecond {
					start()
					begun = time.Now()
				}
				p.lock()
				at := p.s.now() + 100*time.Microsecond
				p.wakeBy(at)
				p.unlock()
				for time.Duration(p.wakeAt.Load()) <= at { // Go's own timers are too late
					runtime.Gosched()
				}
				late = append(late, p.s.now()-at)
			}
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "us-late-median")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "us-late-p99")
		})
	}
}
