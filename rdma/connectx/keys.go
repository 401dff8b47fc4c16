package connectx

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// mkey is a range of virtual addresses and the pages behind it. Key is index<<8 plus a byte that the driver chooses, so
// that the key of a destroyed region does not match the next one. Pages are addresses of 1<<Shift bytes each, with bits
// of refused access, and the first holds Start. In the modes KLM and KSM they are pairs of words: the length and the
// key, and the virtual address. A free key has the pages that work requests have set so far.
type mkey struct {
	Key        uint32
	PD         uint32
	Free       bool
	UMR        bool   // changed and invalidated by work requests: fast registration, and windows
	RInval     bool   // a peer may invalidate it
	QPN        uint32 // the only queue (a window of type 2), or anyQP for its domain
	Mode       uint8
	Any        bool // covers the whole address space
	Access     roce.Access
	Start, Len uint64
	Shift      uint8
	Pages      []uint64
	// Off is the place of Start in the first page of a list that is a umem's.
	Off   uint64
	Umems umemsOf
}

// access_mode of struct mkc. Keys of other modes can be created but not used.
const (
	modePhysical = 0
	modeMTT      = 1
	modeKLM      = 2 // pieces of other keys: windows, and fast registration of lists with gaps
	modeKSM      = 3 // likewise, of one size: implicit regions of on-demand paging
)

// Logs of the page size, and the pieces of a list. Each access goes through the whole list, so it is short: at most
// 2^log_max_klm_list_size, of which most users of the driver take 256.
const (
	minPageShift = 12
	maxPageShift = 40
	logMaxPieces = 12
	maxPieces    = 1 << logMaxPieces
)

// listed reports whether UMR changes a key's list.
func (k *mkey) listed() bool { return k.Mode == modeMTT || k.Mode == modeKLM || k.Mode == modeKSM }

// maxPages returns the largest length of Pages. For pages it is the guest's whole allowance, which memory of 64 GiB in
// pages of 4 KiB takes.
func (k *mkey) maxPages() int {
	if k.Mode == modeKLM {
		return 2 * maxPieces
	}
	return maxPages
}

// The driver's flags (MLX5_IB_MTT_READ and WRITE) grant accesses. They are inverted, so that addresses alone, as in
// states of earlier versions, grant all.
const (
	pageNoRead  = 1 << 0
	pageNoWrite = 1 << 1
	pageAbsent  = pageNoRead | pageNoWrite
	pageFlags   = 7
)

// set stores an entry of zeros, by which the driver withdraws a page, as absent.
func (k *mkey) set(i int, v uint64) {
	if k.Mode == modeMTT {
		v = v&^pageFlags | ^v&pageAbsent
	}
	k.Pages[i] = v
}

func refusing(a roce.Access) (bits uint64) {
	if a&(roce.LocalRead|roce.RemoteRead|roce.RemoteAtomic) != 0 {
		bits |= pageNoRead
	}
	if a&(roce.LocalWrite|roce.RemoteWrite|roce.RemoteAtomic) != 0 {
		bits |= pageNoWrite
	}
	return bits
}

// forget drops a revoked key's pages, so that its next use does not grant them. The driver sets all pages of the next
// region.
func (p *Port) forget(k *mkey) {
	p.NPages -= len(k.Pages)
	k.Pages = nil
}

const anyQP = 0xffffff

// bound reports whether a key allows a queue. 0 is no queue number.
func (p *Port) bound(key, qpn uint32) bool {
	k := p.Keys[key>>8]
	return k == nil || k.QPN == anyQP || k.QPN == 0 || k.QPN == qpn
}

// reservedKey, for physical addresses, ends a receive list.
const reservedKey = 0x100

// fillKey is the key of a null region (dump_fill_mkey): what is read by it are zeros, and what is written is dropped.
// Only its own adapter uses it.
const fillKey = 0x300

// newer reports whether the card is a ConnectX-5 or later, which have null regions and device memory.
func (p *Port) newer() bool { return p.model.psid != connectX4Lx.psid }

// zeros is what is read by fillKey. Its length keeps lists short.
var zeros = make([]byte, 64<<10)

// filled appends pieces for n bytes by fillKey.
func (p *Port) filled(out []seg, check bool, n uint64, a roce.Access) ([]seg, roce.Fault) {
	b := zeros
	switch {
	case !p.newer() || a&^(roce.LocalRead|roce.LocalWrite) != 0:
		return out, roce.FaultKey
	case check:
		return out, 0
	case a&roce.LocalWrite != 0:
		if p.dropped == nil {
			p.dropped = make([]byte, len(zeros))
		}
		b = p.dropped
	}
	for ; n > 0; n -= min(n, uint64(len(b))) {
		if len(out) == maxSegs {
			return out, roce.FaultAddress
		}
		l := min(n, uint64(len(b)))
		out = append(out, seg{n: l, b: b[:l]})
	}
	return out, 0
}

func createKey(p *Port, in, out []byte, _ uint32) status {
	n := p.number(kindKey, maxKeyNumber, func(n uint32) bool { return p.Keys[n] != nil })
	if n == 0 {
		return limit
	}
	k := &mkey{}
	if st := p.readKey(k, n, in); st != ok {
		return st
	}
	p.Keys[n] = k
	put24(out, n)
	return ok
}

// readKey checks that the sum of start and length does not wrap, and that the pages are in the command and within the
// guest's allowance. If flagged is not set, entries grant all that the key does.
func (p *Port) readKey(k *mkey, n uint32, in []byte) status {
	x, pas := in[0x10:], in[0x110:]
	*k = mkey{Key: n<<8 | mkcMkey70.get32(x), PD: mkcPd.get32(x), Free: mkcFree.is(x), UMR: mkcUmrEn.is(x),
		Mode: keyMode(x), Any: mkcLength64.is(x),
		Start: mkcStartAddr.get(x), Len: mkcLen.get(x), Shift: uint8(mkcLogPageSize.get(x))}
	k.Access, k.RInval, k.QPN = keyAccess(x), mkcEnRinval.is(x), mkcQpn.get32(x)
	if k.Mode == modeKSM {
		k.Shift = min(max(k.Shift, minPageShift), maxPageShift)
	}
	if !k.listed() {
		return ok
	}
	if k.Free {
		// Work requests will set the pages, and are charged. The driver keeps thousands of such keys, which would take
		// most of the allowance.
		k.Shift = min(max(k.Shift, minPageShift), maxPageShift)
		if count := int(mkcTranslationsOctwordSize.get(x)) * 2; count > k.maxPages() || count > maxPages-p.NPages {
			return limit
		}
		return ok
	}
	if k.Mode != modeMTT {
		return p.readPieces(k, int(createKeyActualSize.get(in)), pas)
	}
	if k.Len > 1<<46 || k.Start+k.Len < k.Start {
		return badParam
	}
	if createKeyUmemValid.is(in) {
		return p.keyInUmem(k, in)
	}
	if k.Shift < minPageShift || k.Shift > maxPageShift {
		return badParam
	}
	count := (k.Start&(1<<k.Shift-1) + k.Len + 1<<k.Shift - 1) >> k.Shift
	if count > uint64(len(pas)/8) || !p.charge(int(count)) {
		return limit
	}
	k.Pages = make([]uint64, count)
	for i := range k.Pages {
		v := be.Uint64(pas[8*i:])
		if !createKeyPgAccess.is(in) {
			v |= pageFlags
		}
		k.set(i, v)
	}
	return ok
}

// keyInUmem takes the pages from a umem, with their rights.
func (p *Port) keyInUmem(k *mkey, in []byte) status {
	n := createKeyUmemId.get32(in)
	u := p.userUmem(n, uidOf(in))
	if u == nil {
		return badResource
	}
	pages, first, fits := u.pages(createKeyUmemOffset.get(in), k.Len)
	if !fits {
		return badParam
	}
	if !p.charge(len(pages)) {
		return limit
	}
	k.Pages, k.Shift, k.Off, k.Umems = slices.Clone(pages), u.Shift, first, umemsOf{n}
	p.hold(&k.Umems)
	return ok
}

func keyMode(x []byte) uint8 { return uint8(mkcAccessMode10.get(x) | mkcAccessMode42.get(x)<<2) }

// keyAccess reads rights. Remote ones need the QP's too.
func keyAccess(x []byte) roce.Access {
	var a roce.Access
	for f, r := range map[bits]roce.Access{mkcLr: roce.LocalRead, mkcLw: roce.LocalWrite, mkcRr: roce.RemoteRead,
		mkcRw: roce.RemoteWrite, mkcA: roce.RemoteAtomic} {
		if f.is(x) {
			a |= r
		}
	}
	return a
}

func destroyKey(p *Port, k *mkey, _, _ []byte) status {
	p.releaseUmems(&k.Umems)
	p.NPages -= len(k.Pages)
	delete(p.Keys, k.Key>>8)
	return ok
}

// queryKey returns also a list of other keys, because the driver loads absent pages behind a program's one.
func queryKey(p *Port, k *mkey, _, out []byte) status {
	x := out[0x10:]
	mkcMkey70.put(x, uint64(k.Key&0xff))
	mkcPd.put(x, uint64(k.PD))
	mkcStartAddr.put(x, k.Start)
	mkcLen.put(x, k.Len)
	if k.Mode == modeKLM || k.Mode == modeKSM {
		for i, v := range k.Pages {
			if at := 0x110 + 8*i; at+8 <= p.outLen {
				be.PutUint64(out[at:], v)
			}
		}
	}
	return ok
}

// A seg is a piece of one mapping. b is nil if it must be accessed by messages.
type seg struct {
	m    *vfiouser.Memory
	addr uint64
	n    uint64
	b    []byte
}

// maxSegs limits pieces of a few bytes, of which each takes more memory here than in the guest.
const maxSegs = 1 << 16

// translate appends at most maxSegs pieces. pd is the domain of the using queue. Slices are valid while the lock on
// maps is held.
func (p *Port) translate(out []seg, key, pd uint32, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	return p.find(out, false, key, pd, va, n, a)
}

// check returns translate's fault, whatever the number of pieces.
func (p *Port) check(key, pd uint32, va, n uint64, a roce.Access) roce.Fault {
	_, f := p.find(nil, true, key, pd, va, n, a)
	return f
}

// find alone decides which memory a queue or a peer may access. It checks key, protection domain, rights and range at
// each use, because the key may have been destroyed or changed.
func (p *Port) find(out []seg, check bool, key, pd uint32, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	if key == fillKey {
		return p.filled(out, check, n, a)
	}
	k := p.Keys[key>>8]
	switch {
	case k == nil || k.Key != key || k.Free:
		return out, roce.FaultKey
	case k.PD != pd:
		return out, roce.FaultDomain
	case k.Access&a != a:
		return out, roce.FaultRights
	case k.Mode == modeMEMIC:
		return p.memicOf(out, check, k, va, n)
	// Differences cannot wrap, unlike a sum of Start and Len.
	case va+n < va, !k.Any && (va < k.Start || va-k.Start > k.Len || n > k.Len-(va-k.Start)):
		return out, roce.FaultRange
	case n == 0:
		return out, 0
	}
	switch k.Mode {
	case modePhysical:
		return p.physical(out, check, va, n)
	case modeMTT:
	case modeKLM:
		return p.pieces(out, check, k, va, n, a)
	case modeKSM:
		return p.parts(out, check, k, va, n, a)
	default:
		return out, roce.FaultKey
	}
	// Offsets count from the page that holds Start.
	size, refused := uint64(1)<<k.Shift, refusing(a)
	o := va - k.Start&^(size-1)
	if k.Umems[0] != 0 {
		o = va - k.Start + k.Off
	}
	for n > 0 {
		i := o >> k.Shift
		if i >= uint64(len(k.Pages)) {
			return out, roce.FaultRange
		}
		if k.Pages[i]&refused != 0 {
			return out, roce.FaultPage
		}
		at := k.Pages[i]&^pageFlags + o&(size-1)
		l := size - o&(size-1)
		for ; l < n && i+1 < uint64(len(k.Pages)) && k.Pages[i+1] == k.Pages[i]+size; i++ {
			l += size
		}
		l = min(l, n)
		var f roce.Fault
		if out, f = p.physical(out, check, at, l); f != 0 {
			return out, f
		}
		o, n = o+l, n-l
	}
	return out, 0
}

func localRight(a roce.Access) roce.Access {
	if a&(roce.LocalWrite|roce.RemoteWrite|roce.RemoteAtomic) != 0 {
		return roce.LocalWrite
	}
	return roce.LocalRead
}

// physical memory may span several mappings. A key of mode 0 covers all of the guest's, but only its kernel can create
// one.
func (p *Port) physical(out []seg, check bool, addr, n uint64) ([]seg, roce.Fault) {
	if addr+n < addr || n > 1<<40 {
		return out, roce.FaultAddress
	}
	for n > 0 {
		l := n
		b := p.mem.Slice(addr, int(l))
		if b == nil && !p.mem.Has(addr, int(l)) {
			// Behind an IOMMU, a buffer is mapped page by page.
			l = min(n, pageSize-addr%pageSize)
			if b = p.mem.Slice(addr, int(l)); b == nil && !p.mem.Has(addr, int(l)) {
				return out, roce.FaultAddress
			}
		}
		if !check {
			if len(out) == maxSegs {
				return out, roce.FaultAddress
			}
			out = append(out, seg{p.mem, addr, l, b})
		}
		addr, n = addr+l, n-l
	}
	return out, 0
}

func total(v []seg) (n uint64) {
	for i := range v {
		n += v[i].n
	}
	return n
}

// skip removes the first n bytes of a list, and first all after them. They change the list.
func skip(v []seg, n uint64) []seg {
	for len(v) > 0 && v[0].n <= n {
		n -= v[0].n
		v = v[1:]
	}
	if len(v) > 0 && n > 0 {
		s := &v[0]
		s.addr, s.n = s.addr+n, s.n-n
		if s.b != nil {
			s.b = s.b[n:]
		}
	}
	return v
}

func first(v []seg, n uint64) []seg {
	for i := range v {
		if s := &v[i]; s.n >= n {
			s.n = n
			return v[:i+1]
		}
		n -= v[i].n
	}
	return v
}

func mapped(v []seg) bool {
	for i := range v {
		if v[i].b == nil {
			return false
		}
	}
	return true
}

// move copies until one list ends. An unmapped side goes through a buffer of 64 KiB. It returns false, after a part, if
// the client refused an access or did not answer; between mapped lists it cannot fail.
func move(dst, src []seg) bool {
	var do, so uint64
	for len(dst) > 0 && len(src) > 0 {
		d, s := &dst[0], &src[0]
		n := min(d.n-do, s.n-so)
		if d.b != nil && s.b != nil {
			copy(d.b[do:do+n], s.b[so:so+n])
		} else {
			n = min(n, 64<<10)
			buf := make([]byte, n)
			if !s.read(so, buf) || !d.write(do, buf) {
				return false
			}
		}
		if do += n; do == d.n {
			dst, do = dst[1:], 0
		}
		if so += n; so == s.n {
			src, so = src[1:], 0
		}
	}
	return true
}

// moved tells NIC.Moved of n bytes in memory of peers. The list is of this port's guest, or inline data.
func (p *Port) moved(list []seg, n uint64, written bool) {
	if p.nic.Moved == nil || !p.mem.HasPeers() {
		return
	}
	for i := 0; i < len(list) && n > 0; i++ {
		s := &list[i]
		l := min(s.n, n)
		if s.m != nil && p.mem.OfPeer(s.addr) {
			p.nic.Moved(s.addr, l, written)
		}
		n -= l
	}
}

// read copies from offset o on, and fails if the client does.
func (s *seg) read(o uint64, b []byte) bool {
	if s.b == nil {
		return s.m.Read(s.addr+o, b)
	}
	copy(b, s.b[o:])
	return true
}

func (s *seg) write(o uint64, b []byte) bool {
	if s.b == nil {
		return s.m.Write(s.addr+o, b)
	}
	copy(s.b[o:], b)
	return true
}

func bytesSeg(b []byte) seg { return seg{n: uint64(len(b)), b: b} }

// atomically uses one instruction, because the guest's CPUs use the same memory. The number is little-endian, as on all
// supported hosts; callers check that b is aligned to 8 bytes.
func atomically(b []byte, op roce.AtomicOp) uint64 {
	at := (*uint64)(unsafe.Pointer(&b[:8][0]))
	for {
		if old := atomic.LoadUint64(at); atomic.CompareAndSwapUint64(at, old, op.Apply(old)) {
			return old
		}
	}
}
