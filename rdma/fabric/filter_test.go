package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

var (
	macA  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	macB  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}
	macC  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 3}
	toAll = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

func ethernet(to, from net.HardwareAddr) []byte {
	return slices.Concat(to, from, []byte{0x08, 0x00}, make([]byte, 46))
}

func pcapngOf(t *testing.T, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(f), Length: len(f)}
		if err := w.WritePacket(ci, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: uint64(len(frames))}),
		w.Flush()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func frames(t *testing.T, file []byte) (all [][]byte) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if err != nil {
			return all
		}
		all = append(all, data)
	}
}

func TestPacketFilter(t *testing.T) {
	ab, ba, bc, fromC := ethernet(macB, macA), ethernet(macA, macB), ethernet(macC, macB), ethernet(toAll, macC)
	all := [][]byte{ab, ba, bc, fromC}
	tests := []struct {
		name string
		keep func([]byte) bool
		max  uint64
		want [][]byte
	}{
		{"everything", nil, 0, all},
		{"what is from, to or for all", FramesOf([]net.HardwareAddr{macA}), 0, [][]byte{ab, ba, fromC}},
		{"either of two addresses", FramesOf([]net.HardwareAddr{macA, macC}), 0, all},
		{"a limit", nil, 2, [][]byte{ab, ba}},
		{"a limit counts what is kept", FramesOf([]net.HardwareAddr{macC}), 2, [][]byte{bc, fromC}},
		{"a limit that is not reached", nil, 9, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := pcapngOf(t, all...)
			for _, chunk := range []int{len(in), 7, 1} {
				var out bytes.Buffer
				full := 0
				p := &PacketFilter{W: &out, Keep: tt.keep, Limit: tt.max, Full: func() { full++ }}
				for part := range slices.Chunk(in, chunk) {
					if n, err := p.Write(part); err != nil || n != len(part) {
						t.Fatalf("Write: %d, %v", n, err)
					}
				}
				got := frames(t, out.Bytes())
				if !slices.EqualFunc(got, tt.want, bytes.Equal) || p.Packets.Load() != uint64(len(tt.want)) {
					t.Errorf("in chunks of %d: got %d frames (counted %d), want %d", chunk, len(got), p.Packets.Load(),
						len(tt.want))
				}
				if reached := tt.max != 0 && int(tt.max) == len(tt.want); (full == 1) != reached || full > 1 {
					t.Errorf("full was called %d times", full)
				}
				if tt.keep == nil && tt.max == 0 && !bytes.Equal(out.Bytes(), in) {
					t.Error("nothing was left out, and the stream differs")
				}
			}
		})
	}
}

func TestWhatHasBeenWrittenIsAlwaysWhole(t *testing.T) {
	in := pcapngOf(t, ethernet(macA, macB), ethernet(macB, macA))
	for n := range in {
		var out bytes.Buffer
		if _, err := (&PacketFilter{W: &out}).Write(in[:n]); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatalf("after %d bytes: not the beginning of the stream", n)
		}
		for rest := out.Bytes(); len(rest) > 0; {
			size := int(binary.LittleEndian.Uint32(rest[4:]))
			if size > len(rest) {
				t.Fatalf("after %d bytes: the last block has %d bytes of %d", n, len(rest), size)
			}
			rest = rest[size:]
		}
	}
}

func TestWhatIsNotPcapngIsRefused(t *testing.T) {
	block := func(kind, size uint32, more ...byte) []byte {
		return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), size), more...)
	}
	tests := []struct {
		name string
		in   []byte
	}{
		{"a length of nothing", block(1, 0)},
		{"an odd length", block(1, 13)},
		{"a length beyond reason", block(1, 1<<30)},
		{"a packet block without room for a packet", block(packetBlock, 12, 0, 0, 0, 0)},
		{"a packet longer than its block", block(packetBlock, 32, slices.Concat(make([]byte, 12), []byte{0xff, 0, 0, 0},
			make([]byte, 8))...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := (&PacketFilter{W: new(bytes.Buffer)}).Write(tt.in); err == nil ||
				!strings.Contains(err.Error(), "not pcapng") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzPacketFilter(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{6, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0},
		uint64(1))
	f.Add([]byte{6, 0, 0, 0, 12, 0, 0, 0, 12, 0, 0, 0}, uint64(1))
	f.Fuzz(func(t *testing.T, in []byte, limit uint64) {
		var out bytes.Buffer
		p := &PacketFilter{W: &out, Keep: FramesOf([]net.HardwareAddr{macA}), Limit: limit}
		_, _ = p.Write(in) // must not panic and must write only whole blocks
		if out.Len() > len(in) {
			t.Errorf("%d bytes in, %d out", len(in), out.Len())
		}
		if limit > 0 && p.Packets.Load() > limit {
			t.Errorf("%d packets, limit %d", p.Packets.Load(), limit)
		}
	})
}
