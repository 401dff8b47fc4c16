package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rackless/rackless/lab"
)

var (
	macA  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	macB  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}
	macC  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 3}
	toAll = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// frame is a minimal Ethernet frame.
func frame(to, from net.HardwareAddr) []byte {
	return slices.Concat(to, from, []byte{0x08, 0x00}, make([]byte, 46))
}

// stream is a pcapng file of frames, as the switch writes it.
func stream(t *testing.T, frames ...[]byte) []byte {
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

// frames reads a pcapng file back.
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
	ab, ba, bc, fromC := frame(macB, macA), frame(macA, macB), frame(macC, macB), frame(toAll, macC)
	all := [][]byte{ab, ba, bc, fromC}
	tests := []struct {
		name string
		keep func([]byte) bool
		max  uint64
		want [][]byte
	}{
		{"everything", nil, 0, all},
		{"what is from, to or for all", framesOf([]net.HardwareAddr{macA}), 0, [][]byte{ab, ba, fromC}},
		{"either of two addresses", framesOf([]net.HardwareAddr{macA, macC}), 0, all},
		{"a limit", nil, 2, [][]byte{ab, ba}},
		{"a limit counts what is kept", framesOf([]net.HardwareAddr{macC}), 2, [][]byte{bc, fromC}},
		{"a limit that is not reached", nil, 9, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := stream(t, all...)
			for _, chunk := range []int{len(in), 7, 1} {
				var out bytes.Buffer
				full := 0
				p := &packetFilter{w: &out, keep: tt.keep, limit: tt.max, full: func() { full++ }}
				for part := range slices.Chunk(in, chunk) {
					if n, err := p.Write(part); err != nil || n != len(part) {
						t.Fatalf("Write: %d, %v", n, err)
					}
				}
				got := frames(t, out.Bytes())
				if !slices.EqualFunc(got, tt.want, bytes.Equal) || p.packets != uint64(len(tt.want)) {
					t.Errorf("in chunks of %d: got %d frames (counted %d), want %d", chunk, len(got), p.packets,
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
	in := stream(t, frame(macA, macB), frame(macB, macA))
	for n := range in {
		var out bytes.Buffer
		if _, err := (&packetFilter{w: &out}).Write(in[:n]); err != nil {
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
			if _, err := (&packetFilter{w: new(bytes.Buffer)}).Write(tt.in); err == nil ||
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
		p := &packetFilter{w: &out, keep: framesOf([]net.HardwareAddr{macA}), limit: limit}
		_, _ = p.Write(in) // refused or not: it must not panic, and only whole blocks come out
		if out.Len() > len(in) {
			t.Errorf("%d bytes in, %d out", len(in), out.Len())
		}
		if limit > 0 && p.packets > limit {
			t.Errorf("%d packets, limit %d", p.packets, limit)
		}
	})
}

func TestCaptureFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	a, _, _ := testApp(t)
	open := func(f captureFlags) (func(bool) error, string, error) {
		_, where, closeFile, err := a.captureFile("pair", f)
		return closeFile, where, err
	}
	closeFile, where, err := open(captureFlags{})
	if err != nil || where != "pair.pcapng" {
		t.Fatalf("got %q, %v", where, err)
	}
	if err := closeFile(false); err != nil {
		t.Error(err)
	}
	if _, _, err := open(captureFlags{}); err == nil ||
		err.Error() != "pair.pcapng exists: --force overwrites it, -o names another" {
		t.Errorf("a second time: %v", err)
	}
	if closeFile, _, err = open(captureFlags{force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
	if err := closeFile(true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pair.pcapng")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a capture that failed is still there: %v", err)
	}
	if _, where, err := open(captureFlags{file: "-"}); err != nil || where != "standard output" {
		t.Errorf("got %q, %v", where, err)
	}
	_, slave := openPTY(t)
	a.out = slave
	if _, _, err := open(captureFlags{file: "-"}); err == nil || !strings.Contains(err.Error(), "not to the terminal") {
		t.Errorf("binary output to a terminal: %v", err)
	}
}

func TestMacsOf(t *testing.T) {
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes:\n  a: {nics: 2}\n  b: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := macsOf(l, "a"); err != nil || len(m) != 2 || m[1].String() != l.Nodes[0].NICs[1].MAC {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := macsOf(l, "c"); err == nil || err.Error() != "lab x has no node c" {
		t.Errorf("got %v", err)
	}
}
