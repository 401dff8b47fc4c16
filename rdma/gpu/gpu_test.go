package gpu

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/vfiouser"
)

func TestAGPUHasAModelAndASize(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		want   string // error, or "" for none
	}{
		{"too small", Config{Memory: 8 << 20}, "must be a power of two"},
		{"too large", Config{Memory: 128 << 30}, "must be a power of two"},
		{"no power of two", Config{Memory: 48 << 20}, "must be a power of two"},
		{"an unknown model", Config{Model: "b200"}, `unknown model "b200"; there are ["a100" "generic"`},
		{"an unknown personality", Config{Personality: "nvidia"},
			`unknown personality "nvidia"; there are ["virtio" "vfio"]`},
		{"no place for the socket", Config{Socket: "/nowhere/at/all"}, "/nowhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Listen(c.config)
			if err == nil {
				_ = g.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	for _, name := range append(Models(), "") {
		m, ok := ModelOf(name)
		if !ok || !strings.HasPrefix(m.Name, "rackless emulated ") || m.Memory < MinMemory || m.Memory > MaxMemory {
			t.Errorf("model %q: %+v", name, m)
		}
	}
}

func TestConfigurationSpace(t *testing.T) {
	for _, c := range []struct {
		config          Config
		class           uint64
		subsystem, link uint64
	}{
		{Config{}, 0x0302, 0x4c00, 0x103},
		{Config{Model: "h20"}, 0x0302, 0x4c01, 0x105},
		{Config{Model: "a100", Class: 0x0380}, 0x0380, 0x4c03, 0x104},
	} {
		x := newGuest(t, c.config)
		for _, r := range []struct {
			off  uint64
			n    int
			want uint64
		}{{0, 4, 0x10501af4}, {0xa, 2, c.class}, {0x2c, 4, c.subsystem<<16 | 0x1af4}, {0x3d, 1, 0},
			{cfgExp + 12, 2, c.link}, {cfgExp + 18, 2, c.link}, {cfgSerial, 4, 0x10003}, {0x18, 4, 0xc}} {
			if got := x.cfg(r.off, r.n); got != r.want {
				t.Errorf("%+v: %#x is %#x, want %#x", c.config, r.off, got, r.want)
			}
		}
		type span struct{ at, end uint64 }
		var caps []span
		sizes := map[uint64]uint64{1: 8, 0x10: 60, 0x11: 12}
		for at := x.cfg(0x34, 1); at != 0; at = x.cfg(at+1, 1) {
			n := sizes[x.cfg(at, 1)]
			if n == 0 {
				n = x.cfg(at+2, 1)
			}
			caps = append(caps, span{at, at + n})
			if len(caps) > 20 {
				t.Fatal("the list of capabilities is a circle")
			}
		}
		slices.SortFunc(caps, func(a, b span) int { return int(a.at) - int(b.at) })
		for i := range caps {
			if caps[i].at < 0x40 || caps[i].end > 0x100 || i > 0 && caps[i].at < caps[i-1].end {
				t.Errorf("capabilities overlap: %x", caps)
			}
		}
		if len(caps) != 9 {
			t.Errorf("%d capabilities", len(caps))
		}
	}
	a, b := newGuest(t, Config{Name: "a"}), newGuest(t, Config{Name: "b"})
	if a.cfg(cfgSerial+4, 8) == b.cfg(cfgSerial+4, 8) {
		t.Error("two GPUs have the same serial number")
	}
}

func TestBARsAreMeasured(t *testing.T) {
	x := newGuest(t, Config{Memory: 256 << 20})
	for off := range uint64(cfgSerial) {
		if off != cfgDevCtl+1 { // would reset it
			x.setCfg(off, 1, 0xff)
		}
	}
	for _, r := range []struct {
		off  uint64
		n    int
		want uint64
	}{{0, 4, 0x10501af4}, {0xa, 2, Class3D}, {cfgBAR0, 4, ^uint64(bar0Size-1) & 0xffffffff}, {0x14, 4, 0},
		{cfgVRAM, 8, ^uint64(256<<20-1) | 0xc}, {0x20, 4, 0}, {0x24, 4, 0}, {0x30, 4, 0}, {0x34, 1, cfgExp},
		{cfgMSIX + 2, 2, 0xc002}} {
		if got := x.cfg(r.off, r.n); got != r.want {
			t.Errorf("%#x is %#x, want %#x", r.off, got, r.want)
		}
	}
}

func TestVRAMFollowsTheBAR(t *testing.T) {
	x := newGuest(t, Config{})
	const size = MinMemory
	if x.g.VRAM(0, 1) != nil || x.g.VRAM(vramAt, 1) != nil {
		t.Error("VRAM is there before the guest has enabled it")
	}
	x.boot()
	for _, c := range []struct {
		addr, size uint64
		want       int // offset, or -1
	}{
		{vramAt, size, 0}, {vramAt + size - 1, 1, size - 1}, {vramAt + 4096, 8192, 4096},
		{vramAt - 1, 1, -1}, {vramAt - 1, 2, -1}, {vramAt, size + 1, -1}, {vramAt + size, 1, -1}, {vramAt, 0, -1},
		{vramAt + 1, size, -1}, {vramAt + 1, ^uint64(0), -1}, {^uint64(0), 1, -1}, {0, ^uint64(0), -1},
	} {
		b := x.g.VRAM(c.addr, c.size)
		switch {
		case c.want < 0 && b != nil:
			t.Errorf("%#x+%#x is VRAM", c.addr, c.size)
		case c.want >= 0 && (uint64(len(b)) != c.size || &b[0] != &x.g.vram[c.want] || cap(b) != len(b)):
			t.Errorf("%#x+%#x: %d bytes", c.addr, c.size, len(b))
		}
	}
	if got := x.g.Status(); got.Address != vramAt || !got.Driver || got.Broken || got.Memory != size {
		t.Errorf("status %+v", got)
	}
	const moved = 0x100_0000_0000
	x.setCfg(cfgVRAM, 8, moved)
	if x.g.VRAM(vramAt, 1) != nil || x.g.VRAM(moved, 1) == nil {
		t.Error("VRAM does not move with the BAR")
	}
	x.setCfg(cfgCommand, 1, 0)
	if x.g.VRAM(moved, 1) != nil {
		t.Error("VRAM is there after the guest has disabled it")
	}
	x.setCfg(cfgCommand, 1, commandMemory)
	x.setCfg(cfgDevCtl, 2, 0x8000) // function level reset
	if x.g.VRAM(moved, 1) != nil {
		t.Error("VRAM is there after a reset")
	}
	// QEMU answers reads of BARs itself, so a guest does not write them again.
	x.setCfg(cfgCommand, 1, commandMemory)
	if x.g.VRAM(moved, 1) == nil {
		t.Error("VRAM is not where it was before the reset")
	}
	x.d.Reset()
	if x.g.VRAM(moved, 1) != nil || x.cfg(cfgVRAM, 8) != 0xc {
		t.Error("VRAM is there after a reset of the machine")
	}
}

func TestVRAMByMessage(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	x.d.Write(vramBAR, 0x1234, []byte("text"))
	b := make([]byte, 4)
	if x.d.Read(vramBAR, 0x1234, b); string(b) != "text" || string(x.g.VRAM(vramAt+0x1234, 4)) != "text" {
		t.Errorf("read %q", b)
	}
	if got := x.g.Status().Messages; got != 2 {
		t.Errorf("%d accesses by message are counted", got)
	}
}

func TestTheWindow(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	at := func(bar byte, off, n uint64) {
		x.setCfg(cfgWindow+4, 1, uint64(bar))
		x.setCfg(cfgWindow+8, 4, off)
		x.setCfg(cfgWindow+12, 4, n)
	}
	const data = cfgWindow + 16
	at(0, x.common+0x14, 1)
	if got := x.cfg(data, 1); got != 1|2|statusFeaturesOK|statusDriverOK {
		t.Errorf("status %#x", got)
	}
	if got := x.cfg(data, 2); got != 0 {
		t.Errorf("an access of another length: %#x", got)
	}
	at(vramBAR, 0x100, 4)
	x.setCfg(data, 4, 0x01020304)
	if got := x.cfg(data, 4); got != 0x01020304 || !bytes.Equal(x.g.VRAM(vramAt+0x100, 4), []byte{4, 3, 2, 1}) {
		t.Errorf("VRAM %#x", got)
	}
	for _, c := range []struct {
		bar    byte
		off, n uint64
	}{{0, bar0Size, 4}, {vramBAR, MinMemory, 4}, {vramBAR, 0xfffffffc, 4}, {1, 0, 4}, {7, 0, 4}, {0, 1, 2}, {0, 0, 3}} {
		at(c.bar, c.off, c.n)
		x.setCfg(data, int(c.n), 0xffffffff)
		if got := x.cfg(data, int(c.n)); got != 0 {
			t.Errorf("%+v leads to %#x", c, got)
		}
	}
	x.desc(controlQueue, 0, request0, headerSize, descNext, 1)
	x.desc(controlQueue, 1, answer0, headerSize, descWrite, 0)
	x.offer(controlQueue, 0)
	at(0, x.notify, 2)
	x.setCfg(data, 2, 0)
	if n, _, _ := x.used(controlQueue); n != 1 {
		t.Errorf("%d requests are answered", n)
	}
}

func TestFeatures(t *testing.T) {
	for _, c := range []struct {
		name     string
		features uint64
		want     bool
	}{
		{"all", features, true}, {"the least", featureVersion1, true}, {"none", 0, false},
		{"without VERSION_1", featureBlob | featureVirgl, false},
		{"one that is not offered", features | 1<<34, false}, {"one of a screen", features | 1<<1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newGuest(t, Config{})
			x.find()
			for half := range uint64(3) {
				x.setReg(x.common+8, 4, half)
				x.setReg(x.common+0xc, 4, c.features>>(32*half)&0xffffffff)
			}
			x.setReg(x.common+0x14, 1, 3|statusFeaturesOK)
			if got := x.reg(x.common+0x14, 1)&statusFeaturesOK != 0; got != c.want {
				t.Errorf("accepted: %v", got)
			}
			if !c.want {
				return
			}
			x.setReg(x.common+8, 4, 0)
			x.setReg(x.common+0xc, 4, 0xffffffff)
			if got := x.reg(x.common+0xc, 4); got != c.features&0xffffffff {
				t.Errorf("features can be changed after FEATURES_OK: %#x", got)
			}
		})
	}
}

func TestQueueRegisters(t *testing.T) {
	x := newGuest(t, Config{})
	x.find()
	if got := x.reg(x.common+0x12, 2); got != numQueues {
		t.Errorf("%d queues", got)
	}
	const size, vector, enable, desc = 0x18, 0x1a, 0x1c, 0x20
	for _, c := range []struct {
		off     uint64
		n       int
		v, want uint64
	}{
		{size, 2, 64, 64}, {size, 2, 63, 64}, {size, 2, 0, 64}, {size, 2, 512, 64}, {size, 4, 32, 64},
		{vector, 2, 2, 2}, {vector, 2, vectors, noVector}, {vector, 2, noVector, noVector},
		{desc, 8, 0x123456789abcdef8, 0x123456789abcdef8}, {enable, 2, 1, 0}, // not a multiple of 16
		{desc, 8, 0x1000, 0x1000}, {0x28, 8, 0x2001, 0x2001}, {enable, 2, 1, 0},
		{0x28, 8, 0x2002, 0x2002}, {0x30, 8, 0x3002, 0x3002}, {enable, 2, 1, 0},
		{0x30, 8, 0x3004, 0x3004}, {enable, 2, 2, 0}, {enable, 2, 1, 1},
		{size, 2, 16, 64}, {desc, 8, 0x4000, 0x1000}, {vector, 2, 1, 1}, {enable, 2, 0, 1},
	} {
		x.setReg(x.common+c.off, c.n, c.v)
		n := c.n
		if c.off == size {
			n = 2
		}
		if got := x.reg(x.common+c.off, n); got != c.want {
			t.Errorf("%#x after %#x: %#x, want %#x", c.off, c.v, got, c.want)
		}
	}
	x.setReg(x.common+0x16, 2, numQueues)
	x.setReg(x.common+size, 2, 8)
	if got := x.reg(x.common+size, 2); got != 0 {
		t.Errorf("a queue that does not exist has size %d", got)
	}
	x.setReg(x.common+0x10, 2, vectors+5)
	if got := x.reg(x.common+0x10, 2); got != noVector {
		t.Errorf("vector %d of the configuration", got)
	}
	if got := x.reg(x.device+8, 4); got != 1 {
		t.Errorf("%d outputs", got)
	}
}

func TestRegistersOfAnyLength(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	x.g.mu.Lock()
	x.g.virtio.ISR = 3
	x.g.mu.Unlock()
	b := make([]byte, bar0Size)
	x.d.Read(vfiouser.RegionBAR0, 0, b)
	if b[x.isr] != 3 || x.reg(x.isr, 1) != 0 || b[x.common+0x12] != numQueues || b[x.device+8] != 1 {
		t.Errorf("ISR %d", b[x.isr])
	}
	x.d.Write(vfiouser.RegionBAR0, 0, b)
	x.d.Write(vfiouser.RegionConfig, 0, make([]byte, 4096))
}
