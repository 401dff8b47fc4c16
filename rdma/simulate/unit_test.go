package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The quantiles of a queue agree with those of all its lengths, within the width of a bucket.
func TestQueueQuantiles(t *testing.T) {
	var s queueStat
	var all []int64
	r := rand.New(rand.NewPCG(1, 2))
	for now := int64(0); now < 20_000; now += 5 {
		n := int64(r.ExpFloat64() * 300_000)
		s.set(now, n)
		if n > 0 {
			all = append(all, n)
		}
	}
	s.set(20_000, 0)
	s.set(30_000, 0)
	slices.Sort(all)
	if s.empty < 9_995 || s.most != all[len(all)-1] || s.busy() != int64(5*len(all)) {
		t.Errorf("empty for %d, busy for %d, most %d; want 10000, %d, %d", s.empty, s.busy(), s.most, 5*len(all),
			all[len(all)-1])
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99} {
		want := all[int(q*float64(len(all)))]
		if got := s.quantile(q); got < want-want/50-32 || got > want+want/50+32 {
			t.Errorf("quantile %v: %d, want %d", q, got, want)
		}
	}
}

// The priorities for control go first. The others share the link by bytes, however long their packets are.
func TestPrioritiesShareByBytes(t *testing.T) {
	c := config(t, "topology: {form: star, hosts: 2, rate: 100Gbit}\ntraffic: [{pattern: permutation, bytes: 1B}]")
	n := newNetwork(c)
	p := n.switches[0].ports[0]
	put := func(prio uint8, size int32, count int) {
		for range count {
			k := n.get()
			k.prio, k.held, k.wire = prio, size, size
			p.put(k)
		}
	}
	put(0, 250, 4000)
	put(3, 4000, 250)
	put(6, 64, 3)
	put(7, 64, 2)
	var order []int
	bytes := map[int]int64{}
	for range 5 + 2000 {
		prio := p.pick()
		order = append(order, prio)
		k := p.queues[prio].pop()
		if p.queues[prio].first == nil {
			p.busy &^= 1 << prio
		}
		bytes[prio] += int64(k.held)
	}
	if !slices.Equal(order[:5], []int{7, 7, 6, 6, 6}) {
		t.Errorf("the first are %v", order[:5])
	}
	if d := bytes[0] - bytes[3]; d < -3*turnBytes || d > 3*turnBytes || bytes[0] == 0 {
		t.Errorf("%d bytes of priority 0, %d of 3", bytes[0], bytes[3])
	}
	p.paused, p.until[0] = 1, 1<<40
	for range 20 {
		if prio := p.pick(); prio != 3 {
			t.Fatalf("priority %d is next, but 0 is paused", prio)
		}
	}
}

// A frame of MAC control stops a NIC, as it stops the NIC of a lab, until another resumes it.
func TestPauseFrameStopsANIC(t *testing.T) {
	c := config(t, "topology: {form: star, hosts: 2, rate: 100Gbit}\nnic: {window: 4000}\n"+
		"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1MiB}]")
	n := newNetwork(c)
	h := n.hosts[1]
	n.run(0, never)
	pause := func(stop uint8) {
		k := n.get()
		k.pauseFrame(1<<3, stop)
		h.receive(k)
	}
	pause(1 << 3)
	n.run(50_000, never)
	sent := h.nic.Counters.TxPrio[3].Packets
	if sent > 2 || h.nic.Counters.RxPause[3] != 1 {
		t.Fatalf("%d packets sent, counters %+v", sent, h.nic.Counters.RxPause)
	}
	pause(0)
	n.run(int64(time.Second), never)
	if n.flows[0].end == none || h.nic.Counters.PausedUS[3] != 50 {
		t.Errorf("ended at %d, paused for %d us", n.flows[0].end, h.nic.Counters.PausedUS[3])
	}
}
