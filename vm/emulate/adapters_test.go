package emulate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Two ports are connected by a cable. Three are on a switch, which learns addresses.
func TestWires(t *testing.T) {
	type frame struct {
		from, to, source byte // port numbers; 0xff is broadcast
		got              []int
	}
	for _, tt := range []struct {
		ports  int
		frames []frame
	}{
		{2, []frame{{0, 0xff, 0, []int{1}}, {1, 0, 1, []int{0}}, {0, 1, 0, []int{1}}}},
		{3, []frame{
			{0, 1, 0, []int{1, 2}},    // 1 is unknown
			{1, 0, 1, []int{0}},       // 0 has been seen
			{0, 0xff, 0, []int{1, 2}}, // broadcast
			{2, 0, 0, nil},            // from the receiver's old port: the receiver has moved
			{1, 0, 1, []int{2}},       // learned by now
			{0, 1, 0xff, []int{1}},    // a broadcast address is never learned
			{0, 0xff, 0, []int{1, 2}},
		}},
	} {
		w := &wire{at: make(map[[6]byte]chan<- []byte)}
		var ports []chan []byte
		for range tt.ports {
			ports = append(ports, w.plug())
		}
		sent := make([]byte, 14) // the buffer is reused
		for i, f := range tt.frames {
			// The lowest bit of the first byte marks a group address.
			sent[0], sent[5], sent[6], sent[11], sent[13] = f.to>>7, f.to, f.source>>7, f.source, byte(i)
			w.send(ports[f.from], sent)
			sent[13] = 0xee
			var got []int
			for n, p := range ports {
				select {
				case b := <-p:
					got = append(got, n)
					if b[13] != byte(i) {
						t.Errorf("%d ports, frame %d: another frame came: %x", tt.ports, i, b)
					}
				default:
				}
			}
			if diff := cmp.Diff(f.got, got); diff != "" {
				t.Errorf("%d ports, frame %d (-want +got):\n%s", tt.ports, i, diff)
			}
		}
	}
}

func TestAWireHoldsSoMuchAndNoMore(t *testing.T) {
	w := &wire{at: make(map[[6]byte]chan<- []byte)}
	a, b := w.plug(), w.plug()
	for i := range wireAddresses + 10 {
		w.send(a, fmt.Appendf(nil, "\x00target%06d", i)) // 12 bytes of addresses, and data
	}
	w.send(a, []byte("short"))
	if len(w.at) > wireAddresses || len(b) != wireFrames || len(a) != 0 {
		t.Errorf("%d addresses, %d and %d frames", len(w.at), len(a), len(b))
	}
}
