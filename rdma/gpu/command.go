package gpu

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// Commands, chapter 5.7.6.
const (
	cmdDisplayInfo = 0x0100
	cmdUnref       = 0x0102
	cmdCapsetInfo  = 0x0108
	cmdCapset      = 0x0109
	cmdCreateBlob  = 0x010c

	cmdCtxCreate  = 0x0200
	cmdCtxDestroy = 0x0201
	cmdCtxAttach  = 0x0202
	cmdCtxDetach  = 0x0203
	cmdMapBlob    = 0x0208
	cmdUnmapBlob  = 0x0209

	cmdUpdateCursor = 0x0300
	cmdMoveCursor   = 0x0301
)

// Answers, chapter 5.7.6.7.
const (
	respOK          = 0x1100
	respDisplayInfo = 0x1101
	respMapInfo     = 0x1106

	errUnspec      = 0x1200
	errNoMemory    = 0x1201
	errBadResource = 0x1203
	errBadContext  = 0x1204
	errBadParam    = 0x1205
)

const (
	headerSize = 24
	flagFence  = 1 << 0

	blobHost3D    = 2
	blobMappable  = 1 << 0
	blobShareable = 1 << 1
	blobFlags     = 7 // these, and for other devices

	mapCached = 1
)

// A context belongs to a file that a program has opened, a blob is an allocation.
const (
	maxContexts = 1 << 12
	maxBlobs    = 1 << 14
)

const pageSize = 4096

type memory struct {
	contexts  map[uint32]bool
	blobs     map[uint32]*blob
	placed    []*blob // by offset
	allocated uint64
}

// blob gets a place in VRAM when the driver first maps it, and keeps it until it is freed: the guest sees VRAM as a
// whole, so a blob cannot be moved.
type blob struct {
	id           uint32
	size, offset uint64
	flags        uint32
	placed       bool
	mapped       bool
}

func (m *memory) mapped() (n uint64) {
	for _, b := range m.placed {
		if b.mapped {
			n += b.size
		}
	}
	return n
}

// place gives a blob its place, or returns false if another is there.
func (m *memory) place(b *blob, offset uint64) bool {
	byOffset := func(b *blob, at uint64) int { return cmp.Compare(b.offset, at) }
	i, taken := slices.BinarySearchFunc(m.placed, offset, byOffset)
	if taken || i > 0 && m.placed[i-1].offset+m.placed[i-1].size > offset ||
		i < len(m.placed) && m.placed[i].offset-offset < b.size {
		return false
	}
	b.offset, b.placed = offset, true
	m.placed = slices.Insert(m.placed, i, b)
	return true
}

// free frees a blob, and makes it zeros, so that no program sees data of another.
func (g *GPU) free(b *blob) {
	m := &g.memory
	delete(m.blobs, b.id)
	m.allocated -= b.size
	if b.placed {
		m.placed = slices.DeleteFunc(m.placed, func(o *blob) bool { return o == b })
		g.zero(b.offset, b.size)
	}
}

func (g *GPU) freeAll() {
	g.memory = memory{contexts: map[uint32]bool{}, blobs: map[uint32]*blob{}}
	g.zero(0, g.cfg.Memory)
}

// zero gives pages back to the host. Mappings stay, and read as zeros. The time depends on how much has been written.
func (g *GPU) zero(off, n uint64) {
	if err := unix.Fallocate(g.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off),
		int64(n)); err != nil {
		clear(g.vram[off : off+n])
	}
}

// commands have least sizes, run with the lock held, and return the type and the content of the answer.
var commands = map[uint32]struct {
	size int
	do   func(g *GPU, c []byte) (answer uint32, content []byte)
}{
	cmdDisplayInfo: {headerSize, func(*GPU, []byte) (uint32, []byte) {
		return respDisplayInfo, make([]byte, 16*24) // 16 outputs, all off
	}},
	cmdCapsetInfo: {headerSize + 8, func(*GPU, []byte) (uint32, []byte) { return errBadParam, nil }},
	cmdCapset:     {headerSize + 8, func(*GPU, []byte) (uint32, []byte) { return errBadParam, nil }},
	cmdCreateBlob: {headerSize + 32, (*GPU).createBlob},
	cmdUnref:      {headerSize + 8, (*GPU).unref},
	cmdMapBlob:    {headerSize + 16, (*GPU).mapBlob},
	cmdUnmapBlob:  {headerSize + 8, (*GPU).unmapBlob},
	cmdCtxCreate:  {headerSize, (*GPU).createContext},
	cmdCtxDestroy: {headerSize, (*GPU).destroyContext},
	cmdCtxAttach:  {headerSize + 8, (*GPU).attach},
	cmdCtxDetach:  {headerSize + 8, (*GPU).attach},
}

// command executes a command, which is done when it is answered; a fence waits for this.
func (g *GPU) command(queue int, in []byte) []byte {
	var h [headerSize]byte
	copy(h[:], in)
	kind := le.Uint32(h[:])
	answer, content := uint32(errUnspec), []byte(nil)
	switch c, ok := commands[kind]; {
	case queue == cursorQueue:
		if kind == cmdUpdateCursor || kind == cmdMoveCursor {
			answer = respOK
		}
	case !ok:
	case len(in) < c.size:
		answer = errBadParam
	default:
		answer, content = g.locked(c.do, in)
	}
	out := make([]byte, headerSize, headerSize+len(content))
	le.PutUint32(out, answer)
	if h[4]&flagFence != 0 {
		copy(out[4:], h[4:])
	}
	return append(out, content...)
}

// locked executes a command with the lock, which a panic gives back.
func (g *GPU) locked(do func(g *GPU, c []byte) (uint32, []byte), in []byte) (answer uint32, content []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return do(g, in)
}

func (g *GPU) createBlob(c []byte) (uint32, []byte) {
	m := &g.memory
	context, id, kind, flags := le.Uint32(c[16:]), le.Uint32(c[24:]), le.Uint32(c[28:]), le.Uint32(c[32:])
	size := le.Uint64(c[48:])
	switch {
	case context != 0 && !m.contexts[context]:
		return errBadContext, nil
	case id == 0 || m.blobs[id] != nil:
		return errBadResource, nil
	case kind != blobHost3D, // the guest's own memory is no VRAM
		g.fault == ExportRefused && flags&blobShareable != 0:
		return errUnspec, nil
	case flags&^blobFlags != 0 || size == 0 || size%pageSize != 0:
		return errBadParam, nil
	case size > g.cfg.Memory-m.allocated || len(m.blobs) >= maxBlobs:
		return errNoMemory, nil
	}
	m.blobs[id] = &blob{id: id, size: size, flags: flags}
	m.allocated += size
	return respOK, nil
}

func (g *GPU) unref(c []byte) (uint32, []byte) {
	b := g.memory.blobs[le.Uint32(c[24:])]
	if b == nil {
		return errBadResource, nil
	}
	g.free(b)
	return respOK, nil
}

func (g *GPU) mapBlob(c []byte) (uint32, []byte) {
	b, offset := g.memory.blobs[le.Uint32(c[24:])], le.Uint64(c[32:])
	switch {
	case b == nil:
		return errBadResource, nil
	case b.flags&blobMappable == 0 || b.mapped || offset%pageSize != 0 || offset > g.cfg.Memory-b.size:
		return errBadParam, nil
	case b.placed && b.offset != offset, !b.placed && !g.memory.place(b, offset):
		return errBadParam, nil
	}
	b.mapped = true
	return respMapInfo, []byte{mapCached, 7: 0}
}

func (g *GPU) unmapBlob(c []byte) (uint32, []byte) {
	b := g.memory.blobs[le.Uint32(c[24:])]
	switch {
	case b == nil:
		return errBadResource, nil
	case !b.mapped:
		return errBadParam, nil
	}
	b.mapped = false
	return respOK, nil
}

func (g *GPU) createContext(c []byte) (uint32, []byte) {
	id := le.Uint32(c[16:])
	switch {
	case id == 0 || g.memory.contexts[id]:
		return errBadContext, nil
	case len(g.memory.contexts) >= maxContexts:
		return errNoMemory, nil
	}
	g.memory.contexts[id] = true
	return respOK, nil
}

func (g *GPU) destroyContext(c []byte) (uint32, []byte) {
	id := le.Uint32(c[16:])
	if !g.memory.contexts[id] {
		return errBadContext, nil
	}
	delete(g.memory.contexts, id)
	return respOK, nil
}

// attach has no effect, because there is no rendering.
func (g *GPU) attach(c []byte) (uint32, []byte) {
	switch {
	case !g.memory.contexts[le.Uint32(c[16:])]:
		return errBadContext, nil
	case g.memory.blobs[le.Uint32(c[24:])] == nil:
		return errBadResource, nil
	}
	return respOK, nil
}
