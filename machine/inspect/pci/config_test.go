package pci

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

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

const allParts = Identity | Buses | LinkState | Capabilities

func TestParsePCIConfig(t *testing.T) {
	t.Parallel()
	link := func(speed float64, width int, most float64, mostWidth int) *topology.Link {
		return &topology.Link{SpeedGTs: &speed, Width: &width, MaxSpeedGTs: &most, MaxWidth: &mostWidth}
	}
	id := Config{
		Vendor: new(topology.ID16(0x15b3)), Device: new(topology.ID16(0x1017)),
		Class: new(topology.ID24(0x020000)), Revision: new(topology.ID8(0)),
	}
	is := func(edit func(c *Config)) Config {
		c := id
		edit(&c)
		return c
	}
	plain := is(func(c *Config) { c.Link = link(8, 8, 16, 16) })
	for _, tt := range []struct {
		name  string
		in    []byte
		parts Part
		want  Config
	}{
		{"an endpoint", express.bytes(256), allParts, plain},
		{
			"what was not asked for is not read", express.with(header(1, 2)).bytes(256), Identity, id,
		},
		{
			"no parts at all still show a function that is alive", express.bytes(256), 0, Config{},
		},
		{
			"what a user may read ends before the capabilities", express.with(header(5, 9)).bytes(64), allParts,
			is(func(c *Config) { c.Bridge, c.HeadOnly = &topology.Bridge{Secondary: 5, Subordinate: 9}, true }),
		},
		{
			"a root port", express.with(header(5, 9)).with(space{0x60: 0x0142_00_10}).bytes(256), allParts,
			is(func(c *Config) {
				c.Bridge = &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortRoot}
				c.NoAtomics = true
				c.Link = link(8, 8, 16, 16)
			}),
		},
		{
			"a root port that carries out atomic operations",
			express.with(header(5, 9)).with(space{0x60: 0x0142_00_10, 0x84: 0x180}).bytes(256), Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortRoot}},
		},
		{
			"a downstream port that passes them on",
			express.with(header(5, 9)).with(space{0x60: 0x0062_00_10, 0x84: 0x40}).bytes(256), Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortDownstream}},
		},
		{
			"a downstream port that is set to block them",
			express.with(header(5, 9)).with(space{0x60: 0x0062_00_10, 0x84: 0x40, 0x88: 0x80}).bytes(256),
			Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortDownstream}, NoAtomics: true},
		},
		{
			"an upstream port", express.with(header(5, 9)).with(space{0x60: 0x0052_00_10}).bytes(256),
			Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortUpstream}, NoAtomics: true},
		},
		{
			"a downstream port", express.with(header(5, 9)).with(space{0x60: 0x0062_00_10}).bytes(256),
			Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortDownstream}, NoAtomics: true},
		},
		{
			"a bridge from PCI Express to conventional PCI",
			express.with(header(5, 9)).with(space{0x60: 0x0072_00_10}).bytes(256),
			Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortBridge}},
		},
		{
			"a bridge of conventional PCI, whose capabilities end without PCI Express",
			express.with(header(5, 9)).with(space{0x40: 0x0003_00_01}).bytes(256), Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortBridge}},
		},
		{
			"a bridge without capabilities", express.with(header(5, 9)).with(space{0x04: 0}).bytes(64),
			Buses | Capabilities,
			Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9, Port: PortBridge}},
		},
		{
			"a bridge that was never set up has no buses", express.with(header(0, 0)).bytes(64), Buses,
			Config{Bridge: &topology.Bridge{}},
		},
		{
			"a function of the root complex has registers of a link and no link",
			express.with(space{0x60: 0x0092_00_10}).bytes(256), allParts, id,
		},
		{
			"a link that is down", express.with(space{0x70: 0x0001 << 16}).bytes(256), allParts,
			is(func(c *Config) { c.Link = &topology.Link{MaxSpeedGTs: new(16.0), MaxWidth: new(16)} }),
		},
		{
			"the vector of speeds counts more than the field of the first version",
			express.with(space{0x6c: 16<<4 | 1, 0x8c: 0x3e}).bytes(256), allParts,
			is(func(c *Config) { c.Link = link(8, 8, 32, 16) }),
		},
		{
			"the first version of the capability has no vector, and what is there is something else",
			express.with(space{0x60: 0x0001_00_10, 0x6c: 16<<4 | 1, 0x8c: 0x3e}).bytes(256), allParts,
			is(func(c *Config) { c.Link = link(8, 8, 2.5, 16) }),
		},
		{
			"speeds and widths that no link has", express.with(space{0x6c: 63<<4 | 15, 0x70: (33<<4 | 9) << 16,
				0x8c: 0}).bytes(256), allParts, id,
		},
		{"all ones", bytes.Repeat([]byte{0xff}, 64), allParts, Config{Dead: true}},
		{
			"a virtual function does not say whose it is, and is not dead",
			express.with(space{0x00: 0xffffffff}).bytes(256), allParts,
			is(func(c *Config) { c.Vendor, c.Device, c.Link = nil, nil, link(8, 8, 16, 16) }),
		},
		{"an empty file", nil, allParts, Config{}},
		{"three bytes", []byte{0xb3, 0x15, 0x17}, allParts, Config{}},
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
			is(func(c *Config) {
				c.Link = link(8, 8, 16, 16)
				c.ACS = &topology.ACS{SourceValidation: true, RequestRedirect: true, CompletionRedir: true,
					UpstreamForward: true, DirectTranslated: true}
				c.ATS = new(true)
				c.SRIOV = &topology.SRIOV{Total: new(8), Enabled: new(4), Offset: new(2), Stride: new(1),
					VFs: []topology.VF{}}
			}),
		},
		{
			"services that are there and switched off",
			express.with(space{
				0x100: 0x148<<20 | 1<<16 | 0x000d,
				0x148: 0x160<<20 | 1<<16 | 0x000f, 0x14c: 0x0005,
				0x160: 0x000<<20 | 1<<16 | 0x0010, 0x16c: 8 << 16, 0x170: 4,
			}).bytes(4096), Capabilities,
			Config{ACS: &topology.ACS{}, ATS: new(false), SRIOV: &topology.SRIOV{Total: new(8), Enabled: new(0),
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
			got, err := Parse(bytes.NewReader(tt.in), tt.parts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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
	got, err := Parse(src, Buses|Capabilities)
	if !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
	want := Config{Bridge: &topology.Bridge{Secondary: 5, Subordinate: 9}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// countingReader counts accesses, which would go to the device.
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
		parts Part
		most  int
	}{
		{"identity", Identity, 2},
		{"buses of a bridge", Buses, 3},
		{"buses and port of a bridge", Buses | Capabilities, 8},
		{"everything", allParts, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := &countingReader{ReaderAt: bytes.NewReader(express.with(header(5, 9)).bytes(4096))}
			if _, err := Parse(src, tt.parts); err != nil {
				t.Fatal(err)
			}
			if src.n > tt.most {
				t.Errorf("%d registers read, want at most %d", src.n, tt.most)
			}
		})
	}
}

func FuzzParsePCIConfig(f *testing.F) {
	f.Add(express.bytes(256), uint8(allParts))
	f.Add(express.with(header(5, 9)).bytes(64), uint8(allParts))
	f.Add(express.with(space{0x100: 0x148<<20 | 0x1000d, 0x148: 0x100<<20 | 0x10010}).bytes(4096), uint8(allParts))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint8(0))
	f.Add([]byte(nil), uint8(LinkState))
	f.Fuzz(func(t *testing.T, b []byte, parts uint8) {
		src := &countingReader{ReaderAt: bytes.NewReader(b)}
		c, err := Parse(src, Part(parts))
		if err != nil {
			t.Fatalf("a file in memory cannot fail: %v", err)
		}
		if src.n > 2000 {
			t.Errorf("%d registers read", src.n)
		}
		if c.Dead && (c.Bridge != nil || c.Link != nil) {
			t.Error("dead, and has something to say")
		}
		if l := c.Link; l != nil && l.Width == nil && l.SpeedGTs != nil {
			t.Error("a link that is down has a speed")
		}
	})
}
