package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWhereFramesGo(t *testing.T) {
	type step struct {
		from     int
		src, dst mac
		want     []int
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"a broadcast goes to all others and not back", []step{{1, station(1), broadcast, []int{0, 2}}}},
		{"a multicast goes to all others", []step{{0, station(1), 0x33_33_00_00_00_01, []int{1, 2}}}},
		{"an unknown address is flooded", []step{{0, station(1), station(9), []int{1, 2}}}},
		{"an answer goes only to the asker", []step{
			{0, station(1), broadcast, []int{1, 2}},
			{1, station(2), station(1), []int{0}},
			{0, station(1), station(2), []int{1}},
		}},
		{"two stations behind one port", []step{
			{0, station(1), broadcast, []int{1, 2}},
			{0, station(2), broadcast, []int{1, 2}},
			{2, station(3), station(2), []int{0}},
			{2, station(3), station(1), []int{0}},
		}},
		{"a frame to a station behind the same port is filtered", []step{
			{0, station(1), broadcast, []int{1, 2}},
			{0, station(2), station(1), nil},
		}},
		{"a station that moves is followed", []step{
			{0, station(1), broadcast, []int{1, 2}},
			{2, station(1), broadcast, []int{0, 1}},
			{1, station(2), station(1), []int{2}},
		}},
		{"a multicast source is forwarded but not learned", []step{
			{0, 0x01_00_5e_00_00_01, broadcast, []int{1, 2}},
			{1, station(2), 0x01_00_5e_00_00_01, []int{0, 2}},
		}},
		{"a zero source is forwarded but not learned", []step{
			{0, 0, broadcast, []int{1, 2}},
			{1, station(2), 0, []int{0, 2}},
			{1, 0, 0, []int{0, 2}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, nodes := attachAll(t, 3, nil)
			want := make([]uint64, 3)
			for i, st := range tt.steps {
				f := frame(st.dst, st.src, 60+i, uint32(i))
				nodes[st.from].send(f)
				for _, to := range st.want {
					nodes[to].expect(f)
					want[to]++
				}
				if st.want == nil { // only the counter shows it
					s.until("filtered", nodes[st.from].name, func(p PortCounters) bool { return p.RxFiltered == 1 })
				}
			}
			var got []uint64
			for _, p := range s.counters().Ports {
				got = append(got, p.TxFrames)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("frames sent by port (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFrameSizesFromTheShortestToTheLongest(t *testing.T) {
	_, nodes := attachAll(t, 2, nil)
	var frames [][]byte
	for i, size := range []int{14, 15, 42, 60, 64, 1514, 4214, 9216, 9234, MaxFrame} {
		frames = append(frames, frame(broadcast, station(1), size, uint32(i)))
	}
	nodes[0].send(frames...)
	nodes[1].expect(frames...)
}

func TestFramesOfOneReadToManyReceivers(t *testing.T) {
	// More runs of frames than one writev can take.
	s, nodes := attachAll(t, 3, nil)
	nodes[1].send(frame(broadcast, station(1), 60, 0))
	nodes[2].send(frame(broadcast, station(2), 60, 0))
	var all [][]byte
	want := make([][][]byte, 3)
	want[1] = [][]byte{frame(broadcast, station(2), 60, 0)}
	want[2] = [][]byte{frame(broadcast, station(1), 60, 0)}
	for i := range 2*maxIovecs + 100 {
		to := 1 + i%2
		f := frame(station(to), station(3), 20, uint32(i))
		all = append(all, f)
		want[to] = append(want[to], f)
	}
	s.until("learned", "p2", func(p PortCounters) bool { return p.Addresses == 1 })
	nodes[0].send(all...)
	nodes[1].expect(want[1]...)
	nodes[2].expect(want[2]...)
	if c := s.portCounters("p1"); c.Writes > c.TxFrames/8 {
		t.Errorf("port p1: %d writes for %d frames: frames were not gathered", c.Writes, c.TxFrames)
	}
}

func TestAddressesAge(t *testing.T) {
	var clock atomic.Int64
	s, nodes := attachAll(t, 3, func(cfg *Config) {
		cfg.now = func() time.Time { return time.Unix(1_000_000, clock.Load()) }
	})
	hello := frame(broadcast, station(1), 60, 1)
	nodes[0].send(hello)
	nodes[1].expect(hello)
	nodes[2].expect(hello)

	clock.Add(int64(ageing))
	f := frame(station(1), station(2), 60, 2)
	nodes[1].send(f)
	nodes[0].expect(f)
	if got := s.portCounters("p1").RxFlooded; got != 0 {
		t.Errorf("at the age of %v: %d frames flooded, want 0", ageing, got)
	}

	clock.Add(1)
	f = frame(station(1), station(2), 60, 3)
	nodes[1].send(f)
	nodes[0].expect(f)
	nodes[2].expect(f)
	c := s.counters()
	if got := c.Ports[1].RxFlooded; got != 1 {
		t.Errorf("past the age of %v: %d frames flooded, want 1", ageing, got)
	}
	if c.Addresses != 1 { // station 1 has aged
		t.Errorf("%d addresses known, want 1", c.Addresses)
	}
}

func TestAFloodOfAddressesIsBoundedAndHurtsNobodyElse(t *testing.T) {
	s, nodes := attachAll(t, 3, nil)
	const invented = macsPerPort + 500
	go func() { // receivers must be drained at the same time
		for i := range invented {
			if _, err := nodes[0].conn.Write(framed(frame(station(2), station(1000+i), 60, 0))); err != nil {
				t.Error(err)
			}
		}
	}()
	for range invented {
		for _, n := range nodes[1:] {
			if _, err := n.receive(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := s.portCounters("p0")
	if c.Addresses != macsPerPort || c.Unlearned != invented-macsPerPort {
		t.Errorf("port p0: %d addresses learned, %d not; want %d, %d", c.Addresses, c.Unlearned, macsPerPort,
			invented-macsPerPort)
	}
	f := frame(broadcast, station(2), 60, 0)
	nodes[2].send(f)
	nodes[1].expect(f)
	f = frame(station(2), station(3), 60, 0)
	nodes[1].send(f)
	nodes[2].expect(f)
	if got := s.portCounters("p1").RxFlooded; got != 0 {
		t.Errorf("a station was not learned while another port is at its limit")
	}
}

func TestAStalledReceiverLosesItsOwnFramesOnly(t *testing.T) {
	const limit = 256 << 10
	s, nodes := attachAll(t, 3, func(cfg *Config) { cfg.QueueBytes = limit })
	sender, stalled, other := nodes[0], nodes[1], nodes[2]
	stalled.send(frame(broadcast, station(1), 60, 0))
	sender.expect(frame(broadcast, station(1), 60, 0))
	other.send(frame(broadcast, station(2), 60, 0))
	sender.expect(frame(broadcast, station(2), 60, 0))

	// Frames to the stalled node are numbered.
	sent := uint64(0)
	for s.portCounters("p1").Drops.QueueFull == 0 {
		var batch [][]byte
		for range 16 {
			batch = append(batch, frame(station(1), station(9), 4200, uint32(sent)))
			sent++
		}
		ping := frame(station(2), station(9), 64, uint32(sent))
		sender.send(append(batch, ping)...)
		for { // the broadcast came first
			got, err := other.receive()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got, ping) {
				break
			}
		}
	}
	c := s.portCounters("p1")
	if c.QueuePeak > limit+MaxFrame || c.QueuePeak < limit-MaxFrame {
		t.Errorf("queue held up to %d bytes, want about %d", c.QueuePeak, limit)
	}

	if got, err := stalled.receive(); err != nil || !bytes.Equal(got, frame(broadcast, station(2), 60, 0)) {
		t.Fatalf("first frame of the stalled node: %x, %v", got, err)
	}
	last, got := -1, uint64(0)
	for got < sent-c.Drops.QueueFull {
		f, err := stalled.receive()
		if err != nil {
			t.Fatal(err)
		}
		tag := binary.BigEndian.Uint32(f[16:])
		if int(tag) <= last || !bytes.Equal(f, frame(station(1), station(9), 4200, tag)) {
			t.Fatalf("frame %d after %d is damaged or out of order", tag, last)
		}
		last = int(tag)
		got++
	}
	c = s.until("queue empty", "p1", func(p PortCounters) bool { return p.QueueBytes == 0 })
	if c.TxFrames != got+1 || c.TxFrames+c.Drops.Total() != sent+1 {
		t.Errorf("sent %d, of these delivered %d and dropped %d", sent+1, c.TxFrames, c.Drops.Total())
	}
	f := frame(station(1), station(9), 64, 7)
	sender.send(f)
	stalled.expect(f)
}

func TestAFrameThatTheSocketTookInPartIsCompletedFromTheQueue(t *testing.T) {
	const limit = 32 << 20
	s, nodes := attachAll(t, 2, func(cfg *Config) { cfg.QueueBytes = limit })
	var frames [][]byte
	for i := range 10_000 {
		frames = append(frames, frame(broadcast, station(1), 1001, uint32(i)))
	}
	// Pieces exceed one buffer of the kernel, so that a write can end within a frame.
	for piece := range slices.Chunk(frames, 190) {
		nodes[0].send(piece...)
	}
	s.until("all received", "p0", func(p PortCounters) bool { return p.RxFrames == uint64(len(frames)) })
	c := s.portCounters("p1")
	if c.QueueBytes == 0 || c.TxFrames == 0 {
		t.Errorf("nothing waits, or all does: %+v", c)
	}
	nodes[1].expect(frames...)
	c = s.until("queue empty", "p1", func(p PortCounters) bool { return p.QueueBytes == 0 })
	if c.TxFrames != uint64(len(frames)) || c.TxBytes != 1001*c.TxFrames || c.Drops.Total() != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestWhatWaitsForANodeThatGoesIsCounted(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	sent := uint64(0)
	for s.portCounters("p1").QueueBytes == 0 {
		nodes[0].send(frame(broadcast, station(1), 9000, 0))
		sent++
	}
	nodes[1].conn.Close()
	c := s.until("disconnected", "p1", func(p PortCounters) bool { return !p.Connected })
	if c.Drops.Disconnected == 0 || c.TxFrames+c.Drops.Disconnected != sent || c.QueueBytes != 0 {
		t.Errorf("sent %d, delivered %d, dropped %+v, waiting %d", sent, c.TxFrames, c.Drops, c.QueueBytes)
	}
}

func TestFramesForANodeThatHasJustGoneAreCounted(t *testing.T) {
	s, nodes := attachAll(t, 3, nil)
	// A frame arrives and then its receiver disconnects, so the write finds a closed stream.
	f := frame(broadcast, station(1), 60, 1)
	err := s.bridge.do(func() error {
		nodes[0].send(f)
		return nodes[1].conn.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes[2].expect(f)
	c := s.until("disconnected", "p1", func(p PortCounters) bool { return !p.Connected })
	if c.TxFrames != 0 || c.Drops.Disconnected != 1 {
		t.Errorf("delivered %d, dropped %+v; want 0 and one", c.TxFrames, c.Drops)
	}
}

func TestManyPorts(t *testing.T) {
	const ports = 200
	s, nodes := attachAll(t, ports, nil)
	for i, n := range nodes {
		if i%20 == 0 {
			f := frame(broadcast, station(i), 100, uint32(i))
			n.send(f)
			for j, other := range nodes {
				if j != i {
					other.expect(f)
				}
			}
		}
	}
	total := uint64(0)
	for _, p := range s.counters().Ports {
		total += p.TxFrames
	}
	if want := uint64(ports / 20 * (ports - 1)); total != want {
		t.Errorf("%d frames sent, want %d", total, want)
	}
}

type model struct {
	learned map[mac]int
	inbox   [][][]byte
}

func (m *model) frame(from int, f []byte) {
	h := parseHeader(f)
	if !h.src.group() && h.src != 0 {
		m.learned[h.src] = from
	}
	to, known := m.learned[h.dst]
	for i := range m.inbox {
		if i != from && (!known || h.dst.group() || i == to) {
			m.inbox[i] = append(m.inbox[i], f)
		}
	}
}

func TestPropertyDeliveredInOrderExactlyOnceToTheRightPorts(t *testing.T) {
	s := start(t, 0, nil)
	ctx := context.Background()
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		ports := rapid.IntRange(2, 4).Draw(rt, "ports")
		m := &model{learned: make(map[mac]int), inbox: make([][][]byte, ports)}
		nodes := make([]*node, ports)
		for i := range nodes {
			p := s.port(fmt.Sprintf("r%d-%d", round, i))
			if err := s.client.AddPort(ctx, p); err != nil {
				rt.Fatal(err)
			}
			nodes[i] = s.attach(p.Name)
		}
		address := rapid.OneOf(
			rapid.SampledFrom([]mac{0, broadcast, 0x01_00_5e_00_00_01}),
			rapid.Map(rapid.IntRange(1, 5), station))
		size := rapid.OneOf(rapid.IntRange(minFrame, 100), rapid.SampledFrom([]int{1514, 4200, 9216, MaxFrame}))

		pending := make([][]byte, ports)
		frames := make([][][]byte, ports)
		sent, received := make([]int, ports), make([]uint64, ports)
		tag := uint32(0)
		for range rapid.IntRange(1, 12).Draw(rt, "turns") {
			from := rapid.IntRange(0, ports-1).Draw(rt, "from")
			for range rapid.IntRange(0, 5).Draw(rt, "frames") {
				tag++
				f := frame(address.Draw(rt, "dst"), address.Draw(rt, "src"), size.Draw(rt, "size"), tag)
				frames[from] = append(frames[from], f)
				pending[from] = append(pending[from], framed(f)...)
			}
			cut := rapid.IntRange(0, len(pending[from])).Draw(rt, "cut")
			nodes[from].write(pending[from][:cut])
			pending[from] = pending[from][cut:]
			sent[from] += cut
			// A frame counts when its last byte arrives.
			for len(frames[from]) > 0 && sent[from] >= prefixLen+len(frames[from][0]) {
				f := frames[from][0]
				frames[from] = frames[from][1:]
				sent[from] -= prefixLen + len(f)
				m.frame(from, f)
				received[from]++
			}
			s.until("received", nodes[from].name, func(p PortCounters) bool { return p.RxFrames == received[from] })
		}
		for i, n := range nodes {
			for _, want := range m.inbox[i] {
				got, err := n.receive()
				if err != nil || !bytes.Equal(got, want) {
					rt.Fatalf("port %d: got %d bytes, %v; want %d bytes", i, len(got), err, len(want))
				}
			}
			if got := s.portCounters(n.name).TxFrames; got != uint64(len(m.inbox[i])) {
				rt.Fatalf("port %d: %d frames sent, want %d", i, got, len(m.inbox[i]))
			}
			n.conn.Close()
		}
		for _, n := range slices.Backward(nodes) {
			if err := s.client.RemovePort(ctx, n.name); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
