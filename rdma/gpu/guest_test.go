package gpu

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/vfiouser"
)

const (
	guestMemory = 1 << 20
	queueSize   = 16

	rings    = 0x10000 // for each queue: descriptors, available, used
	availAt  = 0x1000
	usedAt   = 0x2000
	request0 = 0x40000
	answer0  = 0x48000

	vramAt = 0x7f_c000_0000
)

// guest is a driver without a kernel, which finds the registers by the capabilities.
type guest struct {
	t   testing.TB
	g   *GPU
	d   *device
	mem []byte

	common, notify, isr, device uint64 // registers in BAR 0
	next                        [numQueues]uint16
}

func newGuest(t testing.TB, c Config) *guest {
	t.Helper()
	if c.Name == "" {
		c.Name = t.Name()[:min(len(t.Name()), 100)]
	}
	if c.Memory == 0 {
		c.Memory = MinMemory
	}
	c.Socket = filepath.Join(t.TempDir(), "s")
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	g, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	x := &guest{t: t, g: g, d: (*device)(g)}
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err = unix.Ftruncate(fd, guestMemory); err == nil {
		x.mem, err = unix.Mmap(fd, 0, guestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		err = g.vfu.Mem.Map(fd, 0, 0, guestMemory, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(x.mem) })
	return x
}

func (x *guest) cfg(off uint64, n int) uint64 {
	var b [8]byte
	x.d.Read(vfiouser.RegionConfig, off, b[:n])
	return le.Uint64(b[:])
}

func (x *guest) setCfg(off uint64, n int, v uint64) {
	var b [8]byte
	le.PutUint64(b[:], v)
	x.d.Write(vfiouser.RegionConfig, off, b[:n])
}

func (x *guest) reg(off uint64, n int) uint64 {
	var b [8]byte
	x.d.Read(vfiouser.RegionBAR0, off, b[:n])
	return le.Uint64(b[:])
}

func (x *guest) setReg(off uint64, n int, v uint64) {
	var b [8]byte
	le.PutUint64(b[:], v)
	x.d.Write(vfiouser.RegionBAR0, off, b[:n])
}

func (x *guest) find() {
	x.t.Helper()
	steps := 0
	for at := x.cfg(0x34, 1); at != 0; at = x.cfg(at+1, 1) {
		if steps++; steps > 48 {
			x.t.Fatal("the list of capabilities is a circle")
		}
		if x.cfg(at, 1) != 9 {
			continue
		}
		off, bar := x.cfg(at+8, 4), x.cfg(at+4, 1)
		switch kind := x.cfg(at+3, 1); {
		case kind == capShared && bar == vramBAR:
		case kind == capWindow:
		case bar != 0:
			x.t.Errorf("registers in BAR %d", bar)
		case kind == capCommon:
			x.common = off
		case kind == capNotify:
			x.notify = off
		case kind == capISR:
			x.isr = off
		case kind == capDevice:
			x.device = off
		}
	}
}

func (x *guest) boot() {
	x.t.Helper()
	x.find()
	x.setCfg(cfgBAR0, 4, 0xfe000000)
	x.setCfg(cfgVRAM, 4, vramAt&0xffffffff)
	x.setCfg(cfgVRAM+4, 4, vramAt>>32)
	x.setCfg(cfgCommand, 2, commandMemory|commandMaster)
	x.driver()
}

func (x *guest) driver() {
	x.t.Helper()
	x.setReg(x.common+0x14, 1, 0)
	x.setReg(x.common+0x14, 1, 1|2)
	for half := range uint64(2) {
		x.setReg(x.common, 4, half)
		x.setReg(x.common+8, 4, half)
		x.setReg(x.common+0xc, 4, x.reg(x.common+4, 4))
	}
	x.setReg(x.common+0x14, 1, 1|2|statusFeaturesOK)
	if x.reg(x.common+0x14, 1)&statusFeaturesOK == 0 {
		x.t.Fatal("the features are refused")
	}
	x.setReg(x.common+0x10, 2, 0)
	for n := range uint64(numQueues) {
		ring := rings * (n + 1)
		clear(x.mem[ring : ring+usedAt+0x1000])
		x.setReg(x.common+0x16, 2, n)
		x.setReg(x.common+0x18, 2, queueSize)
		x.setReg(x.common+0x1a, 2, n+1)
		x.setReg(x.common+0x20, 8, ring)
		x.setReg(x.common+0x28, 4, ring+availAt)
		x.setReg(x.common+0x2c, 4, 0)
		x.setReg(x.common+0x30, 8, ring+usedAt)
		x.setReg(x.common+0x1c, 2, 1)
		x.next[n] = 0
	}
	x.setReg(x.common+0x14, 1, 1|2|statusFeaturesOK|statusDriverOK)
}

func (x *guest) desc(queue int, i uint16, addr uint64, n uint32, flags, next uint16) {
	d := x.mem[rings*(queue+1)+16*int(i):]
	le.PutUint64(d, addr)
	le.PutUint32(d[8:], n)
	le.PutUint16(d[12:], flags)
	le.PutUint16(d[14:], next)
}

func (x *guest) offer(queue int, head uint16) {
	avail := x.mem[rings*(queue+1)+availAt:]
	le.PutUint16(avail[4+2*(x.next[queue]%queueSize):], head)
	x.next[queue]++
	le.PutUint16(avail[2:], x.next[queue])
}

func (x *guest) kick(queue int) {
	x.setReg(x.notify+uint64(queue)*notifyBytes, 2, uint64(queue))
}

// used returns the number of answers, and the last one's head and length.
func (x *guest) used(queue int) (n, head uint16, length uint32) {
	used := x.mem[rings*(queue+1)+usedAt:]
	n = le.Uint16(used[2:])
	e := used[4+8*((n-1)%queueSize):]
	return n, uint16(le.Uint32(e)), le.Uint32(e[4:])
}

func (x *guest) send(queue int, in []byte) []byte {
	x.t.Helper()
	copy(x.mem[request0:], in)
	clear(x.mem[answer0 : answer0+512])
	x.desc(queue, 3, request0, uint32(len(in)), descNext, 5)
	x.desc(queue, 5, answer0, 512, descWrite, 0)
	x.offer(queue, 3)
	x.kick(queue)
	n, head, length := x.used(queue)
	if n != x.next[queue] || head != 3 {
		x.t.Fatalf("%d requests of %d are answered, the last is %d", n, x.next[queue], head)
	}
	return x.mem[answer0 : answer0+length]
}

func (x *guest) command(kind, context uint32, words ...uint32) uint32 {
	x.t.Helper()
	return le.Uint32(x.send(controlQueue, command(kind, context, words...)))
}

func command(kind, context uint32, words ...uint32) []byte {
	in := make([]byte, headerSize, headerSize+4*len(words))
	le.PutUint32(in, kind)
	le.PutUint32(in[16:], context)
	for _, w := range words {
		in = le.AppendUint32(in, w)
	}
	return in
}

func (x *guest) blob(id uint32, size uint64, offset ...uint64) {
	x.t.Helper()
	if a := x.create(id, size); a != respOK {
		x.t.Fatalf("blob %d: %#x", id, a)
	}
	for _, at := range offset {
		if a := x.mapAt(id, at); a != respMapInfo {
			x.t.Fatalf("blob %d at %#x: %#x", id, at, a)
		}
	}
}

func (x *guest) create(id uint32, size uint64) uint32 {
	x.t.Helper()
	return x.command(cmdCreateBlob, 0, id, blobHost3D, 3, 0, 0, 0, uint32(size), uint32(size>>32))
}

func (x *guest) mapAt(id uint32, offset uint64) uint32 {
	x.t.Helper()
	return x.command(cmdMapBlob, 0, id, 0, uint32(offset), uint32(offset>>32))
}
