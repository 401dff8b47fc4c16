package gpu

import (
	"bytes"
	"testing"
)

func TestALostGPU(t *testing.T) {
	asked := 0
	x := newGuest(t, Config{Reach: func() { asked++ }})
	x.boot()
	x.command(cmdCtxCreate, 7)
	x.blob(1, 2*onesAtOnce+pageSize, pageSize)
	vram := x.g.VRAM(vramAt, MinMemory)
	copy(vram[pageSize:], "text")
	x.g.SetFault(Lost)
	if x.cfg(0, 4) != 0xffffffff || x.reg(x.common+0x14, 1) != 0xff || asked != 1 {
		t.Errorf("ids %#x, status %#x, asked %d times", x.cfg(0, 4), x.reg(x.common+0x14, 1), asked)
	}
	end := pageSize + 2*onesAtOnce + pageSize
	if !bytes.Equal(vram[pageSize:end], bytes.Repeat([]byte{0xff}, end-pageSize)) || vram[0] != 0 || vram[end] != 0 {
		t.Error("the memory of the allocation, and no other, should read as ones")
	}
	if b := x.g.VRAM(vramAt+pageSize, 8); b == nil || len(b) != 0 {
		t.Errorf("a NIC still has %d bytes of the VRAM, or looks elsewhere", len(b))
	}
	b := make([]byte, 8)
	x.d.Write(vramBAR, 0, b)
	if x.d.Read(vramBAR, 0, b); !bytes.Equal(b, bytes.Repeat([]byte{0xff}, 8)) {
		t.Errorf("VRAM by message is %x", b)
	}
	x.setReg(x.common+0x14, 1, 0)
	x.setCfg(cfgCommand, 2, 0)
	copy(x.mem[request0:], command(cmdCtxCreate, 8))
	x.desc(controlQueue, 3, request0, headerSize, descNext, 5)
	x.desc(controlQueue, 5, answer0, 512, descWrite, 0)
	x.offer(controlQueue, 3)
	x.kick(controlQueue)
	if n, _, _ := x.used(controlQueue); n != x.next[controlQueue]-1 {
		t.Errorf("%d requests of %d are answered by a lost GPU", n, x.next[controlQueue])
	}
	if s := x.g.Status(); s.Fault != Lost || s.Blobs != 1 {
		t.Errorf("status %+v", s)
	}

	x.g.SetFault(Healthy)
	if n, _, _ := x.used(controlQueue); n != x.next[controlQueue] || le.Uint32(x.mem[answer0:]) != respOK ||
		asked != 2 {
		t.Errorf("%d requests of %d are answered by the GPU that is back, the last by %#x; asked %d times", n,
			x.next[controlQueue], le.Uint32(x.mem[answer0:]), asked)
	}
	if b := x.g.VRAM(vramAt+pageSize, 8); !bytes.Equal(b, make([]byte, 8)) {
		t.Errorf("VRAM is %x", b)
	}
	if a := x.command(cmdCtxCreate, 7); a != errBadContext {
		t.Errorf("answer %#x", a)
	}
	if a := x.command(cmdUnref, 0, 1, 0); a != respOK {
		t.Errorf("answer %#x", a)
	}
}

// Only the end of its machine brings a lost GPU back, not a reset, and the next one finds zeros.
func TestTheEndOfALostGPU(t *testing.T) {
	x := newGuest(t, Config{})
	x.d.Connected()
	x.boot()
	x.blob(1, pageSize, 0)
	x.g.SetFault(Lost)
	x.d.Reset()
	if x.cfg(0, 4) != 0xffffffff {
		t.Error("a reset ends the fault")
	}
	x.d.Disconnected()
	x.d.Connected()
	x.boot()
	x.blob(1, pageSize, 0)
	if b := x.g.VRAM(vramAt, pageSize); !bytes.Equal(b, make([]byte, pageSize)) || x.g.Status().Fault != Healthy {
		t.Errorf("VRAM of another machine is %x, status %+v", b[:min(len(b), 16)], x.g.Status())
	}
}

func TestAGPUThatRefusesExports(t *testing.T) {
	x := newGuest(t, Config{Reach: func() { t.Error("NICs are asked") }})
	x.boot()
	x.blob(1, pageSize, 0)
	const mappable, shareable = 1, 2
	create := func(id, flags uint32) uint32 {
		return x.command(cmdCreateBlob, 0, id, blobHost3D, flags, 0, 0, 0, pageSize, 0)
	}
	x.g.SetFault(ExportRefused)
	if a := create(2, mappable|shareable); a != errUnspec {
		t.Errorf("a blob that can be exported: %#x", a)
	}
	if a := x.mapAt(2, pageSize); a != errBadResource { // the error that programs of Linux get
		t.Errorf("map it: %#x", a)
	}
	if a := create(3, mappable); a != respOK {
		t.Errorf("a blob that cannot be exported: %#x", a)
	}
	if b := x.g.VRAM(vramAt, pageSize); len(b) != pageSize {
		t.Error("an earlier blob is out of reach")
	}
	x.g.SetFault(Healthy)
	x.blob(2, pageSize, pageSize)
}

func TestAGPUThatNoNICReaches(t *testing.T) {
	asked := 0
	var x *guest
	reach := func() {
		asked++
		if got := len(x.g.VRAM(vramAt, 8)); (got == 0) != (asked == 1) {
			t.Errorf("%d bytes are reached when NICs ask for the %d. time", got, asked)
		}
	}
	x = newGuest(t, Config{Reach: reach})
	x.boot()
	x.blob(1, pageSize, 0)
	copy(x.g.VRAM(vramAt, 8), "text")
	x.g.SetFault(PeerBlocked)
	x.g.SetFault(PeerBlocked)
	if b := x.g.VRAM(vramAt, 8); b == nil || len(b) > 0 || x.cfg(0, 2) != 0x1af4 || x.create(2, pageSize) != respOK {
		t.Errorf("a NIC has %d bytes, the vendor is %#x", len(b), x.cfg(0, 2))
	}
	if x.g.VRAM(vramAt+MinMemory, 8) != nil {
		t.Error("memory beside the VRAM is the GPU's")
	}
	x.g.SetFault(Healthy)
	if b := x.g.VRAM(vramAt, 8); string(b) != "text\x00\x00\x00\x00" || asked != 2 {
		t.Errorf("VRAM is %q, NICs asked %d times", b, asked)
	}
}
