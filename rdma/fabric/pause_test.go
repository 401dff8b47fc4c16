package fabric

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// ofPriority sets different priorities in DSCP and tag.
func ofPriority(dst, src mac, dscp, pcp byte, size int) []byte {
	f := tagged(ipv4Frame(dst, src, ecnECT, size, 1), etherVLAN)
	f[14], f[19] = pcp<<5, dscp<<5
	return f
}

const ecnECT = 2

func pauseOf(t *testing.T, f []byte) (of, on Priorities) {
	t.Helper()
	if len(f) != pauseSize || parseHeader(f).dst != controlAddress || binary.BigEndian.Uint16(f[12:]) != etherControl ||
		binary.BigEndian.Uint16(f[14:]) != opPausePrio {
		t.Fatalf("no pause of priorities: % x", f)
	}
	of = Priorities(f[17])
	for prio := range priorities {
		if of.has(prio) && binary.BigEndian.Uint16(f[18+2*prio:]) == pauseQuanta {
			on |= 1 << prio
		}
	}
	return of, on
}

func TestPauseOfAPriority(t *testing.T) {
	s, nodes := attachAll(t, 3, func(cfg *Config) {
		for i := range cfg.Ports {
			cfg.Ports[i].Rate = 25e9
		}
	})
	teach(t, nodes)
	s.set("p1", Link{Rate: 10e6, Trust: TrustDSCP, PFC: PFC{High: 8000, Low: 4000, Of: 1 << 3}})
	var burst [][]byte
	for range 10 {
		burst = append(burst, ofPriority(station(1), station(0), 3, 0, 1500))
	}
	nodes[0].send(burst...)
	f, err := nodes[0].receive()
	if err != nil {
		t.Fatal(err)
	}
	if of, on := pauseOf(t, f); of != 1<<3 || on != 1<<3 {
		t.Errorf("a pause of %v, on: %v; want 3", of, on)
	}
	// Other priorities continue. The highest goes first.
	urgent := ofPriority(station(1), station(0), 6, 0, 100)
	nodes[0].send(urgent)
	other := ofPriority(station(2), station(0), 3, 0, 100)
	nodes[0].send(other)
	nodes[2].expect(other)
	place := -1
	for i := range 11 {
		f, err := nodes[1].receive()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(f, urgent) {
			place = i
		}
	}
	if place < 0 || place == 10 {
		t.Errorf("the frame of priority 6 came as number %d", place)
	}
	repeats, ended := 0, false
	for !ended {
		f, err := nodes[0].receive()
		if err != nil {
			t.Fatal(err)
		}
		of, on := pauseOf(t, f)
		if repeats++; of != 1<<3 {
			t.Errorf("a pause of %v", of)
		}
		ended = on == 0
	}
	c := s.until("let go", "p0", func(p PortCounters) bool { return p.Paused > 0 })
	if repeats < 2 || c.Pauses != 1 || c.PauseFrames != uint64(repeats+1) || c.TxFrames != c.PauseFrames+2 {
		t.Errorf("%d frames after the first; %+v", repeats, c)
	}
	if d := s.portCounters("p1"); d.Drops.Total() != 0 {
		t.Errorf("drops %+v", d.Drops)
	}
}

// Without trust the NIC is still read from.
func TestPauseOfTheLink(t *testing.T) {
	s, nodes := attachAll(t, 2, func(cfg *Config) { cfg.Ports[0].Rate = 25e9 })
	teach(t, nodes)
	s.set("p1", Link{Rate: 10e6, PFC: PFC{High: 4000, Low: 0}})
	nodes[0].send(to(1, 0, 6, 1500)...)
	f, err := nodes[0].receive()
	if err != nil || !bytes.Equal(f[12:18], []byte{0x88, 0x08, 0, 1, 0xff, 0xff}) {
		t.Fatalf("no pause of the link: % x, %v", f, err)
	}
	nodes[0].send(to(1, 0, 6, 1500)...)
	nodes[1].expect(slices.Concat(to(1, 0, 6, 1500), to(1, 0, 6, 1500))...)
	for {
		if f, err = nodes[0].receive(); err != nil {
			t.Fatal(err)
		}
		if binary.BigEndian.Uint16(f[16:]) == 0 {
			return
		}
	}
}

// A NIC that does not obey pauses loses frames beyond the headroom.
func TestHeadroomIsBounded(t *testing.T) {
	var c PortCounters
	s := newShaper("p", Link{Rate: 1000, PFC: PFC{High: 1000, Low: 0}}, DefaultQueueBytes, &c, &chunks{}, 0)
	f := framed(frame(1, 2, 9000, 0))
	for range 2 * headroom / len(f) {
		s.admit(f, 0, 0)
	}
	if s.waiting() > headroom+1000 || s.waiting() < headroom-len(f) || c.Drops.BufferFull == 0 {
		t.Errorf("%d bytes wait, %d frames dropped", s.waiting(), c.Drops.BufferFull)
	}
}

// No node can pause the NIC of another.
func TestMACControlStaysOnItsLink(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	teach(t, nodes)
	direct := frame(station(1), station(0), 60, 1)
	binary.BigEndian.PutUint16(direct[12:], etherControl)
	nodes[0].send(frame(controlAddress, station(0), 60, 1), direct, frame(station(1), station(0), 60, 2), direct)
	nodes[1].expect(frame(station(1), station(0), 60, 2))
	s.until("filtered", "p0", func(p PortCounters) bool { return p.RxFiltered == 3 })
	if c := s.portCounters("p0"); c.RxFiltered != 3 {
		t.Errorf("%+v", c)
	}
}

func TestTrust(t *testing.T) {
	both := ofPriority(1, 2, 3, 5, 100)
	ip6 := ipv6Frame(1, 2, 0, 100, 0)
	plain := frame(1, 2, 60, 0)
	for name, c := range map[string]struct {
		f               []byte
		none, pcp, dscp int
	}{
		"tag and DSCP": {both, 0, 5, 3}, "IPv6": {ip6, 0, 0, 26 >> 3}, "neither": {plain, 0, 0, 0},
		"cut off": {both[:18], 0, 5, 5}, "empty": {nil, 0, 0, 0},
	} {
		if a, b, d := Trust("").of(c.f), TrustPCP.of(c.f), TrustDSCP.of(c.f); a != c.none || b != c.pcp || d != c.dscp {
			t.Errorf("%s: priorities %d, %d, %d; want %d, %d, %d", name, a, b, d, c.none, c.pcp, c.dscp)
		}
	}
}

func TestPauseTime(t *testing.T) {
	if d := pauseTime(25e9); d < 1342*time.Microsecond || d > 1343*time.Microsecond {
		t.Errorf("a pause at 25 Gbit/s lasts %v", d)
	}
}
