package inspect

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

// A space has 32-bit registers by offset.
type space map[int]uint32

func (s space) bytes(size int) []byte {
	b := make([]byte, size)
	for at, v := range s {
		if at+4 <= size {
			binary.LittleEndian.PutUint32(b[at:], v)
		}
	}
	return b
}

func (s space) with(more space) space {
	out := space{}
	for at, v := range s {
		out[at] = v
	}
	for at, v := range more {
		out[at] = v
	}
	return out
}

// express is ConnectX-5, revision 0, with power management at 0x40 and PCI Express at 0x60, in a Gen3 x8 slot.
var express = space{
	0x00: 0x1017_15b3, 0x04: 0x0010_0546, 0x08: 0x020000_00, 0x34: 0x40,
	0x40: 0x0003_60_01,
	0x60: 0x0002_00_10, 0x6c: 16<<4 | 4, 0x70: (8<<4 | 3) << 16, 0x8c: 0x1e,
}

func header(secondary, subordinate uint32) space {
	return space{0x0c: 0x01 << 16, 0x18: subordinate<<16 | secondary<<8}
}

const allParts = pci.Identity | pci.Buses | pci.LinkState | pci.Capabilities

// sequential has no random access.
type sequential struct{ fs.FS }

func (s sequential) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return struct{ fs.File }{f}, nil
}

func TestReadPCIConfig(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"config": {Data: express.bytes(4096)}, "dir": {Mode: fs.ModeDir}}
	want, err := pci.Parse(bytes.NewReader(express.bytes(4096)), allParts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		fs         fs.FS
		want       pci.Config
		unread     bool
	}{
		{"a file that can be read anywhere", "config", files, want, false},
		{"a file that is read from its beginning", "config", sequential{files}, want, false},
		{"a file that is not there is not mentioned", "none", files, pci.Config{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &reader{ctx: t.Context(), fs: tt.fs, h: &topology.Host{}}
			got := r.readPCIConfig(tt.file, allParts)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if unread := len(r.h.Unread) > 0; unread != tt.unread {
				t.Errorf("unread: %v", r.h.Unread)
			}
		})
	}
}

func TestParseBARs(t *testing.T) {
	t.Parallel()
	const none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	for _, tt := range []struct {
		name   string
		in     string
		bridge bool
		want   []topology.BAR
	}{
		{
			"a GPU with a large BAR",
			"0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n" +
				"0x0000018000000000 0x0000019fffffffff 0x000000000014220c\n" + none +
				"0x000001a000000000 0x000001a001ffffff 0x000000000014220c\n" + none +
				"0x000000000000e000 0x000000000000e07f 0x0000000000040101\n" +
				"0x00000000f7000000 0x00000000f707ffff 0x0000000000046200\n",
			false,
			[]topology.BAR{
				{Index: 0, SizeBytes: 16 << 20},
				{Index: 1, SizeBytes: 128 << 30, Prefetchable: true, Bits64: true},
				{Index: 3, SizeBytes: 32 << 20, Prefetchable: true, Bits64: true},
				{Index: 5, SizeBytes: 128, IO: true},
				{Index: 6, SizeBytes: 512 << 10, Prefetchable: true},
			},
		},
		{
			"a BAR without an address still has a size",
			"0x0000000000000000 0x00000000000fffff 0x0000000020040200\n", false,
			[]topology.BAR{{Index: 0, SizeBytes: 1 << 20, Unassigned: true}},
		},
		{
			"BARs of virtual functions, and none after them",
			strings.Repeat(none, 7) + "0x00000000a0000000 0x00000000a07fffff 0x000000000014220c\n" +
				strings.Repeat(none, 5) +
				"0x00000000a0000000 0x00000000a07fffff 0x0000000000000200\n",
			false,
			[]topology.BAR{{Index: 7, SizeBytes: 8 << 20, Prefetchable: true, Bits64: true}},
		},
		{
			"windows of a bridge are no BARs",
			"0x00000000f6000000 0x00000000f6003fff 0x0000000000140204\n" + strings.Repeat(none, 6) +
				"0x000000000000e000 0x000000000000efff 0x0000000000000101\n" +
				"0x00000000f6000000 0x00000000f70fffff 0x0000000000000200\n",
			true,
			[]topology.BAR{{Index: 0, SizeBytes: 16 << 10, Bits64: true}},
		},
		{
			"ranges that run backwards, and all there is, are none",
			"0x0000000000001000 0x0000000000000fff 0x0000000000040200\n0x0000000000000000 0xffffffffffffffff " +
				"0x0000000000040200\n", false, nil,
		},
		{"kernels of before 2.6.30 print fewer digits", "0xf6000000 0xf6ffffff 0x00000200\n", false,
			[]topology.BAR{{Index: 0, SizeBytes: 16 << 20}}},
		{"nothing", "", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseBARs(tt.in, tt.bridge)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseBARsErrors(t *testing.T) {
	t.Parallel()
	const good = "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n"
	for _, tt := range []struct{ name, in, want string }{
		{"two fields", good + "0x0 0x0\n", `line 2: "0x0 0x0": want a first address, a last address and flags`},
		{"not hexadecimal", good + "0x0 0xg 0x0\n", `line 2: "0xg" is not a number in hexadecimal`},
		{"too many digits", "0x0 0x10000000000000000 0x200\n",
			`line 1: "0x10000000000000000" is not a number in hexadecimal`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bars, err := parseBARs(tt.in, false)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if want := strings.Count(tt.in, "f6ffffff"); len(bars) != want {
				t.Errorf("%d BARs before the error, want %d", len(bars), want)
			}
		})
	}
}

func FuzzParseBARs(f *testing.F) {
	f.Add("0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n", false)
	f.Add("0x0 0x0 0x0\n\n", true)
	f.Add("x", false)
	f.Fuzz(func(t *testing.T, text string, bridge bool) {
		bars, _ := parseBARs(text, bridge)
		last := -1
		for _, b := range bars {
			if b.Index <= last || b.Index > 12 || b.SizeBytes < 2 {
				t.Errorf("BAR %+v after %d", b, last)
			}
			last = b.Index
		}
	})
}
