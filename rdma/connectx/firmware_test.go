package connectx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// A tool uses the window in configuration space like mstflint. cmd/rackless tests the real one.
type tool struct {
	t testing.TB
	f *function
}

func (w tool) read(at int) uint32 {
	var b [4]byte
	w.f.Read(vfiouser.RegionConfig, uint64(at), b[:])
	return le.Uint32(b[:])
}

func (w tool) write(at int, v uint32) {
	var b [4]byte
	le.PutUint32(b[:], v)
	w.f.Write(vfiouser.RegionConfig, uint64(at), b[:])
}

func (w tool) space(space uint32) bool {
	w.write(vscControl, space)
	return w.read(vscControl)>>29 != 0
}

func (w tool) get(space, at uint32) uint32 {
	w.space(space)
	w.write(vscAddress, at)
	if w.read(vscAddress)&vscFlag == 0 {
		w.t.Error("the access is not done")
	}
	return w.read(vscData)
}

func (w tool) put(space, at, v uint32) {
	w.space(space)
	w.write(vscData, v)
	w.write(vscAddress, at|vscFlag)
	if w.read(vscAddress)&vscFlag != 0 {
		w.t.Error("the access is not done")
	}
}

func (w tool) register(reg uint16, write bool, in []byte) (out []byte, status byte) {
	m := make([]byte, icmdSize)
	m[0], m[1] = 8, 4
	be.PutUint16(m[4:], reg)
	m[6] = 1
	if write {
		m[6] = 2
	}
	copy(m[icmdData:], in)
	for i := 0; i < len(m); i += 4 {
		w.put(spaceICMD, icmdMailbox+uint32(i), be.Uint32(m[i:]))
	}
	w.put(spaceICMD, icmdControl, icmdRegister<<16|icmdGo)
	if c := w.get(spaceICMD, icmdControl); c&(icmdGo|0xff00) != 0 {
		w.t.Errorf("control word %#x after the command", c)
	}
	for i := 0; i < len(m); i += 4 {
		be.PutUint32(m[i:], w.get(spaceICMD, icmdMailbox+uint32(i)))
	}
	return m[icmdData:], m[2] & 0x7f
}

// setting reads the saved value (0), or nvCurrent or nvDefault.
func (w tool) setting(typ uint32, which bits) []byte {
	d := make([]byte, 16)
	be.PutUint32(d[nvType:], typ)
	if which != 0 {
		which.put(d, 1)
	}
	o, st := w.register(regNVDA, false, d)
	if st != 0 {
		return nil
	}
	return o[nvValue : nvValue+nvLength.get(o)]
}

func (w tool) set(typ uint32, v []byte) byte {
	d := make([]byte, nvValue+len(v))
	nvLength.put(d, uint64(len(v)))
	be.PutUint32(d[nvType:], typ)
	copy(d[nvValue:], v)
	_, st := w.register(regNVDA, true, d)
	return st
}

func card(t *testing.T, path, model string, vfs int) (*Firmware, []tool) {
	t.Helper()
	f, err := NewFirmware(path, 2, vfs)
	if err != nil {
		t.Fatal(err)
	}
	_, gs := newLab(t, 2, NIC{Model: model, Firmware: f}, nil)
	return f, []tool{{t, gs[0].f}, {t, gs[1].f}}
}

func TestFirmwareIsReachedByTheWindow(t *testing.T) {
	_, w := card(t, "", "", 0)
	if cap := w[0].read(cfgVSC); cap&0xff != 9 || cap>>16 != vscSize {
		t.Errorf("capability %#x", cap)
	}
	// The ticket takes a free semaphore.
	ticket := w[0].read(vscCounter)
	if again := w[0].read(vscCounter); ticket == 0 || again == ticket {
		t.Errorf("tickets %d, %d", ticket, again)
	}
	for _, c := range []struct{ write, want uint32 }{{ticket, ticket}, {ticket + 1, ticket}, {0, 0}, {7, 7}, {0, 0}} {
		if w[0].write(vscSemaphore, c.write); w[0].read(vscSemaphore) != c.want {
			t.Errorf("semaphore %d after %d: want %d", w[0].read(vscSemaphore), c.write, c.want)
		}
	}
	for space, want := range map[uint32]bool{1: true, 2: true, 3: true, 4: false, 7: false, 10: true, 0xffff: false} {
		if got := w[0].space(space); got != want {
			t.Errorf("space %d: %v", space, got)
		}
	}
	if id := w[0].get(spaceCR, crDevice); id != 0x20b {
		t.Errorf("hardware %#x", id)
	}
	w[0].put(spaceSemaphore, 0, 42)
	w[0].put(spaceSemaphore, 0, 43)
	if owner := w[0].get(spaceSemaphore, 0); owner != 42 {
		t.Errorf("owner %d of the commands' semaphore", owner)
	}
	if w[1].get(spaceSemaphore, 0) != 0 {
		t.Error("the functions share a semaphore")
	}
	o, st := w[0].register(regMGIR, false, nil)
	if st != 0 || o[5] != 2 || string(o[48:61]) != "MT_2420110034" {
		t.Errorf("status %d, information %x", st, o[:0x50])
	}
	w[0].put(spaceICMD, icmdControl, 0x1234<<16|icmdGo)
	if c := w[0].get(spaceICMD, icmdControl); c != 0x1234<<16|icmdBadOpcode<<8 {
		t.Errorf("control word %#x after a command that is unknown", c)
	}
}

func TestSettingsTakeEffectAtTheNextReset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flash")
	f, w := card(t, path, "", 0)
	seen := func(w tool, which bits) [2]uint64 {
		b := w.setting(tlvPCI, which)
		return [2]uint64{pciSRIOV.get(b), pciVFs.get(b)}
	}
	expect := func(when string, w tool, standard, current, next [2]uint64, vfs int) {
		t.Helper()
		if d, c, n := seen(w, nvDefault), seen(w, nvCurrent), seen(w, 0); d != standard || c != current || n != next {
			t.Errorf("%s: default %v, current %v, next boot %v: want %v, %v, %v", when, d, c, n, standard, current,
				next)
		}
		if got := f.VFs(); got != vfs {
			t.Errorf("%s: %d virtual functions, want %d", when, got, vfs)
		}
	}
	off, on := [2]uint64{0, defaultVFs}, [2]uint64{1, 5}
	expect("new", w[0], off, off, off, 0)
	v := w[0].setting(tlvPCI, 0)
	putAll(v, map[bits]uint64{pciSRIOV: 1, pciVFs: 5})
	if st := w[0].set(tlvPCI, v); st != 0 {
		t.Fatalf("status %d", st)
	}
	expect("set by one function, seen by the other", w[1], off, off, on, 0)
	w[0].f.Write(vfiouser.RegionConfig, cfgDevCtl+1, []byte{0x80})
	expect("after a reset of the function", w[0], off, off, on, 0)
	w[0].f.Reset()
	expect("after a reset of the card", w[1], off, on, on, 5)

	f, w = card(t, path, "", 0)
	expect("by another process", w[0], off, on, on, 5)
	d := make([]byte, 8)
	be.PutUint32(d[nvType:], tlvPCI)
	if _, st := w[0].register(regNVDI, true, d); st != 0 {
		t.Fatalf("status %d", st)
	}
	expect("set back", w[0], off, on, off, 5)
	w[1].f.Reset()
	expect("set back, after a reset", w[0], off, off, off, 0)
}

func TestFirmwareRefusesSettings(t *testing.T) {
	f, w := card(t, "", "", 3)
	_, five := card(t, "", ConnectX5, 0)
	if f.VFs() != 3 {
		t.Errorf("a card that is delivered with 3 virtual functions has %d", f.VFs())
	}
	pci := func(vfs, pfs uint64) []byte {
		b := make([]byte, 12)
		putAll(b, map[bits]uint64{pciVFs: vfs, pciPFs: pfs})
		return b
	}
	const port1, port2, port3 = tlvLink + 1<<16, tlvLink + 2<<16, tlvLink + 3<<16
	for _, c := range []struct {
		what string
		w    tool
		typ  uint32
		v    []byte
		want byte
	}{
		{"as many as there can be", w[0], tlvPCI, pci(maxVFs, 2), 0},
		{"more than there can be", w[0], tlvPCI, pci(maxVFs+1, 2), regBadParam},
		{"other physical functions", w[0], tlvPCI, pci(4, 1), regBadParam},
		{"too short", w[0], tlvPCI, pci(4, 2)[:8], regBadParam},
		{"too long", w[0], tlvPCI, make([]byte, keptSize), regBadParam},
		{"a capability", w[0], tlvPCICap, make([]byte, 20), regBadParam},
		{"unknown", w[0], 0x77, make([]byte, 4), regBadParam},
		{"no type of link on a ConnectX-4 Lx", w[0], port1, []byte{0, 0, 0, 8}, regBadParam},
		{"Ethernet", five[0], port2, []byte{0, 0, 0, 8}, 0},
		{"InfiniBand", five[0], port1, []byte{0, 0, 0, 4}, regBadParam},
		{"a port that is not there", five[0], port3, []byte{0, 0, 0, 8}, regBadParam},
		{"a link that goes down", w[0], tlvKeepLink + 2<<16, make([]byte, 4), 0},
		{"a link that goes down, of no port", w[0], tlvKeepLink, make([]byte, 4), regBadParam},
	} {
		if st := c.w.set(c.typ, c.v); st != c.want {
			t.Errorf("%s: status %d, want %d", c.what, st, c.want)
		}
	}
	for typ, want := range map[uint32]bool{0: true, tlvPCI: true, tlvPCICap: true, port1: false, 0x101: false} {
		d := make([]byte, 8)
		be.PutUint32(d, typ)
		o, st := w[0].register(regNVQC, false, d)
		if (st == 0) != want || st == 0 && nvqcWrite.is(o) != (typ == tlvPCI) {
			t.Errorf("setting %#x: status %d, %x", typ, st, o[:8])
		}
	}
}

func TestDamagedFirmwareIsAnError(t *testing.T) {
	for text, want := range map[string]string{"{": "unexpected end",
		`{"128":"AAAA"}`: "setting 0x80 has 3 bytes: want 12",
		`{"5":"AAAA"}`:   "setting 0x5 has 3 bytes: want 0"} {
		path := filepath.Join(t.TempDir(), "flash")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewFirmware(path, 1, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func FuzzWindow(f *testing.F) {
	_, gs := newLab(f, 1, NIC{Model: ConnectX5}, nil)
	for _, reg := range []uint32{regMGIR, regNVDA, regNVDI, regNVQC, regMQIS, regMCQI, regMCQS, regMCAM, regPPCNT} {
		f.Add(uint32(spaceICMD), uint32(icmdControl), uint32(icmdRegister<<16|icmdGo), reg<<16|0x100,
			[]byte{0, 0, 0, 9, 0, 0, 0, 0x80, 0, 0, 0, 0, 0xff, 0xff})
	}
	f.Fuzz(func(t *testing.T, space, at, v, operation uint32, register []byte) {
		w := tool{t, gs[0].f}
		w.put(spaceICMD, icmdMailbox+4, operation)
		for i := 0; i+4 <= min(len(register), 512); i += 4 {
			w.put(spaceICMD, icmdMailbox+icmdData+uint32(i), be.Uint32(register[i:]))
		}
		w.put(space, at&^vscFlag, v)
		w.get(space, at&^vscFlag)
		b := make([]byte, len(register)%64+1)
		w.f.Read(vfiouser.RegionConfig, uint64(at)%4000, b)
		w.f.Write(vfiouser.RegionConfig, uint64(at)%4000, b)
	})
}

// Only the physical function changes settings.
func TestAVirtualFunctionDoesNotSetUpTheCard(t *testing.T) {
	_, f, g := virtual(t, 0)
	before := f.VFs()
	register := func(from *guest, reg uint32, write bool) status {
		in := make([]byte, regData+keptSize)
		be.PutUint16(in, opAccessReg)
		if !write {
			be.PutUint16(in[6:], 1)
		}
		be.PutUint32(in[8:], reg)
		d := in[regData:]
		nvLength.put(d, pciSize)
		be.PutUint32(d[nvType:], tlvPCI)
		putAll(d[nvValue:], map[bits]uint64{pciSRIOVValid: 1, pciPFsValid: 1, pciPFs: 1})
		st, _ := from.command(in, regData+keptSize)
		return st
	}
	for _, reg := range []uint32{regNVDA, regNVDI, regMFRL} {
		if st := register(g[1], reg, true); st != badParam {
			t.Errorf("register %#x, written: status %#x", reg, st)
		}
	}
	if st := register(g[1], regNVDA, false); st != ok {
		t.Errorf("read: status %#x", st)
	}
	f.reset()
	if n := f.VFs(); n != before {
		t.Errorf("the card has %d virtual functions, had %d", n, before)
	}
	register(g[0], regNVDA, true)
	f.reset()
	if n := f.VFs(); n != 0 {
		t.Errorf("set by the physical function, the card has %d virtual functions", n)
	}
}
