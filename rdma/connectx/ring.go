package connectx

import "github.com/rackless/rackless/rdma/vfiouser"

// ring translates page addresses at each access, because the guest's mappings may change.
type ring struct {
	Pages []uint64
	Shift uint8 // log of the page size
	Off   uint64
}

// newRing checks the shift and the size first, so that no sum can wrap. logPage counts from 4 KiB, and pageOff in 64ths
// of a page.
func (p *Port) newRing(pas []byte, logPage, pageOff, size uint64) (ring, bool) {
	if logPage > 18 || size == 0 || size > 1<<30 {
		return ring{}, false
	}
	r := ring{Shift: uint8(logPage + 12)}
	r.Off = pageOff << r.Shift / 64
	n := (r.Off + size + 1<<r.Shift - 1) >> r.Shift
	if n > uint64(len(pas)/8) || !p.charge(int(n)) {
		return ring{}, false
	}
	r.Pages = make([]uint64, n)
	for i := range r.Pages {
		r.Pages[i] = be.Uint64(pas[8*i:]) &^ 0xfff
		p.notePrivate(r.Pages[i])
	}
	return r, true
}

func (p *Port) notePrivate(page uint64) {
	if !p.private.Load() && p.mem.Slice(page, pageSize) == nil && p.mem.Has(page, pageSize) {
		p.private.Store(true)
	}
}

// charge adds n page addresses to the guest's total, or returns false above the limit. drop or destroyKey subtracts
// them.
func (p *Port) charge(n int) bool {
	if p.NPages+n > maxPages {
		return false
	}
	p.NPages += n
	return true
}

func (p *Port) drop(r *ring) { p.NPages -= len(r.Pages) }

// at returns the address of offset o, and the bytes left in its page; both are 0 beyond the end.
func (r *ring) at(o uint64) (addr, left uint64) {
	o += r.Off
	i := o >> r.Shift
	if i >= uint64(len(r.Pages)) {
		return 0, 0
	}
	in := o & (1<<r.Shift - 1)
	return r.Pages[i] + in, 1<<r.Shift - in
}

func (r *ring) read(m *vfiouser.Memory, o uint64, b []byte) bool {
	for len(b) > 0 {
		at, left := r.at(o)
		n := min(uint64(len(b)), left)
		if n == 0 || !m.Read(at, b[:n]) {
			return false
		}
		o, b = o+n, b[n:]
	}
	return true
}

// put writes the last word of 64 bytes last, in one store, because the guest polls the owner bit in it on another CPU.
func (r *ring) put(m *vfiouser.Memory, o uint64, b *[64]byte) bool {
	at, left := r.at(o)
	if left < 64 {
		return false
	}
	if s := m.Slice(at, 64); s != nil {
		copy(s[:60], b[:60])
	} else if !m.Write(at, b[:60]) {
		return false
	}
	return m.Store32(at+60, [4]byte(b[60:]))
}
