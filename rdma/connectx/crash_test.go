package connectx

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// TestAPanicFailsOneAdapter expects a fatal error of one adapter, logged with its stack.
func TestAPanicFailsOneAdapter(t *testing.T) {
	for _, c := range []struct {
		name, at string // function in the stack trace
		broken   func(g []*guest) (repair func())
		provoke  func(g []*guest, q *testQP, w testWQE)
	}{
		{"at a frame from the wire", "Deliver", func(g []*guest) func() { g[0].p.net = nil; return nil },
			func(g []*guest, _ *testQP, _ testWQE) { g[0].p.Deliver(make([]byte, 64)) }},
		{"at a command", "initWrite", func(g []*guest) func() {
			was := g[0].p.mem
			g[0].p.mem = nil
			return func() { g[0].p.mem = was }
		}, func(g []*guest, _ *testQP, _ testWQE) { g[0].write32(segDoorbell, 1) }},
		{"in the timer's thread", "tick", func(g []*guest) func() { g[0].p.wait(nil, 0); return nil },
			func(g []*guest, _ *testQP, _ testWQE) {}},
		{"with the peer locked too", "occupy", func(g []*guest) func() {
			g[0].p.net, g[0].p.nic.Latency = nil, time.Nanosecond
			return nil
		}, func(_ []*guest, q *testQP, w testWQE) { q.send(w) }},
		{"in the cable", "give", func(g []*guest) func() {
			g[0].p.nic.Batch = nilPointer
			return func() { g[0].p.nic.Batch = nil }
		}, func(g []*guest, q *testQP, w testWQE) {
			g[0].p.s.SetDirect(false)
			q.send(w)
		}},
		{"where frames come from", "Receive", func([]*guest) func() { return nil },
			func(g []*guest, _ *testQP, _ testWQE) {
				calls := 0
				g[0].p.Receive(func() []byte {
					if calls++; calls == 1 {
						nilPointer(nil)
					}
					return nil
				})
				if calls != 2 {
					t.Errorf("asked for frames %d times", calls)
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, g := newLab(t, 3, NIC{}, nil)
			var mu sync.Mutex
			var log strings.Builder
			s.strict, s.opt.Log = false, func(f string, a ...any) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(&log, f+"\n", a...)
			}
			q, _ := pair(g[0], g[1], serviceRC, nil)
			at, to := g[0].alloc(4096), g[1].alloc(4096)
			w := testWQE{op: 0x08, segs: [][]byte{remoteSeg(to, g[1].key(to, 4096, g[1].pd, allRights...)),
				dataSeg(at, g[0].key(at, 4096, g[0].pd, allRights...), 64)}}
			p := g[0].p
			p.lock()
			repair := c.broken(g)
			p.unlock()
			c.provoke(g, q, w)
			for end := time.Now().Add(waitLimit); p.Status().Crash == ""; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("it has not failed")
				}
			}
			if repair != nil {
				p.lock()
				repair()
				p.unlock()
			}
			if st := p.Status(); st.Fault != FatalError || st.Up || st.Driver ||
				!strings.Contains(st.Crash, "nil pointer") {
				t.Errorf("%+v", st)
			}
			mu.Lock()
			if text := log.String(); !strings.Contains(text, "n0: panic: ") || !strings.Contains(text, c.at) {
				t.Errorf("the log has no stack with %s: %s", c.at, text)
			}
			mu.Unlock()
			b := make([]byte, 1)
			if g[0].f.Read(vfiouser.RegionBAR0, segSyndrome, b); b[0] != fatalSyndrome {
				t.Errorf("syndrome %d", b[0])
			}
			if st := g[1].p.Status(); st.Fault != Healthy {
				t.Errorf("its peer: %+v", st)
			}
			send := func(i, j int) {
				a, z := g[i].newQP(serviceRC), g[j].newQP(serviceRC)
				a.connect(i, j, z.num, nil)
				z.connect(j, i, a.num, nil)
				at, to := g[i].alloc(4096), g[j].alloc(4096)
				g[i].mem[at] = 7
				a.send(testWQE{op: 0x08, segs: [][]byte{remoteSeg(to, g[j].key(to, 4096, g[j].pd, allRights...)),
					dataSeg(at, g[i].key(at, 4096, g[i].pd, allRights...), 64)}})
				if e := a.cq.wait(); e == nil || statusOf(e) != 0 || g[j].mem[to] != 7 {
					t.Errorf("%d to %d after it: %x", i, j, e)
				}
			}
			send(1, 2)
			p.SetFault(Healthy)
			if st := p.Status(); st.Crash != "" || st.Fault != Healthy {
				t.Errorf("after a reset: %+v", st)
			}
			clear(g[0].mem) // doorbell records of deleted queues
			g[0].boot()
			send(0, 2)
		})
	}
}

func nilPointer([]byte) {
	var p *Port
	p.lock()
}
