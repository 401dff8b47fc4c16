package connectx

import "github.com/rackless/rackless/rdma/roce"

// Sizes after the WQE's control segment: UMR's own, and the key's context.
const (
	umrCtrl = 48
	umrCtx  = 64
)

// Bits of a UMR control segment: the list is inline, or goes into the key's list from an offset on; and the context's
// fields to change (MLX5_MKEY_MASK_*).
const (
	umrInline    = 1 << 7
	umrIfFree    = 1 << 5 // else fails (MLX5_UMR_CHECK_NOT_FREE)
	umrIfNotFree = 2 << 5 // else fails (MLX5_UMR_CHECK_FREE)
	umrOffset    = 1 << 4
	umrLen       = 1 << 0
	umrPage      = 1 << 1
	umrStart     = 1 << 6
	umrPD        = 1 << 7
	umrRInval    = 1 << 8
	umrKey       = 1 << 13
	umrQPN       = 1 << 14
	umrLR        = 1 << 17 // and the other rights, in the order of umrRights
	umrFree      = 1 << 29
	umrAccess    = 0x1f * umrLR
)

// umrRights are selected by a bit each. libmlx5 leaves the local reading that a key was created with.
var umrRights = [5]roce.Access{roce.LocalRead, roce.LocalWrite, roce.RemoteRead, roce.RemoteWrite, roce.RemoteAtomic}

// maxGap limits entries that a request leaves out, because filling them takes time with the port locked. The driver
// leaves none out.
const maxGap = 1 << 16

// umr changes a key. The driver's own UMR QP loads page lists in pieces by it; kernel drivers (NVMe over Fabrics, iSER,
// NFS over RDMA) use it for fast registration. The key must be created for it (umr_en), and belong to the queue's
// domain unless the queue is the driver's UMR QP. A request that fails changes nothing.
func (p *Port) umr(q *queue, key uint32, w []byte) roce.Status {
	k := p.Keys[key>>8]
	if len(w) < umrCtrl {
		return roce.LocalQPOp
	}
	if k == nil || !k.UMR || k.PD != q.PD && q.Service != serviceUMR {
		return roce.MemoryOp
	}
	if flags := w[0]; flags&umrIfFree != 0 && !k.Free || flags&umrIfNotFree != 0 && k.Free {
		return roce.MemoryOp
	}
	// A list of pages can name any memory of the guest, so only queues of its kernel, with fast registration enabled,
	// may change one. A list of pieces names keys, which are checked at their use.
	if k.Mode != modeKLM && k.Mode != modeKSM && q.Service != serviceUMR &&
		!(qpcFre.is(q.Ctx) && ofDriver(q.UID)) {
		return roce.LocalQPOp
	}
	ctrl, x := w[:umrCtrl], []byte(nil)
	mask := be.Uint64(ctrl[8:])
	if w = w[umrCtrl:]; len(w) >= umrCtx {
		x, w = w[:umrCtx], w[umrCtx:]
	}
	if mask&umrPD != 0 && x != nil && mkcPd.get32(x) != q.PD && q.Service != serviceUMR {
		return roce.MemoryOp
	}
	var at int
	var list []byte
	if revokes := x != nil && mask&umrFree != 0 && mkcFree.is(x); !revokes && k.listed() {
		var st roce.Status
		if list, st = p.umrList(q, ctrl, w); st != roce.OK {
			return st
		}
		// The offset has 48 bits and counts, like the length, units of 16 bytes: two pages or one piece.
		if ctrl[0]&umrOffset != 0 {
			at = 2 * int(uint64(be.Uint16(ctrl[6:]))|uint64(be.Uint32(ctrl[16:]))<<16)
		}
		if at > min(len(k.Pages)+maxGap, k.maxPages()-len(list)/8) {
			return roce.LocalLength
		}
		if grow := at + len(list)/8 - len(k.Pages); len(list) > 0 && grow > 0 && !p.extend(k, grow) {
			return roce.LocalQPOp
		}
	}
	if x != nil {
		p.umrContext(k, x, mask)
	}
	for i := range len(list) / 8 {
		k.set(at+i, be.Uint64(list[8*i:]))
	}
	return roce.OK
}

// umrList reads a list in the WQE or in memory. Its length is in units of 16 bytes, and a list may end before.
func (p *Port) umrList(q *queue, ctrl, w []byte) ([]byte, roce.Status) {
	n := 16 * uint64(be.Uint16(ctrl[4:]))
	switch {
	case ctrl[0]&umrInline != 0:
		return w[:min(n, uint64(len(w)))], roce.OK
	case n == 0 || len(w) < 16:
		return nil, roce.OK
	}
	n = min(n, uint64(be.Uint32(w)&0x7fffffff))
	from, f := p.translate(nil, be.Uint32(w[4:]), q.PD, be.Uint64(w[8:]), n, roce.LocalRead)
	list := make([]byte, n)
	if f != 0 || !move([]seg{bytesSeg(list)}, from) {
		return nil, roce.LocalProtection
	}
	return list, roce.OK
}

// extend appends n entries that grant no access, or returns false.
func (p *Port) extend(k *mkey, n int) bool {
	if !p.charge(n) {
		return false
	}
	was := len(k.Pages)
	k.Pages = append(k.Pages, make([]uint64, n)...)
	if k.Mode == modeMTT {
		for i := range k.Pages[was:] {
			k.Pages[was+i] = pageAbsent
		}
	}
	return true
}

// umrContext rounds a page size up to 4 KiB, because smaller pages would make the list longer than the memory behind
// it.
func (p *Port) umrContext(k *mkey, x []byte, mask uint64) {
	if mask&umrLen != 0 {
		k.Len, k.Any = mkcLen.get(x), mkcLength64.is(x)
	}
	if mask&umrPage != 0 {
		k.Shift = min(max(minPageShift, uint8(mkcLogPageSize.get(x))), maxPageShift)
	}
	if mask&umrStart != 0 {
		k.Start = mkcStartAddr.get(x)
	}
	if mask&umrPD != 0 {
		k.PD = mkcPd.get32(x)
	}
	if mask&umrKey != 0 {
		k.Key = k.Key&^0xff | mkcMkey70.get32(x)
	}
	if mask&umrAccess != 0 {
		access := keyAccess(x)
		for i, r := range umrRights {
			if mask&(umrLR<<i) != 0 {
				k.Access = k.Access&^r | access&r
			}
		}
	}
	if mask&umrRInval != 0 {
		k.RInval = mkcEnRinval.is(x)
	}
	if mask&umrQPN != 0 {
		k.QPN = mkcQpn.get32(x)
	}
	if mask&umrFree != 0 {
		if k.Free = mkcFree.is(x); k.Free {
			p.forget(k)
		}
	}
}
