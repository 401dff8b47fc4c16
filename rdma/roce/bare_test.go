package roce

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestBareFramesAreTheHeadersOfWholeFrames(t *testing.T) {
	for _, typ := range []QPType{RC, UC} {
		logs := map[bool][]string{}
		for _, bare := range []bool{false, true} {
			s := (&sim{space: regionLen, bare: bare}).start(t, typ, 25e9, func(a *Attr) { a.AckEvery = 5 })
			count := 0
			s.carry = func(n *node, now time.Duration, frame []byte) {
				head, size := frame, len(frame)
				if bare {
					size = FullSize(frame)
				} else {
					var p Packet
					if err := Parse(frame, &p); err != nil {
						t.Fatal(err)
					}
					head = frame[:len(frame)-sizeICRC-p.pad-len(p.Payload)]
				}
				logs[bare] = append(logs[bare], fmt.Sprintf("%v %d %x", now, size, head))
				if count++; count%41 != 0 {
					s.deliver(s.peer(n), now+2*time.Microsecond, frame)
				}
			}
			x := s.nodes[0]
			ops := []WROp{WRWrite}
			if typ == RC {
				ops = []WROp{WRWrite, WRRead, WRWriteImm, WRWrite}
			}
			for i, op := range ops {
				s.nodes[1].recvs = append(s.nodes[1].recvs, RecvWR{ID: 7})
				x.post(SendWR{ID: uint64(i), Op: op, Signaled: true, SG: local(0, 100_001-i), VA: remoteVA,
					RKey: keyRemote})
			}
			s.run(20 * time.Millisecond)
			if len(x.done) != len(ops) || x.done[0].Status != OK {
				t.Fatalf("bare %v: %v, want all requests to end well", bare, x.statuses())
			}
		}
		if len(logs[true]) < 90 || !slices.Equal(logs[true], logs[false]) {
			t.Errorf("type %d: %d bare frames differ from the headers of %d whole ones", typ, len(logs[true]),
				len(logs[false]))
		}
	}
}

func TestBareFramesHaveLimits(t *testing.T) {
	p := Packet{Src: GID{10: 0xff, 11: 0xff, 15: 1}, Dst: GID{10: 0xff, 11: 0xff, 15: 2}, Opcode: opWriteMiddle}
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
		want error
	}{
		{"as built", func(b []byte) []byte { return b }, nil},
		{"longer than a packet", func(b []byte) []byte { b[38], b[39] = 0x40, 0; return b }, ErrShort},
		{"shorter than its headers", func(b []byte) []byte { b[38], b[39] = 0, 8; return b }, ErrShort},
		{"with bytes of a payload", func(b []byte) []byte {
			b = append(b, make([]byte, 40)...)
			be.PutUint16(b[16:], 5000)
			be.PutUint16(b[38:], uint16(sizeUDP+sizeBTH+40+maxPayload+sizeICRC))
			return b
		}, ErrShort},
		{"without UDP", func(b []byte) []byte { return b[:30] }, ErrNotRoCE},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got Packet
			err := got.parse(c.edit(p.appendHeaders(nil, 1000)), true)
			if c.want == nil && (err != nil || len(got.Payload) != 1000) || c.want != nil && err != c.want {
				t.Errorf("%v with %d bytes, want %v", err, len(got.Payload), c.want)
			}
		})
	}
}

func TestFullSize(t *testing.T) {
	for _, p := range packets() {
		p.Payload = nil
		n := 0
		if opInfo[p.Opcode]&hPayload != 0 {
			n = 777
			p.Payload = make([]byte, n)
		}
		whole := len(p.Append(nil))
		if got := FullSize(p.appendHeaders(nil, n)); got != whole {
			t.Errorf("opcode %#x: %d bytes, want %d", p.Opcode, got, whole)
		}
	}
	if got := FullSize(make([]byte, 60)); got != 60 {
		t.Errorf("a frame without IP: %d bytes, want its own 60", got)
	}
}
