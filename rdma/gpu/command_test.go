package gpu

import (
	"bytes"
	"testing"
)

func TestCommands(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	const page = pageSize
	blob := func(context, id, kind, flags uint32, size uint64) []uint32 {
		return []uint32{context, id, kind, flags, 0, 0, 0, uint32(size), uint32(size >> 32)}
	}
	at := func(id uint32, offset uint64) []uint32 {
		return []uint32{0, id, 0, uint32(offset), uint32(offset >> 32)}
	}
	for i, c := range []struct {
		name  string
		kind  uint32
		words []uint32
		want  uint32
	}{
		{"a context", cmdCtxCreate, []uint32{7}, respOK},
		{"a context that exists", cmdCtxCreate, []uint32{7}, errBadContext},
		{"context 0", cmdCtxCreate, []uint32{0}, errBadContext},
		{"a blob", cmdCreateBlob, blob(7, 1, blobHost3D, 3, 4*page), respOK},
		{"a blob of no context", cmdCreateBlob, blob(0, 2, blobHost3D, 1, page), respOK},
		{"a blob that cannot be mapped", cmdCreateBlob, blob(0, 3, blobHost3D, 2, page), respOK},
		{"a blob that exists", cmdCreateBlob, blob(7, 1, blobHost3D, 3, page), errBadResource},
		{"blob 0", cmdCreateBlob, blob(7, 0, blobHost3D, 3, page), errBadResource},
		{"a blob of an unknown context", cmdCreateBlob, blob(8, 9, blobHost3D, 3, page), errBadContext},
		{"memory of the guest", cmdCreateBlob, blob(7, 9, 1, 3, page), errUnspec},
		{"memory of both", cmdCreateBlob, blob(7, 9, 3, 3, page), errUnspec},
		{"unknown flags", cmdCreateBlob, blob(7, 9, blobHost3D, 8, page), errBadParam},
		{"no bytes", cmdCreateBlob, blob(7, 9, blobHost3D, 3, 0), errBadParam},
		{"part of a page", cmdCreateBlob, blob(7, 9, blobHost3D, 3, page+1), errBadParam},
		{"all of VRAM, which is no longer free", cmdCreateBlob, blob(7, 9, blobHost3D, 3, MinMemory), errNoMemory},
		{"more than all", cmdCreateBlob, blob(7, 9, blobHost3D, 3, ^uint64(page-1)), errNoMemory},
		{"attach", cmdCtxAttach, []uint32{7, 1, 0}, respOK},
		{"attach an unknown blob", cmdCtxAttach, []uint32{7, 99, 0}, errBadResource},
		{"attach to an unknown context", cmdCtxAttach, []uint32{8, 1, 0}, errBadContext},
		{"detach", cmdCtxDetach, []uint32{7, 1, 0}, respOK},
		{"map", cmdMapBlob, at(1, 8*page), respMapInfo},
		{"map again", cmdMapBlob, at(1, 8*page), errBadParam},
		{"map an unknown blob", cmdMapBlob, at(99, 0), errBadResource},
		{"map a blob that cannot be mapped", cmdMapBlob, at(3, 0), errBadParam},
		{"map over the beginning of another", cmdMapBlob, at(2, 8*page), errBadParam},
		{"map over the end of another", cmdMapBlob, at(2, 11*page), errBadParam},
		{"map within a page", cmdMapBlob, at(2, 5*page+8), errBadParam},
		{"map beyond the end", cmdMapBlob, at(2, MinMemory), errBadParam},
		{"map far beyond the end", cmdMapBlob, at(2, ^uint64(page-1)), errBadParam},
		{"map at the end", cmdMapBlob, at(2, MinMemory-page), respMapInfo},
		{"unmap", cmdUnmapBlob, []uint32{0, 1, 0}, respOK},
		{"unmap again", cmdUnmapBlob, []uint32{0, 1, 0}, errBadParam},
		{"unmap an unknown blob", cmdUnmapBlob, []uint32{0, 99, 0}, errBadResource},
		{"map elsewhere", cmdMapBlob, at(1, 0), errBadParam},
		{"map in the same place", cmdMapBlob, at(1, 8*page), respMapInfo},
		{"free", cmdUnref, []uint32{0, 1, 0}, respOK},
		{"free again", cmdUnref, []uint32{0, 1, 0}, errBadResource},
		{"another in its place", cmdCreateBlob, blob(7, 1, blobHost3D, 3, 2*page), respOK},
		{"map where it was", cmdMapBlob, at(1, 9*page), respMapInfo},
		{"the end of a context", cmdCtxDestroy, []uint32{7}, respOK},
		{"the end of an unknown context", cmdCtxDestroy, []uint32{7}, errBadContext},
		{"displays", cmdDisplayInfo, []uint32{0}, respDisplayInfo},
		{"a capset", cmdCapsetInfo, []uint32{0, 0, 0}, errBadParam},
		{"the data of a capset", cmdCapset, []uint32{0, 1, 1}, errBadParam},
		{"a picture", 0x101, []uint32{0, 5, 1, 64, 64}, errUnspec},
		{"commands for a renderer", 0x207, []uint32{0, 4, 0, 1}, errUnspec},
		{"a cursor on the wrong queue", cmdMoveCursor, []uint32{0, 0, 0, 0, 0}, errUnspec},
		{"an unknown command", 0xdead, []uint32{0}, errUnspec},
		{"no command", 0, []uint32{0}, errUnspec},
		{"a command that ends early", cmdMapBlob, []uint32{0, 1}, errBadParam},
	} {
		if got := x.command(c.kind, c.words[0], c.words[1:]...); got != c.want {
			t.Errorf("%d, %s: answer %#x, want %#x", i, c.name, got, c.want)
		}
	}
	want := Status{Driver: true, Address: vramAt, Memory: MinMemory, Blobs: 3, Allocated: 4 * page, Mapped: 3 * page}
	if got := x.g.Status(); got != want {
		t.Errorf("status %+v, want %+v", got, want)
	}
}

// Answers repeat the fence of the command.
func TestAnswers(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	x.blob(1, pageSize)
	for _, c := range []struct {
		in   []byte
		size int
	}{{command(cmdDisplayInfo, 0), 408}, {command(cmdMapBlob, 0, 1, 0, 0, 0), 32}, {command(cmdUnmapBlob, 0, 1, 0), 24},
		{command(0xdead, 0), 24}} {
		le.PutUint32(c.in[4:], flagFence)
		le.PutUint64(c.in[8:], 0x1122334455667788)
		out := x.send(controlQueue, c.in)
		if len(out) != c.size || !bytes.Equal(out[4:headerSize], c.in[4:headerSize]) {
			t.Errorf("command %#x: %d bytes, %x", le.Uint32(c.in), len(out), out[:headerSize])
		}
	}
	if got := x.send(controlQueue, command(cmdDisplayInfo, 0)); le.Uint32(got[4:]) != 0 || le.Uint64(got[8:]) != 0 {
		t.Errorf("without a fence: %x", got[:headerSize])
	}
	if got := le.Uint32(x.send(cursorQueue, command(cmdMoveCursor, 0, 0, 0, 0, 0))); got != respOK {
		t.Errorf("cursor: %#x", got)
	}
	if got := le.Uint32(x.send(cursorQueue, command(cmdUnref, 0, 1, 0))); got != errUnspec {
		t.Errorf("a command on the queue for cursors: %#x", got)
	}
}

// A program must not see data of another in its VRAM.
func TestFreedMemoryIsZero(t *testing.T) {
	for _, c := range []struct {
		name string
		free func(x *guest)
		kept bool
	}{
		{"free", func(x *guest) { x.command(cmdUnref, 0, 1, 0) }, true},
		{"free without unmapping", func(x *guest) { x.command(cmdUnmapBlob, 0, 1, 0); x.command(cmdUnref, 0, 1, 0) },
			true},
		{"reset by the driver", func(x *guest) { x.driver() }, false},
		{"function level reset", func(x *guest) { x.setCfg(cfgDevCtl, 2, 0x8000) }, false},
		{"reset by QEMU", func(x *guest) { x.d.Reset() }, false},
		{"QEMU ends", func(x *guest) { x.d.Disconnected() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newGuest(t, Config{})
			x.boot()
			x.blob(1, 4*pageSize, 4*pageSize)
			x.blob(2, pageSize, 8*pageSize)
			x.blob(3, pageSize, 3*pageSize)
			// Like a NIC that still has the memory.
			secret := x.g.VRAM(vramAt, 16*pageSize)
			for i := range secret {
				secret[i] = 0x55
			}
			if got := x.g.Status().Resident; got < 16*pageSize {
				t.Errorf("%d bytes are resident", got)
			}
			c.free(x)
			mine, others := secret[4*pageSize:8*pageSize], append(bytes.Clone(secret[:4*pageSize]),
				secret[8*pageSize:]...)
			if !bytes.Equal(mine, make([]byte, len(mine))) {
				t.Error("the memory has not been cleared")
			}
			if kept := bytes.Equal(others, bytes.Repeat([]byte{0x55}, len(others))); kept != c.kept {
				t.Errorf("the memory of others is kept: %v", kept)
			}
			if n := x.g.Status().Blobs; (n == 2) != c.kept {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	x := newGuest(t, Config{Memory: 128 << 20})
	x.boot()
	create := func(kind uint32, body func(i uint32) []uint32, limit int) {
		n := 0
		for i := uint32(1); int(i) <= limit+10; i++ {
			if w := body(i); le.Uint32(x.g.command(controlQueue, command(kind, w[0], w[1:]...))) == respOK {
				n++
			}
		}
		if n != limit {
			t.Errorf("command %#x: %d, limit %d", kind, n, limit)
		}
	}
	create(cmdCtxCreate, func(i uint32) []uint32 { return []uint32{i} }, maxContexts)
	create(cmdCreateBlob, func(i uint32) []uint32 {
		return []uint32{0, i, blobHost3D, 3, 0, 0, 0, pageSize, 0}
	}, maxBlobs)
	// An order that is bad for a sorted list.
	for i := uint32(maxBlobs); i > maxBlobs/2; i-- {
		if a := le.Uint32(x.g.command(controlQueue, command(cmdMapBlob, 0, i, 0, i*pageSize, 0))); a != respMapInfo {
			t.Fatalf("blob %d: %#x", i, a)
		}
	}
	x.driver()
	if got := x.g.Status(); got.Blobs != 0 || got.Allocated != 0 || got.Mapped != 0 {
		t.Errorf("status after a reset: %+v", got)
	}
}
