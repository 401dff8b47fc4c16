package gpu

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// enable gives the VRAM its address and enables it, as the firmware does.
func (x *guest) enable() {
	x.setCfg(cfgVRAM, 8, vramAt)
	x.setCfg(cfgCommand, 2, commandMemory)
}

// A GPU for vfio-pci has the ids of its model, the class of a 3D controller, and only capabilities of PCI itself.
func TestAPlainGPUIsItsModel(t *testing.T) {
	for model, ids := range map[string]uint64{"": 0x10f0_1af4, "h20": 0x2329_10de, "h100": 0x2330_10de,
		"a100": 0x20b2_10de, "l40s": 0x26b9_10de} {
		x := newGuest(t, Config{Name: "gpu-" + model, Model: model, Personality: VFIO})
		m, _ := ModelOf(model)
		for _, r := range []struct {
			off  uint64
			n    int
			want uint64
		}{{0, 4, ids}, {0xa, 2, Class3D}, {0x2c, 4, uint64(m.Subsystem)<<16 | 0x1af4}, {0x3d, 1, 0}, {0x10, 4, 0},
			{0x18, 4, 0xc}, {cfgSerial, 4, 0x10003}} {
			if got := x.cfg(r.off, r.n); got != r.want {
				t.Errorf("model %q: %#x is %#x, want %#x", model, r.off, got, r.want)
			}
		}
		var caps []uint64
		for at := x.cfg(0x34, 1); at != 0 && len(caps) < 9; at = x.cfg(at+1, 1) {
			caps = append(caps, x.cfg(at, 1))
		}
		if !slices.Equal(caps, []uint64{0x10, 1}) {
			t.Errorf("model %q: capabilities %#x", model, caps)
		}
	}
	if len(cards) != len(Models()) {
		t.Errorf("ids of %d models, and there are %q", len(cards), Models())
	}
}

// Software measures the BARs, and changes nothing else but the registers of PCI.
func TestBARsOfAPlainGPU(t *testing.T) {
	x := newGuest(t, Config{Memory: 256 << 20, Personality: VFIO})
	before := x.cfg(0, 4)
	for off := range uint64(cfgSerial) {
		if off != cfgDevCtl+1 { // would reset it
			x.setCfg(off, 1, 0xff)
		}
	}
	for _, r := range []struct {
		off  uint64
		n    int
		want uint64
	}{{0, 4, before}, {cfgBAR0, 4, ^uint64(bar0Size-1) & 0xffffffff}, {cfgVRAM, 8, ^uint64(256<<20-1) | 0xc},
		{0x34, 1, cfgExp}, {cfgMSIX, 8, 0}, {cfgPM + 4, 1, 3 | noSoftReset}, {cfgCommon, 8, 0}, {cfgWindow + 8, 8, 0}} {
		if got := x.cfg(r.off, r.n); got != r.want {
			t.Errorf("%#x is %#x, want %#x", r.off, got, r.want)
		}
	}
}

// Registers hold nothing, VRAM is where the guest has put it, and a reset clears it without moving it.
func TestVRAMOfAPlainGPU(t *testing.T) {
	x := newGuest(t, Config{Personality: VFIO})
	if x.g.Status().Driver {
		t.Error("a driver before the memory is enabled")
	}
	x.enable()
	x.setReg(0x14, 1, 0xff)
	if got := x.reg(0, 8) | x.reg(0x14, 1); got != 0 {
		t.Errorf("registers %#x", got)
	}
	copy(x.g.VRAM(vramAt, 4), "text")
	if s := x.g.Status(); !s.Driver || s.Address != vramAt || s.Resident == 0 {
		t.Errorf("status %+v", s)
	}
	x.setCfg(cfgDevCtl, 2, 0x8000)
	x.setCfg(cfgCommand, 2, commandMemory) // vfio-pci restores it
	if b := x.g.VRAM(vramAt, 4); !bytes.Equal(b, make([]byte, 4)) {
		t.Errorf("VRAM after a reset is %q", b)
	}
}

// A lost GPU reads as ones, as far as programs have written to its memory, and is empty when it is back.
func TestALostPlainGPU(t *testing.T) {
	x := newGuest(t, Config{Personality: VFIO})
	x.enable()
	vram := x.g.VRAM(vramAt, MinMemory)
	const at = 2 * onesAtOnce
	copy(vram[at:], "text")
	x.g.SetFault(Lost)
	if x.cfg(0, 4) != 0xffffffff || x.reg(0, 4) != 0xffffffff {
		t.Errorf("ids %#x, registers %#x", x.cfg(0, 4), x.reg(0, 4))
	}
	if !bytes.Equal(vram[at:at+pageSize], bytes.Repeat([]byte{0xff}, pageSize)) {
		t.Error("memory in use does not read as ones")
	}
	if r := x.g.Status().Resident; r > MinMemory/2 {
		t.Errorf("%d bytes are resident", r)
	}
	x.g.SetFault(Healthy)
	if x.cfg(0, 4) == 0xffffffff || !bytes.Equal(vram[at:at+4], make([]byte, 4)) {
		t.Errorf("ids %#x, memory %q", x.cfg(0, 4), vram[at:at+4])
	}
	if slices.Contains(Faults(VFIO), ExportRefused) || !slices.Contains(Faults(Virtio), ExportRefused) {
		t.Error("vfio-pci exports memory without asking the GPU, and virtio_gpu asks it")
	}
}

func TestAPlainGPUIsSavedWithoutMemory(t *testing.T) {
	x := newGuest(t, Config{Name: "template", Personality: VFIO})
	x.enable()
	x.d.Write(vramBAR, 0, []byte{1})
	if _, err := x.g.Save(); err == nil || !strings.Contains(err.Error(), "have written to its memory") {
		t.Errorf("error %v", err)
	}
	x.setCfg(cfgDevCtl, 2, 0x8000)
	x.setCfg(cfgCommand, 2, commandMemory)
	state, err := x.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	y := newGuest(t, Config{Name: "clone", Personality: VFIO})
	if err := y.g.Restore(state); err != nil {
		t.Fatal(err)
	}
	y.d.Connected()
	if s := y.g.Status(); s.Address != vramAt || !s.Driver {
		t.Errorf("status %+v", s)
	}
	y.enable()  // as the clone's QEMU does before its guest runs
	y.d.Reset() // of a guest that reboots
	if s := y.g.Status(); s.Address != 0 {
		t.Errorf("status after a reset %+v", s)
	}
	other := newGuest(t, Config{Name: "other"})
	if err := other.g.Restore(state); err == nil || !strings.Contains(err.Error(),
		`is of the personality "vfio", and this one is "virtio"`) {
		t.Errorf("error %v", err)
	}
	virtio, err := other.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := y.g.Restore(virtio); err == nil || !strings.Contains(err.Error(), `is of the personality "virtio"`) {
		t.Errorf("error %v", err)
	}
	if Shape("h20", VFIO) == Shape("h20", Virtio) || Shape("h20", VFIO) == Shape("h100", VFIO) {
		t.Error("GPUs that differ have one shape")
	}
}

// Without an interface there is no window to the registers, and no interrupt.
func TestAPlainGPUHasNoWindow(t *testing.T) {
	x := newGuest(t, Config{Personality: VFIO})
	x.enable()
	x.setCfg(cfgWindow+4, 1, vramBAR)
	x.setCfg(cfgWindow+12, 4, 4)
	x.setCfg(cfgWindow+16, 4, 0x01020304)
	var b [4]byte
	if x.d.Read(vfiouser.RegionConfig, cfgWindow+16, b[:]); b != [4]byte{} || x.g.Status().Resident != 0 {
		t.Errorf("the window has %x", b)
	}
}
