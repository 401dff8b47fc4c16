package connectx

import (
	"maps"
	"slices"

	"github.com/rackless/rackless/rdma/roce"
)

// DevX: programs send commands of their own, which the driver marks with the program's uid (user context). An object
// belongs to the uid that created it, and commands of other uids on it are refused. The memory of a program's queues
// and keys is in a umem, a list of pages that the driver has pinned.

// sharedUID marks the driver's objects that all programs may name (MLX5_SHARED_RESOURCE_UID). Like 0, only the driver
// sends it.
const sharedUID = 0xffff

// Logs of the numbers of user contexts and umems (log_max_uctx, log_max_umem).
const (
	logMaxUctx = 13
	logMaxUmem = 18
)

// rawTX lets a program create SQs, which send any frame (MLX5_UCTX_CAP_RAW_TX). The driver asks for it if the program
// has CAP_NET_RAW.
const rawTX = 1 << 0

// newDevX are the general capabilities for it.
var newDevX = map[bits]uint64{capLogMaxUctx: logMaxUctx, capLogMaxUmem: logMaxUmem, capUctxCap: rawTX, capUmemUid0: 1}

func uidOf(in []byte) uint16 { return be.Uint16(in[2:]) }

// ofDriver reports whether a command is the driver's own.
func ofDriver(uid uint16) bool { return uid == 0 || uid == sharedUID }

// class is a kind of objects with numbers of their own.
type class uint8

const (
	_ class = iota
	classQueue
	classCQ
	classKey
	classTIR
	classTIS
	classRQT
	classPD
	classDomain
	classCounter
	classFlowCounter
	classXRCD
	classUAR
	classUmem
)

// An objectID is the class of an object and its number, the key of tables.Owners.
type objectID uint64

func (c class) id(n uint32) objectID { return objectID(c)<<32 | objectID(n) }

// use is what a command does with the object that it names.
type use uint8

const (
	general use = iota // it names none
	creates
	uses
	destroys
)

// userCommand describes a command that programs may send, directly or through the driver.
type userCommand struct {
	use   use
	class class
	at    int // byte of the number in the command, 32 bits of which 24 count
}

// userCommands has all of them. Others, such as those for flow tables and for the port, are the driver's.
var userCommands = map[uint16]userCommand{
	0x100: {}, 0x101: {}, 0x10a: {}, // QUERY_HCA_CAP, QUERY_ADAPTER, QUERY_ISSI
	0x200: {creates, classKey, 8}, 0x201: {uses, classKey, 8}, 0x202: {destroys, classKey, 8},
	0x400: {creates, classCQ, 8}, 0x401: {destroys, classCQ, 8}, 0x402: {uses, classCQ, 8}, 0x403: {uses, classCQ, 8},
	0x500: {creates, classQueue, 8}, 0x501: {destroys, classQueue, 8}, 0x50b: {uses, classQueue, 8},
	0x703: {uses, classQueue, 8},                                      // ARM_RQ
	0x705: {creates, classQueue, 8}, 0x706: {destroys, classQueue, 8}, // XRC_SRQ
	0x707: {uses, classQueue, 8}, 0x708: {uses, classQueue, 8},
	0x710: {creates, classQueue, 8}, 0x711: {destroys, classQueue, 8}, // DCT
	0x712: {uses, classQueue, 8}, 0x713: {uses, classQueue, 8}, 0x714: {uses, classQueue, 8},
	0x750: {}, 0x754: {}, 0x760: {}, 0x76f: {}, 0x770: {}, // queries of the port
	0x771: {creates, classCounter, 8}, 0x772: {destroys, classCounter, 8}, 0x773: {uses, classCounter, 0x1c},
	0x780: {}, // SET_PP_RATE_LIMIT, which only the driver sends for a program
	0x800: {creates, classPD, 8}, 0x801: {destroys, classPD, 8},
	0x802: {creates, classUAR, 8}, 0x803: {destroys, classUAR, 8},
	0x806: {uses, classQueue, 8}, 0x807: {uses, classQueue, 8}, // ATTACH_TO_MCG, DETACH_FROM_MCG
	0x80d: {}, // NOP
	0x80e: {creates, classXRCD, 8}, 0x80f: {destroys, classXRCD, 8},
	0x816: {creates, classDomain, 8}, 0x817: {destroys, classDomain, 8},
	0x822: {}, 0x824: {}, 0x826: {}, // queries of congestion control
	0x842: {}, // QUERY_LAG
	0x900: {creates, classTIR, 8}, 0x901: {uses, classTIR, 8}, 0x902: {destroys, classTIR, 8},
	0x904: {creates, classQueue, 8}, 0x905: {uses, classQueue, 8}, 0x906: {destroys, classQueue, 8}, // SQ
	0x907: {uses, classQueue, 8},
	0x908: {creates, classQueue, 8}, 0x909: {uses, classQueue, 8}, 0x90a: {destroys, classQueue, 8}, // RQ
	0x90b: {uses, classQueue, 8},
	0x90c: {creates, classQueue, 8}, 0x90d: {uses, classQueue, 8}, 0x90e: {destroys, classQueue, 8}, // RMP
	0x90f: {uses, classQueue, 8},
	0x912: {creates, classTIS, 8}, 0x913: {uses, classTIS, 8}, 0x914: {destroys, classTIS, 8},
	0x916: {creates, classRQT, 8}, 0x917: {uses, classRQT, 8}, 0x918: {destroys, classRQT, 8},
	0x939: {creates, classFlowCounter, 8}, 0x93a: {destroys, classFlowCounter, 8},
	0x93b:        {uses, classFlowCounter, 0x1c},
	opCreateUmem: {creates, classUmem, 8}, opDestroyUmem: {destroys, classUmem, 8},
}

const (
	opCreateUmem  = 0xa08
	opDestroyUmem = 0xa0a
)

func init() {
	for op := range transitions {
		userCommands[op] = userCommand{uses, classQueue, 8}
	}
}

// permitted checks a command's uid: that of a user context, which owns the object that the command names.
func (p *Port) permitted(op uint16, in []byte) status {
	uid := uidOf(in)
	if ofDriver(uid) {
		return ok
	}
	if _, known := p.Uctx[uid]; !known {
		return badResource
	}
	c, may := userCommands[op]
	if !may {
		return badOp
	}
	if (c.use == uses || c.use == destroys) && !p.owns(uid, c.class, be.Uint32(in[c.at:])&0xffffff) {
		return badResource
	}
	return p.mayName(op, in, uid)
}

// owns reports whether an object is one of the uid's.
func (p *Port) owns(uid uint16, c class, n uint32) bool {
	return ofDriver(uid) || p.Owners[c.id(n)] == uid
}

// mayName checks the objects that a program's command names in a context. Queues that it names need no check here,
// because their numbers may be given to others later: see serves.
func (p *Port) mayName(op uint16, in []byte, uid uint16) status {
	allowed := true
	switch op {
	case 0x500: // CREATE_QP
		allowed = p.mayHave(in[0x18:], uid) && p.owns(uid, classPD, qpcPd.get32(in[0x18:]))
	case 0x502: // RST2INIT_QP, whose zeros stand for what the queue has
		// Another domain would be that of receives only: the transport keeps the first.
		x, q := in[0x18:], p.Queues[be.Uint32(in[8:])&0xffffff]
		allowed = qpcDethSqpn.get(x) == 0 && q != nil && (qpcPd.get(x) == 0 || qpcPd.get32(x) == q.PD)
	case 0x705: // CREATE_XRC_SRQ
		allowed = p.owns(uid, classPD, xsrqPd.get32(in[0x10:]))
	case 0x710: // CREATE_DCT
		allowed = p.owns(uid, classPD, dctcPd.get32(in[0x10:]))
	case 0x904: // CREATE_SQ
		allowed = p.Uctx[uid]&rawTX != 0 && p.owns(uid, classPD, wqPd.get32(in[0x50:]))
	case 0x908, 0x90c: // CREATE_RQ, CREATE_RMP
		allowed = p.owns(uid, classPD, wqPd.get32(in[0x50:]))
	case 0x900, 0x901: // CREATE_TIR, MODIFY_TIR
		t := readTIR(in[0x20:])
		allowed = (t.RQ == 0 || p.owns(uid, classQueue, t.RQ)) && (t.RQT == 0 || p.owns(uid, classRQT, t.RQT))
	case 0x916, 0x917: // CREATE_RQT, MODIFY_RQT
		for _, rq := range readRQT(in[0x20:]) {
			allowed = allowed && (rq == 0 || p.owns(uid, classQueue, rq))
		}
	case 0x200: // CREATE_MKEY
		x := in[0x10:]
		mode := keyMode(x)
		// A list of pages in the command, all memory, and device memory are the driver's to give.
		allowed = (mode == modeMTT && createKeyUmemValid.is(in) || mode == modeKLM || mode == modeKSM) &&
			p.owns(uid, classPD, mkcPd.get32(x))
	}
	if !allowed {
		return badResource
	}
	return ok
}

// mayHave refuses queue pairs of the driver: those that change keys of others, and those that send as QP 1.
func (p *Port) mayHave(x []byte, uid uint16) bool {
	st := qpcSt.get(x)
	return st != serviceUMR && st != serviceGSI && qpcDethSqpn.get(x) == 0
}

// note records the owner of a new object, and forgets that of one that is gone.
func (p *Port) note(op uint16, in, out []byte) {
	c := userCommands[op]
	switch c.use {
	case creates:
		id := c.class.id(be.Uint32(out[8:]) & 0xffffff)
		p.disown(id)
		if uid := uidOf(in); uid != 0 {
			p.Owners[id] = uid
			p.useDomain(id)
		}
	case destroys:
		p.disown(c.class.id(be.Uint32(in[c.at:]) & 0xffffff))
	}
}

// useDomain counts a queue or a key of a program as a user of its protection domain.
func (t *tables) useDomain(id objectID) {
	n := uint32(id)
	switch class(id >> 32) {
	case classQueue:
		if q := t.Queues[n]; q != nil {
			t.domainOf[id] = q.PD
			t.domainUsers[q.PD]++
		}
	case classKey:
		if k := t.Keys[n]; k != nil {
			t.domainOf[id] = k.PD
			t.domainUsers[k.PD]++
		}
	}
}

func (t *tables) disown(id objectID) {
	delete(t.Owners, id)
	pd, counted := t.domainOf[id]
	if !counted {
		return
	}
	delete(t.domainOf, id)
	if t.domainUsers[pd]--; t.domainUsers[pd] == 0 {
		delete(t.domainUsers, pd)
	}
}

// createUctx is CREATE_UCTX, with the rights of a program.
func createUctx(p *Port, in, out []byte, _ uint32) status {
	if !p.newer() {
		return badOp
	}
	n := p.number(kindUctx, 1<<logMaxUctx, func(n uint32) bool { _, used := p.Uctx[uint16(n)]; return used })
	if n == 0 {
		return limit
	}
	p.Uctx[uint16(n)] = be.Uint32(in[0x10:]) & rawTX
	be.PutUint16(out[10:], uint16(n))
	return ok
}

// destroyUctx is DESTROY_UCTX. The objects left of the program go too: queues first, because they use the rest.
func destroyUctx(p *Port, in, _ []byte, _ uint32) status {
	uid := be.Uint16(in[10:])
	if _, known := p.Uctx[uid]; !known {
		return badResource
	}
	var left []objectID
	for id, owner := range p.Owners {
		if owner == uid {
			left = append(left, id)
		}
	}
	slices.Sort(left)
	// They are destroyed by the driver's commands for them.
	command, out := make([]byte, minBuffer), make([]byte, minBuffer)
	for _, id := range left {
		n := uint32(id)
		be.PutUint32(command[8:], n)
		commands[destroyers[class(id>>32)]](p, command, out, n)
		p.disown(id)
	}
	delete(p.Uctx, uid)
	return ok
}

// destroyers has a command for each class; that for queues takes all kinds.
var destroyers = map[class]uint16{}

func init() {
	for _, op := range slices.Sorted(maps.Keys(userCommands)) {
		if c := userCommands[op]; c.use == destroys {
			destroyers[c.class] = op
		}
	}
}

// A umem is memory of a program: pages, in the form of those of a key, from an offset in the first on.
type umem struct {
	Pages []uint64
	Shift uint8
	Off   uint64

	users int // queues and keys with memory in it
}

// struct umem, at 0x10 of CREATE_UMEM; the pages follow at 0x30, with flags as in a key's list.
const (
	umemLogPageSize bits = 0x9b<<8 | 5
	umemPageOffset  bits = 0xa0<<8 | 32
	umemNumOfMtt    bits = 0xc0<<8 | 64
)

func createUmem(p *Port, in, out []byte, _ uint32) status {
	if !p.newer() {
		return badOp
	}
	x, pas := in[0x10:], in[0x30:]
	u := &umem{Shift: uint8(umemLogPageSize.get(x)) + minPageShift, Off: umemPageOffset.get(x)}
	count := umemNumOfMtt.get(x)
	if count == 0 || count > uint64(len(pas)/8) || !u.fits(int(count)) {
		return badParam
	}
	n := p.number(kindUmem, 1<<logMaxUmem, func(n uint32) bool { return p.Umems[n] != nil })
	if n == 0 || !p.charge(int(count)) {
		return limit
	}
	u.Pages = make([]uint64, count)
	for i := range u.Pages {
		v := be.Uint64(pas[8*i:])
		u.Pages[i] = v&^(pageSize-1) | ^v&pageAbsent
	}
	p.Umems[n] = u
	put24(out, n)
	return ok
}

// fits reports whether no place in so many pages exceeds 46 bits.
func (u *umem) fits(pages int) bool {
	return u.Shift >= minPageShift && u.Shift <= maxPageShift && u.Off < 1<<u.Shift && pages <= 1<<(46-u.Shift)
}

// destroyUmem refuses as long as the adapter uses the memory, because the driver then gives it to others.
func destroyUmem(p *Port, in, _ []byte, id uint32) status {
	u := p.Umems[id]
	if u == nil {
		return badResource
	}
	if u.users > 0 {
		return busy
	}
	p.NPages -= len(u.Pages)
	delete(p.Umems, id)
	return ok
}

// pages returns the pages for n bytes at an offset, and the place of the first byte in them.
func (u *umem) pages(off, n uint64) (pages []uint64, first uint64, fits bool) {
	size := uint64(len(u.Pages)) << u.Shift
	if off > size || n > size || u.Off+off+n > size {
		return nil, 0, false
	}
	off += u.Off
	last := (off + n + 1<<u.Shift - 1) >> u.Shift
	return u.Pages[off>>u.Shift : last], off & (1<<u.Shift - 1), true
}

// userUmem returns a umem of the uid, or nil.
func (p *Port) userUmem(n uint32, uid uint16) *umem {
	if u := p.Umems[n]; u != nil && p.owns(uid, classUmem, n) {
		return u
	}
	return nil
}

// source says where the memory of a queue is, as a command does: in pages and at an address, or in umems.
type source struct {
	uid              uint16
	pas              []byte
	logPage, pageOff uint64
	inUmem, dbInUmem bool
	umem, dbUmem     uint32
	off              uint64 // in umem
	written          bool   // by the adapter
}

// umemsOf are the umems of a queue's ring and its doorbell record, or of a key.
type umemsOf [2]uint32

// acquireMemory sets a ring of a size, and turns an offset of a doorbell record into its address.
func (p *Port) acquireMemory(s *source, size uint64, r *ring, db *uint64, of *umemsOf) status {
	var held umemsOf
	at := *db
	if s.dbInUmem {
		u := p.userUmem(s.dbUmem, s.uid)
		if u == nil {
			return badResource
		}
		pages, first, fits := u.pages(at, 8)
		if !fits || len(pages) != 1 || first%8 != 0 || pages[0]&pageNoRead != 0 {
			return badParam
		}
		at, held[1] = pages[0]&^pageFlags+first, s.dbUmem
	}
	if s.inUmem {
		u := p.userUmem(s.umem, s.uid)
		if u == nil {
			return badResource
		}
		if st := p.ringIn(u, s.off, size, s.written, r); st != ok {
			return st
		}
		held[0] = s.umem
	} else {
		var fits bool
		if *r, fits = p.newRing(s.pas, s.logPage, s.pageOff, size); !fits {
			return badParam
		}
	}
	if at != 0 {
		p.notePrivate(at &^ (pageSize - 1))
	}
	*db = at
	p.hold(&held)
	*of = held
	return ok
}

func (p *Port) ringIn(u *umem, off, size uint64, written bool, r *ring) status {
	pages, first, fits := u.pages(off, size)
	if !fits || size == 0 || size > 1<<30 || u.Shift > 30 || first%64 != 0 {
		return badParam
	}
	refused := refusing(roce.LocalRead)
	if written {
		refused |= refusing(roce.LocalWrite)
	}
	if !p.charge(len(pages)) {
		return limit
	}
	*r = ring{Pages: make([]uint64, len(pages)), Shift: u.Shift, Off: first}
	for i, v := range pages {
		if v&refused != 0 {
			p.drop(r)
			return badParam
		}
		r.Pages[i] = v &^ pageFlags
		p.notePrivate(r.Pages[i])
	}
	return ok
}

func (p *Port) hold(of *umemsOf) {
	for _, n := range of {
		if u := p.Umems[n]; u != nil {
			u.users++
		}
	}
}

// releaseUmems ends the use of umems.
func (p *Port) releaseUmems(of *umemsOf) {
	for _, n := range of {
		if u := p.Umems[n]; u != nil {
			u.users--
		}
	}
	*of = umemsOf{}
}

// countUsers sets the unsaved numbers of users of each umem and each protection domain.
func (p *Port) countUsers() {
	for _, q := range p.Queues {
		p.hold(&q.Umems)
	}
	for _, c := range p.CQs {
		p.hold(&c.Umems)
	}
	for _, k := range p.Keys {
		p.hold(&k.Umems)
	}
	for id := range p.Owners {
		p.useDomain(id)
	}
}

// serves reports whether a program's queue may use another object of it. The driver's queues may use all.
func serves(queue, other uint16) bool { return ofDriver(queue) || queue == other }
