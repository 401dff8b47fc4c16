package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/topology"
)

// A space is a configuration space under construction: registers by offset, each of 32 bits.
type space map[int]uint32

// bytes returns the first size bytes.
func (s space) bytes(size int) []byte {
	b := make([]byte, size)
	for at, v := range s {
		if at+4 <= size {
			binary.LittleEndian.PutUint32(b[at:], v)
		}
	}
	return b
}

// with returns a copy with more registers.
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

// express is an endpoint of PCI Express: ConnectX-5, revision 0, with a power management capability
// at 0x40 and that of PCI Express at 0x60, in a Gen3 x8 slot.
var express = space{
	0x00: 0x1017_15b3, 0x04: 0x0010_0546, 0x08: 0x020000_00, 0x34: 0x40,
	0x40: 0x0003_60_01,
	0x60: 0x0002_00_10, 0x6c: 16<<4 | 4, 0x70: (8<<4 | 3) << 16, 0x8c: 0x1e,
}

// header is what a bridge's registers are besides its capabilities.
func header(secondary, subordinate uint32) space {
	return space{0x0c: 0x01 << 16, 0x18: subordinate<<16 | secondary<<8}
}

const allParts = configIdentity | configBridge | configLink | configCapabilities

func TestParsePCIConfig(t *testing.T) {
	t.Parallel()
	link := func(speed float64, width int, most float64, mostWidth int) *topology.Link {
		return &topology.Link{SpeedGTs: &speed, Width: &width, MaxSpeedGTs: &most, MaxWidth: &mostWidth}
	}
	id := pciConfig{
		vendor: new(topology.ID16(0x15b3)), device: new(topology.ID16(0x1017)),
		class: new(topology.ID24(0x020000)), revision: new(topology.ID8(0)),
	}
	is := func(edit func(c *pciConfig)) pciConfig {
		c := id
		edit(&c)
		return c
	}
	plain := is(func(c *pciConfig) { c.link = link(8, 8, 16, 16) })
	for _, tt := range []struct {
		name  string
		in    []byte
		parts configPart
		want  pciConfig
	}{
		{"an endpoint", express.bytes(256), allParts, plain},
		{
			"what was not asked for is not read", express.with(header(1, 2)).bytes(256), configIdentity, id,
		},
		{
			"no parts at all still show a function that is alive", express.bytes(256), 0, pciConfig{},
		},
		{
			"what a user may read ends before the capabilities", express.with(header(5, 9)).bytes(64), allParts,
			is(func(c *pciConfig) { c.bridge, c.headOnly = &topology.Bridge{Secondary: 5, Subordinate: 9}, true }),
		},
		{
			"a root port", express.with(header(5, 9)).with(space{0x60: 0x0142_00_10}).bytes(256), allParts,
			is(func(c *pciConfig) {
				c.bridge = &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portRoot}
				c.link = link(8, 8, 16, 16)
			}),
		},
		{
			"an upstream port", express.with(header(5, 9)).with(space{0x60: 0x0052_00_10}).bytes(256),
			configBridge | configCapabilities,
			pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portUpstream}},
		},
		{
			"a downstream port", express.with(header(5, 9)).with(space{0x60: 0x0062_00_10}).bytes(256),
			configBridge | configCapabilities,
			pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portDownstream}},
		},
		{
			"a bridge from PCI Express to conventional PCI",
			express.with(header(5, 9)).with(space{0x60: 0x0072_00_10}).bytes(256),
			configBridge | configCapabilities,
			pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portBridge}},
		},
		{
			"a bridge of conventional PCI, whose capabilities end without PCI Express",
			express.with(header(5, 9)).with(space{0x40: 0x0003_00_01}).bytes(256), configBridge | configCapabilities,
			pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portBridge}},
		},
		{
			"a bridge without capabilities", express.with(header(5, 9)).with(space{0x04: 0}).bytes(64),
			configBridge | configCapabilities,
			pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: portBridge}},
		},
		{
			"a bridge that was never set up has no buses", express.with(header(0, 0)).bytes(64), configBridge,
			pciConfig{bridge: &topology.Bridge{}},
		},
		{
			"a function of the root complex has registers of a link and no link",
			express.with(space{0x60: 0x0092_00_10}).bytes(256), allParts, id,
		},
		{
			"a link that is down", express.with(space{0x70: 0x0001 << 16}).bytes(256), allParts,
			is(func(c *pciConfig) { c.link = &topology.Link{MaxSpeedGTs: new(16.0), MaxWidth: new(16)} }),
		},
		{
			"the vector of speeds counts more than the field of the first version",
			express.with(space{0x6c: 16<<4 | 1, 0x8c: 0x3e}).bytes(256), allParts,
			is(func(c *pciConfig) { c.link = link(8, 8, 32, 16) }),
		},
		{
			"the first version of the capability has no vector, and what is there is something else",
			express.with(space{0x60: 0x0001_00_10, 0x6c: 16<<4 | 1, 0x8c: 0x3e}).bytes(256), allParts,
			is(func(c *pciConfig) { c.link = link(8, 8, 2.5, 16) }),
		},
		{
			"speeds and widths that no link has", express.with(space{0x6c: 63<<4 | 15, 0x70: (33<<4 | 9) << 16,
				0x8c: 0}).bytes(256), allParts, id,
		},
		{"all ones", bytes.Repeat([]byte{0xff}, 64), allParts, pciConfig{dead: true}},
		{
			"a virtual function does not say whose it is, and is not dead",
			express.with(space{0x00: 0xffffffff}).bytes(256), allParts,
			is(func(c *pciConfig) { c.vendor, c.device, c.link = nil, nil, link(8, 8, 16, 16) }),
		},
		{"an empty file", nil, allParts, pciConfig{}},
		{"three bytes", []byte{0xb3, 0x15, 0x17}, allParts, pciConfig{}},
		{
			"a file that ends in the middle of a capability", express.bytes(0x6a), allParts, id,
		},
		{"a list of capabilities that is a loop", express.with(space{0x40: 0x0003_40_01}).bytes(256), allParts, id},
		{"a list of capabilities that leads into the header", express.with(space{0x40: 0x0003_10_01}).bytes(256),
			allParts, id},
		{"a list of capabilities that leads to ones", express.with(space{0x60: 0xffffffff}).bytes(256), allParts, id},
		{
			"extended capabilities",
			express.with(space{
				0x100: 0x148<<20 | 1<<16 | 0x0001,                      // advanced error reporting
				0x148: 0x160<<20 | 1<<16 | 0x000d, 0x14c: 0x005d << 16, // ACS
				0x160: 0x180<<20 | 1<<16 | 0x000f, 0x164: 0x8000 << 16, // ATS
				// SR-IOV
				0x180: 0x000<<20 | 1<<16 | 0x0010, 0x188: 1, 0x18c: 8 << 16, 0x190: 4, 0x194: 0x0001<<16 | 0x02,
			}).bytes(4096), allParts,
			is(func(c *pciConfig) {
				c.link = link(8, 8, 16, 16)
				c.acs = &topology.ACS{SourceValidation: true, RequestRedirect: true, CompletionRedir: true,
					UpstreamForward: true, DirectTranslated: true}
				c.ats = new(true)
				c.sriov = &topology.SRIOV{Total: new(8), Enabled: new(4), Offset: new(2), Stride: new(1),
					VFs: []topology.VF{}}
			}),
		},
		{
			"services that are there and switched off",
			express.with(space{
				0x100: 0x148<<20 | 1<<16 | 0x000d,
				0x148: 0x160<<20 | 1<<16 | 0x000f, 0x14c: 0x0005,
				0x160: 0x000<<20 | 1<<16 | 0x0010, 0x16c: 8 << 16, 0x170: 4,
			}).bytes(4096), configCapabilities,
			pciConfig{acs: &topology.ACS{}, ats: new(false), sriov: &topology.SRIOV{Total: new(8), Enabled: new(0),
				VFs: []topology.VF{}}},
		},
		{
			"a loop of extended capabilities", express.with(space{0x100: 0x140<<20 | 1<<16 | 3,
				0x140: 0x100<<20 | 1<<16 | 3}).bytes(4096), allParts, plain,
		},
		{
			"an extended capability at the very end",
			express.with(space{0x100: 0xffc<<20 | 1<<16 | 3, 0xffc: 1<<16 | 0x000d}).bytes(4096), allParts, plain,
		},
		{
			"a file that ends in the middle of an extended capability",
			express.with(space{0x100: 0x140<<20 | 1<<16 | 3, 0x140: 1<<16 | 0x0010}).bytes(0x150), allParts, plain,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parsePCIConfig(bytes.NewReader(tt.in), tt.parts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pciConfig{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// brokenReader fails from an offset on.
type brokenReader struct {
	io.ReaderAt
	from int64
}

var errBroken = errors.New("broken")

func (b brokenReader) ReadAt(p []byte, at int64) (int, error) {
	if at >= b.from {
		return 0, errBroken
	}
	return b.ReaderAt.ReadAt(p, at)
}

func TestParsePCIConfigReturnsWhatWasReadBeforeAnError(t *testing.T) {
	t.Parallel()
	src := brokenReader{bytes.NewReader(express.with(header(5, 9)).bytes(256)), 0x60}
	got, err := parsePCIConfig(src, configBridge|configCapabilities)
	if !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
	want := pciConfig{bridge: &topology.Bridge{Secondary: 5, Subordinate: 9}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pciConfig{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// countingReader counts accesses: each is one to the device.
type countingReader struct {
	io.ReaderAt
	n int
}

func (c *countingReader) ReadAt(p []byte, at int64) (int, error) {
	c.n += (len(p) + 3) / 4
	return c.ReaderAt.ReadAt(p, at)
}

func TestParsePCIConfigReadsFewRegisters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		parts configPart
		most  int
	}{
		{"identity", configIdentity, 2},
		{"buses of a bridge", configBridge, 3},
		{"buses and port of a bridge", configBridge | configCapabilities, 8},
		{"everything", allParts, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := &countingReader{ReaderAt: bytes.NewReader(express.with(header(5, 9)).bytes(4096))}
			if _, err := parsePCIConfig(src, tt.parts); err != nil {
				t.Fatal(err)
			}
			if src.n > tt.most {
				t.Errorf("%d registers read, want at most %d", src.n, tt.most)
			}
		})
	}
}

// sequential is a file system whose files can only be read from their beginning on.
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
	want, err := parsePCIConfig(bytes.NewReader(express.bytes(4096)), allParts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		fs         fs.FS
		want       pciConfig
		unread     bool
	}{
		{"a file that can be read anywhere", "config", files, want, false},
		{"a file that is read from its beginning", "config", sequential{files}, want, false},
		{"a file that is not there is not mentioned", "none", files, pciConfig{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &reader{ctx: t.Context(), fs: tt.fs, h: &topology.Host{}}
			got := r.readPCIConfig(tt.file, allParts)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pciConfig{})); diff != "" {
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
			[]topology.BAR{{Index: 0, SizeBytes: 1 << 20}},
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

func FuzzParsePCIConfig(f *testing.F) {
	f.Add(express.bytes(256), uint8(allParts))
	f.Add(express.with(header(5, 9)).bytes(64), uint8(allParts))
	f.Add(express.with(space{0x100: 0x148<<20 | 0x1000d, 0x148: 0x100<<20 | 0x10010}).bytes(4096), uint8(allParts))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint8(0))
	f.Add([]byte(nil), uint8(configLink))
	f.Fuzz(func(t *testing.T, b []byte, parts uint8) {
		src := &countingReader{ReaderAt: bytes.NewReader(b)}
		c, err := parsePCIConfig(src, configPart(parts))
		if err != nil {
			t.Fatalf("a file in memory cannot fail: %v", err)
		}
		if src.n > 2000 {
			t.Errorf("%d registers read", src.n)
		}
		if c.dead && (c.bridge != nil || c.link != nil) {
			t.Error("dead, and has something to say")
		}
		if l := c.link; l != nil && l.Width == nil && l.SpeedGTs != nil {
			t.Error("a link that is down has a speed")
		}
	})
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
