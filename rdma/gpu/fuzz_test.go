package gpu

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// check fails a test if the books of a GPU do not agree.
func (x *guest) check() {
	x.t.Helper()
	g := x.g
	g.mu.Lock()
	defer g.mu.Unlock()
	var sum, end uint64
	for id, b := range g.memory.blobs {
		if b.id != id || b.size == 0 || b.mapped && !b.placed {
			x.t.Errorf("blob %d: %+v", id, *b)
		}
		sum += b.size
	}
	if sum != g.memory.allocated || sum > g.cfg.Memory || len(g.memory.placed) > len(g.memory.blobs) {
		x.t.Errorf("%d bytes are allocated, and %d counted", sum, g.memory.allocated)
	}
	for _, b := range g.memory.placed {
		if b.offset < end || b.offset%pageSize != 0 || g.memory.blobs[b.id] != b {
			x.t.Errorf("blob %+v is in the place of another, which ends at %#x", *b, end)
		}
		if end = b.offset + b.size; end > g.cfg.Memory {
			x.t.Errorf("blob %+v leaves the VRAM", *b)
		}
	}
	if !g.virtio.sound() {
		x.t.Errorf("registers %+v", g.virtio)
	}
	bar := g.bar.Load()
	if on := g.config[cfgCommand]&commandMemory != 0; on != (bar != 0) || bar&^1&(g.cfg.Memory-1) != 0 {
		x.t.Errorf("VRAM at %#x, command %#x", bar, g.config[cfgCommand])
	}
	fresh := &GPU{cfg: g.cfg, model: g.model}
	fresh.describe()
	if !bytes.Equal(g.config[:4], fresh.config[:4]) || g.config[0x34] != cfgExp {
		x.t.Error("the device has become another one")
	}
}

// FuzzRegisters reads an access as a byte for kind and region, an offset of two bytes, a length and the data.
func FuzzRegisters(f *testing.F) {
	x, plain := newGuest(f, Config{}), newGuest(f, Config{Name: "plain", Personality: VFIO})
	x.find()
	access := func(what byte, off uint16, b ...byte) []byte {
		return append([]byte{what, byte(off >> 8), byte(off), byte(len(b))}, b...)
	}
	f.Add(access(1, regCommon+0x14, 11))
	f.Add(append(access(1, regCommon+0x16, 1, 0), access(1, regCommon+0x20, 1, 2, 3, 4, 5, 6, 7, 8)...))
	f.Add(access(3, cfgDevCtl, 0, 0x80))
	f.Add(append(access(3, cfgVRAM, 0, 0, 0, 0xf0, 1, 0, 0, 0), access(3, cfgCommand, 6, 0)...))
	f.Add(append(access(3, cfgWindow+4, 2, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0), access(3, cfgWindow+16, 1, 2, 3, 4)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, plain := *x, *plain
		x.t, plain.t = t, t
		for n := 0; len(b) >= 4 && n < 64; n++ {
			what, off, l := b[0], uint64(b[1])<<8|uint64(b[2]), int(b[3])
			b = b[4:]
			l = max(1, min(l, len(b)))
			data := make([]byte, l)
			b = b[copy(data, b):]
			region, size := vfiouser.RegionBAR0, uint64(bar0Size)
			switch what >> 1 & 3 {
			case 1:
				region, size = vfiouser.RegionConfig, 4096
			case 2:
				region, size = vramBAR, MinMemory
			}
			if off %= size; off+uint64(l) > size { // vfiouser refuses such accesses
				continue
			}
			for _, d := range []*device{x.d, plain.d} {
				if what&1 != 0 {
					d.Write(region, off, data)
				} else {
					d.Read(region, off, data)
				}
			}
		}
		x.check()
		plain.check()
	})
}

func FuzzQueue(f *testing.F) {
	x := newGuest(f, Config{})
	x.boot()
	add := func(desc []byte, avail ...byte) { f.Add(desc, avail, command(cmdDisplayInfo, 0)) }
	d := make([]byte, 32)
	le.PutUint64(d, request0)
	d[8], d[12], d[14] = 24, descNext, 1
	le.PutUint64(d[16:], answer0)
	d[25], d[28] = 2, descWrite
	add(d, 0, 0, 1, 0, 0, 0)
	add(d, 1, 0, 2, 0, 1, 0, 0, 0)
	circle := bytes.Clone(d)
	circle[28], circle[30] = descWrite|descNext, 1
	add(circle, 0, 0, 1, 0, 0, 0)
	table := bytes.Clone(d)
	le.PutUint64(table, rings)
	table[8], table[12] = 32, descIndirect
	add(table, 0, 0, 1, 0, 0, 0)
	f.Fuzz(func(t *testing.T, desc, avail, request []byte) {
		x.t = t
		x.driver()
		copy(x.mem[rings:rings+16*queueSize], desc)
		copy(x.mem[rings+availAt:rings+availAt+0x100], avail)
		copy(x.mem[request0:answer0], request)
		x.kick(controlQueue)
		x.kick(controlQueue)
		if n, _, _ := x.used(controlQueue); n > 2*queueSize {
			t.Errorf("%d requests are answered", n)
		}
		x.check()
	})
}

// FuzzCommands reads a length in words before each command.
func FuzzCommands(f *testing.F) {
	x := newGuest(f, Config{})
	x.boot()
	with := func(commands ...[]byte) (b []byte) {
		for _, c := range commands {
			b = append(append(b, byte(len(c)/4)), c...)
		}
		return b
	}
	f.Add(with(command(cmdCtxCreate, 1), command(cmdCreateBlob, 1, 1, blobHost3D, 3, 0, 0, 0, 2*pageSize, 0),
		command(cmdMapBlob, 1, 1, 0, pageSize, 0), command(cmdUnmapBlob, 1, 1, 0), command(cmdUnref, 1, 1, 0),
		command(cmdCtxDestroy, 1)))
	f.Add(with(command(cmdCreateBlob, 0, 1, blobHost3D, 3, 0, 0, 0, pageSize, 0), command(cmdMapBlob, 0, 1, 0, 0, 0),
		command(cmdCreateBlob, 0, 2, blobHost3D, 3, 0, 0, 0, 2*pageSize, 0), command(cmdMapBlob, 0, 2, 0, 0, 0),
		command(cmdMapBlob, 0, 2, 0, MinMemory-pageSize, 0), command(cmdMapBlob, 0, 2, 0, MinMemory-2*pageSize, 0)))
	for kind := range commands {
		f.Add(with(command(kind, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x.t = t
		x.driver()
		for n := 0; len(b) > 0 && n < 64; n++ {
			l := min(4*int(b[0]), len(b)-1, len(request{}.in))
			if out := x.g.command(controlQueue, b[1:1+l]); len(out) < headerSize || le.Uint32(out)&^0xff == 0 {
				t.Errorf("command % x: answer % x", b[1:1+l], out)
			}
			b = b[1+l:]
		}
		x.check()
	})
}

// FuzzRestore changes states by an offset of two bytes and a byte; the input is short, because go test takes long to
// minimize a whole state.
func FuzzRestore(f *testing.F) {
	x := newGuest(f, Config{})
	x.boot()
	x.command(cmdCtxCreate, 3)
	state, err := x.g.Save()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	for _, field := range []string{`"Status":15`, `"Size":16`, `"Desc":65536`, `"Contexts":[3`} {
		at := bytes.Index(state, []byte(field)) + len(field) - 1
		f.Add([]byte{byte(at >> 8), byte(at), '7'})
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		b := bytes.Clone(state)
		for ; len(changes) >= 3; changes = changes[3:] {
			b[(int(changes[0])<<8|int(changes[1]))%len(b)] = changes[2]
		}
		if x.g.Restore(b) != nil {
			return
		}
		x.t = t
		x.d.Reset()
		x.check()
		for n := range numQueues {
			x.kick(n)
		}
		x.reg(x.common, 8)
		x.check()
		if _, err := x.g.Save(); err != nil {
			t.Error(err)
		}
	})
}

// A vandal violates the rules of drivers.
type vandal struct {
	*guest
	n int
}

func (v *vandal) once(r *rand.Rand) {
	if v.n++; v.n%500 == 0 {
		v.d.Reset()
		v.boot()
	}
	b := make([]byte, []int{1, 2, 4, 8, 64, 300}[r.IntN(6)])
	for i := range b {
		b[i] = byte(r.Uint32()) >> r.IntN(9)
	}
	switch r.IntN(9) {
	case 0:
		v.d.Read(vfiouser.RegionBAR0, r.Uint64N(bar0Size-300), b)
	case 1:
		v.d.Write([]int{vfiouser.RegionConfig, vfiouser.RegionBAR0}[r.IntN(2)], r.Uint64N(4096-300), b)
	case 2: // in its rings and requests
		copy(v.mem[r.Uint64N(guestMemory-300):], b)
	case 3:
		copy(v.mem[rings:], b)
	case 4:
		v.d.Write(vramBAR, r.Uint64N(MinMemory-300), b)
	default: // a command, more or less
		kinds := []uint32{cmdCreateBlob, cmdMapBlob, cmdUnmapBlob, cmdUnref, cmdCtxCreate, cmdCtxAttach,
			r.Uint32N(0x400)}
		in := command(kinds[r.IntN(len(kinds))], r.Uint32N(3), r.Uint32N(9))
		if le.Uint32(in) == cmdCreateBlob {
			in = append(in, command(0, 0)[:24]...)
			le.PutUint32(in[28:], blobHost3D)
			le.PutUint32(in[32:], 3)
			le.PutUint32(in[48:], r.Uint32N(64)*pageSize)
		} else {
			in = append(in, b...)
		}
		copy(v.mem[request0:], in)
		v.desc(controlQueue, 0, request0, uint32(len(in)), descNext, uint16(r.IntN(3)))
		v.desc(controlQueue, 1, answer0, 512, descWrite, 0)
		v.offer(controlQueue, uint16(r.IntN(20)/10))
		v.kick(r.IntN(2))
	}
}
