package emulate

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newWire() *wire { return &wire{at: make(map[[6]byte]*station)} }

func TestWires(t *testing.T) {
	t.Parallel()
	type frame struct {
		from, to, source byte // port numbers; 0xff is broadcast
		got              []int
		after            time.Duration
	}
	for name, test := range map[string]struct {
		cards  []string // of the ports
		frames []frame
	}{
		"a cable": {[]string{"a", "b"}, []frame{{from: 0, to: 0xff, source: 0, got: []int{1}},
			{from: 1, to: 0, source: 1, got: []int{0}}, {from: 0, to: 1, source: 0, got: []int{1}}}},
		"a switch": {[]string{"a", "b", "c"}, []frame{
			{from: 0, to: 1, source: 0, got: []int{1, 2}},    // 1 is unknown
			{from: 1, to: 0, source: 1, got: []int{0}},       // 0 has been seen
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}}, // broadcast
			{from: 0, to: 1, source: 0xff, got: []int{1}},
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}},
		}},
		"a station that moves to another card has been silent": {[]string{"a", "b", "c"}, []frame{
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}},
			{from: 2, to: 0, source: 0, got: nil, after: wireHold}, // from the receiver's old port
			{from: 1, to: 0, source: 1, got: []int{2}},
		}},
		"a port keeps an address that another card claims": {[]string{"a", "b", "c"}, []frame{
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}},
			{from: 2, to: 0xff, source: 0, got: []int{0, 1}, after: time.Second},
			{from: 1, to: 0, source: 1, got: []int{0}},
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}, after: time.Second},
			{from: 2, to: 0xff, source: 0, got: []int{0, 1}, after: 2 * time.Second},
			{from: 1, to: 0, source: 1, got: []int{0}},
		}},
		"a bond moves an address between ports of its card": {[]string{"a", "b", "a"}, []frame{
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}},
			{from: 2, to: 0xff, source: 0, got: []int{0, 1}},
			{from: 1, to: 0, source: 1, got: []int{2}},
		}},
		"a silent station is forgotten": {[]string{"a", "b", "c"}, []frame{
			{from: 0, to: 0xff, source: 0, got: []int{1, 2}},
			{from: 1, to: 0, source: 1, got: []int{0}, after: wireAgeing},
			{from: 1, to: 0, source: 1, got: []int{0, 2}, after: time.Second},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				var ports []*wireEnd
				for _, card := range test.cards {
					ports = append(ports, w.plug(card))
				}
				sent := make([]byte, 15) // the buffer is reused
				for i, f := range test.frames {
					time.Sleep(f.after)
					sent[0], sent[5], sent[6], sent[11], sent[14] = f.to>>7, f.to, f.source>>7, f.source+1, byte(i)
					if f.to != 0xff {
						sent[5]++
					}
					w.send(ports[f.from], sent)
					sent[14] = 0xee
					var got []int
					for n, p := range ports {
						select {
						case b := <-p.frames:
							got = append(got, n)
							if b[14] != byte(i) {
								t.Errorf("frame %d: another frame came: %x", i, b)
							}
						default:
						}
					}
					if diff := cmp.Diff(f.got, got); diff != "" {
						t.Errorf("frame %d (-want +got):\n%s", i, diff)
					}
				}
			})
		})
	}
}

// A guest that invents addresses does not keep those of others from being learned.
func TestAWireHoldsSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		a, b, c := w.plug("a"), w.plug("b"), w.plug("c")
		frame := make([]byte, 14)
		from := func(e *wireEnd, station int) {
			binary.BigEndian.PutUint32(frame[8:], uint32(station))
			w.send(e, frame)
		}
		for i := range 5 * wireFrames {
			from(a, i+1)
		}
		w.send(a, []byte("short"))
		if len(w.at) != wireAddresses || len(b.frames) != wireFrames || len(a.frames) != 0 {
			t.Errorf("%d addresses, %d and %d frames", len(w.at), len(a.frames), len(b.frames))
		}
		from(c, 1<<31)
		if len(w.at) != wireAddresses+1 || c.addresses != 1 {
			t.Errorf("%d addresses after a frame of a new station, %d of them at its port", len(w.at), c.addresses)
		}
		time.Sleep(wireAgeing + time.Second)
		from(a, 1<<30)
		if len(w.at) != 2 || a.addresses != 1 {
			t.Errorf("%d addresses after a while, %d of them at the port", len(w.at), a.addresses)
		}
	})
}

func TestAWireForwardsNoMACControl(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		types string // after the addresses
		want  int
	}{
		"a pause":                   {"\x88\x08\x00\x01\xff\xff", 0},
		"a pause in a VLAN":         {"\x81\x00\x00\x01\x88\x08\x01\x01", 0},
		"a pause in two VLANs":      {"\x88\xa8\x00\x01\x81\x00\x00\x02\x88\x08\x01\x01", 0},
		"the begin of a VLAN":       {"\x81\x00", 1},
		"a frame of IPv4":           {"\x08\x00\x45\x00", 1},
		"a frame of RoCE version 1": {"\x89\x15\x00\x00", 1},
	} {
		w := newWire()
		a, b := w.plug("a"), w.plug("b")
		for _, to := range []string{"\x01\x80\xc2\x00\x00\x01", "\x02\x00\x00\x00\x00\x02",
			"\xff\xff\xff\xff\xff\xff"} {
			w.send(a, []byte(to+"\x02\x00\x00\x00\x00\x01"+test.types))
			if len(b.frames) != test.want {
				t.Errorf("%s to %x: %d frames are forwarded, want %d", name, to, len(b.frames), test.want)
			}
			for range len(b.frames) {
				<-b.frames
			}
		}
	}
}
