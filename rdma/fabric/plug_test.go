package fabric

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func plugIn(t *testing.T) (*testSwitch, *Plugs, *Plug, *node) {
	t.Helper()
	plugs := &Plugs{}
	s := start(t, 2, func(cfg *Config) { cfg.Plugs = plugs })
	n := s.attach("p1")
	p, err := plugs.Plug("p0", 25e9)
	if err != nil {
		t.Fatal(err)
	}
	p.Send(framed(frame(broadcast, station(0), 64, 0)))
	n.expect(frame(broadcast, station(0), 64, 0))
	n.send(frame(station(0), station(1), 64, 0))
	if got := p.Receive(); !bytes.Equal(got, framed(frame(station(0), station(1), 64, 0))) {
		t.Fatalf("the plug got %x", got)
	}
	return s, plugs, p, n
}

func TestPlugThatDoesNotKeepUp(t *testing.T) {
	s, _, p, n := plugIn(t)
	const size, frames = 4000, 2000
	for i := range frames {
		n.send(frame(station(0), station(1), size, uint32(i)))
	}
	c := s.until("all arrived", "p0", func(c PortCounters) bool {
		return c.TxFrames+c.Drops.QueueFull+uint64(c.QueueBytes/(size+prefixLen)) == frames+1
	})
	if c.Drops.QueueFull == 0 || c.QueueBytes < DefaultQueueBytes-size || c.QueueBytes > DefaultQueueBytes {
		t.Fatalf("%+v", c)
	}
	got := 0
	for want := frames - int(c.Drops.QueueFull); got < want; {
		for b := p.Receive(); len(b) > 0; got++ {
			k, err := nextFrame(b)
			if err != nil || !bytes.Equal(b[prefixLen:k], frame(station(0), station(1), size, uint32(got))) {
				t.Fatalf("frame %d: %d bytes, %v", got, k, err)
			}
			b = b[k:]
		}
	}
	if c := s.portCounters("p0"); c.QueueBytes != 0 || c.TxFrames != uint64(got+1) || c.Drops.Total()+
		c.TxFrames != frames+1 {
		t.Errorf("after %d frames: %+v", got, c)
	}
}

// Frames of a shorter path count even when the NIC is gone.
func TestPlugThatCopies(t *testing.T) {
	s, _, p, _ := plugIn(t)
	was := s.portCounters("p0")
	p.Copied(3, 12_000, 1, 62)
	p.Copied(1, 100, 0, 0)
	p.Pull()
	c := s.portCounters("p0")
	got := [4]uint64{c.RxFrames - was.RxFrames, c.RxBytes - was.RxBytes, c.TxFrames - was.TxFrames,
		c.TxBytes - was.TxBytes}
	if want := [4]uint64{4, 12_100, 1, 62}; got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestPlugOnImpairedLinks(t *testing.T) {
	s, _, p, n := plugIn(t)
	s.set("p1", Link{Delay: 20 * time.Millisecond, Rate: 10e6, PFC: PFC{High: 4000, Low: 0}})
	burst := to(1, 0, 6, 1500)
	begin := time.Now()
	p.Send(framed(burst...))
	if f := p.Receive(); !bytes.Equal(f[prefixLen+12:][:6], []byte{0x88, 0x08, 0, 1, 0xff, 0xff}) {
		t.Errorf("no pause: % x", f)
	}
	n.expect(burst...)
	if d := time.Since(begin); d < 20*time.Millisecond+6*1500*8*100 {
		t.Errorf("six frames took %v", d)
	}
	// The timer armed in the plug's turn also ends the pause.
	const pause = prefixLen + pauseSize
	for f := p.Receive(); f[len(f)-pause:][prefixLen+16] != 0; f = p.Receive() {
	}
	s.set("p0", Link{Delay: 20 * time.Millisecond})
	begin = time.Now()
	n.send(to(0, 1, 1, 100)...)
	if f := p.Receive(); !bytes.Equal(f, framed(to(0, 1, 1, 100)...)) || time.Since(begin) < 20*time.Millisecond {
		t.Errorf("after %v: %x", time.Since(begin), f)
	}
}

func TestPlugIsPulled(t *testing.T) {
	s, plugs, p, _ := plugIn(t)
	ended := func(why string) {
		t.Helper()
		if b := p.Receive(); len(b) > 0 {
			t.Errorf("%s: the plug got %x", why, b)
		}
		p.Send(framed(frame(station(1), station(0), 64, 7)))
	}
	again := func() {
		t.Helper()
		var err error
		if p, err = plugs.Plug("p0", 25e9); err != nil {
			t.Fatal(err)
		}
	}
	s.attach("p0")
	ended("replaced")
	again()
	p.Send([]byte{0, 0, 0, 1, 0})
	ended("wrong frame")
	again()
	p.Pull()
	ended("pulled")
	again()
	if c := s.portCounters("p0"); c.BadFrames != 1 || c.Replaced != 2 || c.Connects != 5 || c.RxFrames != 1 {
		t.Errorf("%+v", c)
	}
	for port, rate := range map[string]int64{"p1": 0, "p7": 1} {
		if _, err := plugs.Plug(port, rate); err == nil || !strings.Contains(err.Error(),
			"no such port, or the NIC no rate") {
			t.Errorf("port %s at %d bit/s: %v", port, rate, err)
		}
	}
	s.stop()
	ended("stopped")
	if _, err := plugs.Plug("p0", 25e9); err != errStopped {
		t.Errorf("got %v, want that it has stopped", err)
	}
	if _, err := new(Plugs).Plug("p0", 25e9); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("got %v, want that it does not run", err)
	}
}

// A panic while a plug sends fails only its NIC, and no current frame is sent.
func TestPlugThatPanics(t *testing.T) {
	plugs := &Plugs{}
	s := start(t, 3, func(cfg *Config) { cfg.Plugs = plugs })
	n, other := s.attach("p1"), s.attach("p2")
	p, err := plugs.Plug("p0", 25e9)
	if err != nil {
		t.Fatal(err)
	}
	place := func(f func(p1 *port) *port) {
		if err := s.bridge.do(func() error {
			p1 := s.bridge.ports[1]
			p1.conn.port = f(p1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	place(func(*port) *port { return &port{} }) // without a switch
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		p.Send(framed(frame(broadcast, station(0), 1000, 1)))
	}()
	place(func(p1 *port) *port { return p1 })
	for i, size := range []int{64, 1000} {
		f := frame(broadcast, station(0), size, uint32(2+i))
		p.Send(framed(f))
		n.expect(f)
		other.expect(f)
	}
	n.send(frame(station(0), station(1), 64, 0))
	if got := p.Receive(); !bytes.Equal(got, framed(frame(station(0), station(1), 64, 0))) {
		t.Errorf("the plug got %x", got)
	}
}
