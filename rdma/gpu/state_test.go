package gpu

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRestore(t *testing.T) {
	x := newGuest(t, Config{Name: "template", Model: "h20"})
	x.boot()
	x.command(cmdCtxCreate, 7)
	x.setCfg(cfgMSIX+2, 2, 0x8002)
	for range 5 {
		x.command(cmdDisplayInfo, 0)
	}
	state, err := x.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	y := newGuest(t, Config{Name: "clone", Model: "h20"})
	if err := y.g.Restore(state); err != nil {
		t.Fatal(err)
	}
	copy(y.mem, x.mem)
	y.next, y.common, y.notify, y.isr, y.device = x.next, x.common, x.notify, x.isr, x.device
	y.d.Connected() // QEMU connects, and resets
	y.d.Reset()
	if got := y.g.Status(); !got.Driver || got.Address != vramAt {
		t.Errorf("status %+v", got)
	}
	for off := range uint64(cfgSerial + 4) {
		if a, b := x.cfg(off, 1), y.cfg(off, 1); a != b {
			t.Errorf("configuration space at %#x: %#x, and %#x after it was restored", off, a, b)
		}
	}
	if x.cfg(cfgSerial+4, 8) == y.cfg(cfgSerial+4, 8) {
		t.Error("the clone has the serial number of its template")
	}
	y.setReg(y.common+0x16, 2, 1)
	if a := y.command(cmdCtxAttach, 7, 1, 0); a != errBadResource {
		t.Errorf("a context of the template: %#x", a)
	}
	y.blob(1, pageSize, 0)
	if a := y.command(cmdCtxAttach, 7, 1, 0); a != respOK {
		t.Errorf("a blob: %#x", a)
	}
	y.d.Reset()
	if got := y.g.Status(); got.Driver || got.Address != 0 || got.Blobs != 0 {
		t.Errorf("status after a reset %+v", got)
	}
}

func TestALostInterruptIsRaisedAgain(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	for n := range uint64(numQueues) {
		x.setReg(x.common+0x16, 2, n)
		x.setReg(x.common+0x1a, 2, noVector)
	}
	state, err := x.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.g.Restore(state); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{interruptQueue, 0} {
		if got := x.reg(x.isr, 1); got != want {
			t.Errorf("ISR %d, want %d", got, want)
		}
	}
}

func TestVRAMIsNotSaved(t *testing.T) {
	x := newGuest(t, Config{Name: "gpu0"})
	x.boot()
	x.blob(1, pageSize)
	if _, err := x.g.Save(); err == nil || !strings.Contains(err.Error(), "gpu0: programs of the guest use 1 alloc") {
		t.Errorf("error %v", err)
	}
	x.command(cmdUnref, 0, 1, 0)
	if _, err := x.g.Save(); err != nil {
		t.Error(err)
	}
}

func TestDamagedStates(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	good, err := x.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		damage func(s *saved)
		want   string
	}{
		{"another model", func(s *saved) { s.Model = "rackless emulated H20" }, `is of a "rackless emulated H20"`},
		{"another size", func(s *saved) { s.Memory *= 2 }, "33554432 bytes"},
		{"another class", func(s *saved) { s.Class = 0x380 }, "class 0x380"},
		{"a short configuration space", func(s *saved) { s.Config = s.Config[:255] }, "damaged"},
		{"a long configuration space", func(s *saved) { s.Config = append(s.Config, 0) }, "damaged"},
		{"a queue of no size", func(s *saved) { s.Virtio.Queues[0].Size = 0 }, "damaged"},
		{"a queue that is too large", func(s *saved) { s.Virtio.Queues[1].Size = 512 }, "damaged"},
		{"a queue of an odd size", func(s *saved) { s.Virtio.Queues[1].Size = 100 }, "damaged"},
		{"descriptors at an odd address", func(s *saved) { s.Virtio.Queues[0].Desc++ }, "damaged"},
		{"a vector that does not exist", func(s *saved) { s.Virtio.Queues[0].Vector = vectors }, "damaged"},
		{"a vector of the configuration", func(s *saved) { s.Virtio.ConfigVector = 77 }, "damaged"},
		{"features that are not offered", func(s *saved) { s.Virtio.Features |= 1 << 40 }, "damaged"},
		{"too many contexts", func(s *saved) { s.Contexts = make([]uint32, maxContexts+1) }, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s saved
			if err := json.Unmarshal(good, &s); err != nil {
				t.Fatal(err)
			}
			c.damage(&s)
			bad, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.g.Restore(bad); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if now, err := x.g.Save(); err != nil || string(now) != string(good) {
				t.Errorf("the state has changed: %v %s", err, now)
			}
		})
	}
	for _, text := range []string{"", "{", "[]", `{"Virtio":{"Queues":[{"Size":65536}]}}`} {
		if x.g.Restore([]byte(text)) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	// Bits that no driver can write are not taken from a state.
	var s saved
	if err := json.Unmarshal(good, &s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Config {
		s.Config[i] = 0xff
	}
	bad, _ := json.Marshal(s)
	if err := x.g.Restore(bad); err != nil {
		t.Fatal(err)
	}
	if x.cfg(0, 4) != 0x10501af4 || x.cfg(0x34, 1) != cfgExp || x.cfg(cfgVRAM, 4) != 0xff00000c {
		t.Error("a state changes what the device is")
	}
}
