package connectx

import "slices"

// commands are MLX5_CMD_OP_* in linux/mlx5/mlx5_ifc.h. An unknown one must not succeed, or the driver would take zeros
// for the number of a new object: it fails with bad opcode, as on older firmware.
var commands map[uint16]handler

// opAllocUAR is limited by the pages of the BAR.
const opAllocUAR = 0x802

func init() {
	commands = map[uint16]handler{
		0x100: queryCaps,                  // QUERY_HCA_CAP
		0x101: queryAdapter,               // QUERY_ADAPTER
		0x102: nothing,                    // INIT_HCA
		0x103: teardown,                   // TEARDOWN_HCA
		0x104: nothing,                    // ENABLE_HCA
		0x105: nothing,                    // DISABLE_HCA
		0x107: queryPages,                 // QUERY_PAGES
		0x108: managePages,                // MANAGE_PAGES
		0x109: setCaps,                    // SET_HCA_CAP
		0x10a: queryISSI,                  // QUERY_ISSI
		0x10b: nothing,                    // SET_ISSI
		0x10d: nothing,                    // SET_DRIVER_VERSION
		0x200: createKey,                  // CREATE_MKEY
		0x201: with(keys, queryKey),       // QUERY_MKEY
		0x202: with(keys, destroyKey),     // DESTROY_MKEY
		0x203: special,                    // QUERY_SPECIAL_CONTEXTS
		0x204: resumePages,                // PAGE_FAULT_RESUME
		0x205: allocMemic,                 // ALLOC_MEMIC
		0x206: deallocMemic,               // DEALLOC_MEMIC
		0x301: createEQ,                   // CREATE_EQ
		0x302: destroyEQ,                  // DESTROY_EQ
		0x303: nothing,                    // QUERY_EQ
		0x400: createCQ,                   // CREATE_CQ
		0x401: with(cqs, destroyCQ),       // DESTROY_CQ
		0x402: with(cqs, queryCQ),         // QUERY_CQ
		0x403: with(cqs, modifyCQ),        // MODIFY_CQ
		0x500: createQP,                   // CREATE_QP
		0x501: with(queues, destroyQueue), // DESTROY_QP
		0x50b: queryQP,                    // QUERY_QP
		0x703: with(queues, armLimit),     // ARM_RQ
		0x705: createXSRQ,                 // CREATE_XRC_SRQ
		0x706: with(queues, destroyQueue), // DESTROY_XRC_SRQ
		0x707: queryWQ(queueSRQ),          // QUERY_XRC_SRQ
		0x708: with(queues, armLimit),     // ARM_XRC_SRQ
		0x710: createDCT,                  // CREATE_DCT
		0x711: with(queues, destroyQueue), // DESTROY_DCT
		0x712: with(queues, drainDCT),     // DRAIN_DCT
		0x713: with(queues, queryDCT),     // QUERY_DCT
		0x714: nothing,                    // ARM_DCT_FOR_KEY_VIOLATION
		0x750: queryVPortState,            // QUERY_VPORT_STATE
		0x751: nothing,                    // MODIFY_VPORT_STATE
		0x754: queryVPort,                 // QUERY_NIC_VPORT_CONTEXT
		0x755: modifyVPort,                // MODIFY_NIC_VPORT_CONTEXT
		0x760: queryRoCEAddress,           // QUERY_ROCE_ADDRESS
		0x761: setRoCEAddress,             // SET_ROCE_ADDRESS
		0x765: queryPKey,                  // QUERY_HCA_VPORT_PKEY
		0x76f: nothing,                    // QUERY_VNIC_ENV
		0x770: queryVPortCounter,          // QUERY_VPORT_COUNTER
		0x771: allocCounter,               // ALLOC_Q_COUNTER
		0x772: deallocCounter,             // DEALLOC_Q_COUNTER
		0x773: queryCounter,               // QUERY_Q_COUNTER
		0x780: setRate,                    // SET_PP_RATE_LIMIT
		0x800: domains.create,             // ALLOC_PD
		0x801: deallocPD,                  // DEALLOC_PD
		0x802: createOther(opAllocUAR),    // ALLOC_UAR
		0x803: destroyOther(opAllocUAR),   // DEALLOC_UAR
		0x804: nothing,                    // CONFIG_INT_MODERATION
		0x805: accessReg,                  // ACCESS_REG
		0x806: with(queues, attachMcast),  // ATTACH_TO_MCG
		0x807: with(queues, detachMcast),  // DETACH_FROM_MCG
		0x80d: nothing,                    // NOP
		0x80e: createOther(0x80e),         // ALLOC_XRCD
		0x80f: destroyOther(0x80e),        // DEALLOC_XRCD
		0x816: createOther(0x816),         // ALLOC_TRANSPORT_DOMAIN
		0x817: destroyOther(0x816),        // DEALLOC_TRANSPORT_DOMAIN
		0x822: queryCongStatus,            // QUERY_CONG_STATUS
		0x823: modifyCongStatus,           // MODIFY_CONG_STATUS
		0x824: queryCong,                  // QUERY_CONG_PARAMS
		0x825: modifyCong,                 // MODIFY_CONG_PARAMS
		0x826: queryCongStatistics,        // QUERY_CONG_STATISTICS
		0x827: nothing,                    // ADD_VXLAN_UDP_DPORT
		0x828: nothing,                    // DELETE_VXLAN_UDP_DPORT
		0x829: nothing,                    // SET_L2_TABLE_ENTRY
		0x82a: nothing,                    // QUERY_L2_TABLE_ENTRY
		0x82b: nothing,                    // DELETE_L2_TABLE_ENTRY
		0x830: nothing,                    // SET_WOL_ROL
		0x831: nothing,                    // QUERY_WOL_ROL
		0x842: nothing,                    // QUERY_LAG: the port is in none
		0x900: tirs.create,                // CREATE_TIR
		0x901: with(tirs.of, modifyTIR),   // MODIFY_TIR
		0x902: tirs.destroy,               // DESTROY_TIR
		0x904: createWQ(queueSQ),          // CREATE_SQ
		0x905: modifyWQ(queueSQ),          // MODIFY_SQ
		0x906: with(queues, destroyQueue), // DESTROY_SQ
		0x907: queryWQ(queueSQ),           // QUERY_SQ
		0x908: createWQ(queueRQ),          // CREATE_RQ
		0x909: modifyWQ(queueRQ),          // MODIFY_RQ
		0x90a: with(queues, destroyQueue), // DESTROY_RQ
		0x90b: queryWQ(queueRQ),           // QUERY_RQ
		0x90c: createWQ(queueRMP),         // CREATE_RMP
		0x90d: with(queues, modifyRMP),    // MODIFY_RMP
		0x90e: with(queues, destroyQueue), // DESTROY_RMP
		0x90f: queryWQ(queueRMP),          // QUERY_RMP
		0x912: tises.create,               // CREATE_TIS
		0x913: nothing,                    // MODIFY_TIS
		0x914: tises.destroy,              // DESTROY_TIS
		0x916: rqts.create,                // CREATE_RQT
		0x917: modifyRQT,                  // MODIFY_RQT
		0x918: rqts.destroy,               // DESTROY_RQT
		0x92f: setRoot,                    // SET_FLOW_TABLE_ROOT
		0x930: createTable,                // CREATE_FLOW_TABLE
		0x931: destroyTable,               // DESTROY_FLOW_TABLE
		0x933: groups.create,              // CREATE_FLOW_GROUP
		0x934: destroyGroup,               // DESTROY_FLOW_GROUP
		0x936: setFlow,                    // SET_FLOW_TABLE_ENTRY
		0x938: deleteFlow,                 // DELETE_FLOW_TABLE_ENTRY
		0x939: allocFlowCounter,           // ALLOC_FLOW_COUNTER
		0x93a: deallocFlowCounter,         // DEALLOC_FLOW_COUNTER
		0x93b: queryFlowCounter,           // QUERY_FLOW_COUNTER
		0x93c: modifyTable,                // MODIFY_FLOW_TABLE
		0xa04: createUctx,                 // CREATE_UCTX
		0xa06: destroyUctx,                // DESTROY_UCTX
		0xa08: createUmem,                 // CREATE_UMEM
		0xa0a: destroyUmem,                // DESTROY_UMEM
	}
	for op := range transitions {
		commands[op] = modifyQP(op)
	}
}

// createOther creates objects of which only the number matters. That of a UAR is its page in the BAR, from 16 on.
func createOther(op uint16) handler {
	k, limitTo := kindOther, uint32(1<<16)
	if op == opAllocUAR {
		k, limitTo = kindUAR, memicBase/pageSize
	}
	return func(p *Port, _, out []byte, _ uint32) status {
		id := func(n uint32) uint64 { return uint64(op)<<32 | uint64(n) }
		n := p.number(k, limitTo, func(n uint32) bool { return p.Others[id(n)] })
		if n == 0 {
			return limit
		}
		p.Others[id(n)] = true
		put24(out, n)
		return ok
	}
}

func destroyOther(op uint16) handler {
	return func(p *Port, _, _ []byte, id uint32) status {
		delete(p.Others, uint64(op)<<32|uint64(id))
		return ok
	}
}

type object[T any] struct {
	below uint32 // upper bound of numbers
	of    func(*Port) map[uint32]T
	read  func(in []byte) T
}

func (o object[T]) create(p *Port, in, out []byte, _ uint32) status {
	all := o.of(p)
	n := p.number(kindOther, o.below, func(n uint32) bool { _, used := all[n]; return used })
	if n == 0 {
		return limit
	}
	all[n] = o.read(in)
	put24(out, n)
	return ok
}

func (o object[T]) destroy(p *Port, _, _ []byte, id uint32) status {
	delete(o.of(p), id)
	return ok
}

// A protection domain is only a number: translate refuses to use a key with a queue of another.
var (
	domains = object[bool]{1 << 24, func(p *Port) map[uint32]bool { return p.PDs }, func([]byte) bool { return true }}
	tirs    = object[*tir]{1 << 12, func(p *Port) map[uint32]*tir { return p.TIRs },
		func(in []byte) *tir {
			t := readTIR(in[0x20:])
			t.UID = uidOf(in)
			return t
		}}
	tises = object[uint32]{1 << 12, func(p *Port) map[uint32]uint32 { return p.TISs },
		func(in []byte) uint32 { return tiscDomain.get32(in[0x20:]) }}
	rqts = object[[]uint32]{1 << 12, func(p *Port) map[uint32][]uint32 { return p.RQTs },
		func(in []byte) []uint32 { return readRQT(in[0x20:]) }}
	groups = object[*flowGroup]{1 << 20, func(p *Port) map[uint32]*flowGroup { return p.Groups }, readGroup}
)

// deallocPD refuses as long as objects of programs use the domain, because its number may then become another's.
func deallocPD(p *Port, in, out []byte, id uint32) status {
	if _, owned := p.Owners[classPD.id(id)]; owned && p.domainUsers[id] > 0 {
		return busy
	}
	return domains.destroy(p, in, out, id)
}

func with[T any](of func(*Port) map[uint32]*T, run func(p *Port, t *T, in, out []byte) status) handler {
	return func(p *Port, in, out []byte, id uint32) status {
		if t := of(p)[id]; t != nil {
			return run(p, t, in, out)
		}
		return badResource
	}
}

func cqs(p *Port) map[uint32]*cq       { return p.CQs }
func keys(p *Port) map[uint32]*mkey    { return p.Keys }
func queues(p *Port) map[uint32]*queue { return p.Queues }

// queryAdapter returns the PSID (vsd_contd_psid), the board id of ethtool -i and ibv_devinfo.
func queryAdapter(p *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0x28:], 0x2c9) // Mellanox
	copy(out[0x100:0x110], p.model.psid)
	return ok
}

// teardown keeps the pages and the command queue. After TEARDOWN_HCA the driver takes back its pages of boot
// (mlx5_reclaim_startup_pages), which needs that queue.
func teardown(p *Port, _, _ []byte, _ uint32) status {
	high, q, mode, pages := p.CmdQHigh, p.CmdQ, p.NICMode, p.Pages
	p.dropState()
	p.CmdQHigh, p.CmdQ, p.NICMode, p.Pages = high, q, mode, pages
	return ok
}

// The emulation needs no pages, but the requests exercise the driver.
const (
	bootPages = 64
	initPages = 128
	maxBoot   = 1 << 12
)

// queryPages returns the wanted pages, for boot with op_mod 1 and for initialization with 2, and 0 at run time.
func queryPages(_ *Port, in, out []byte, _ uint32) status {
	n := map[uint16]uint32{1: bootPages, 2: initPages}[opMod(in)]
	be.PutUint32(out[0xc:], n)
	return ok
}

// managePages keeps at most maxBoot addresses to give them back, and never touches their memory. With op_mod 0 a driver
// reports that it has no pages.
func managePages(p *Port, in, out []byte, _ uint32) status {
	n := int(be.Uint32(in[0xc:]))
	switch opMod(in) {
	case 1: // given
		n = max(0, min(n, (len(in)-0x10)/8))
		if len(p.Pages)+n > maxBoot {
			return limit
		}
		for i := range n {
			p.Pages = append(p.Pages, be.Uint64(in[0x10+8*i:]))
		}
	case 2: // taken back
		n = max(0, min(n, len(p.Pages), (p.outLen-0x10)/8))
		be.PutUint32(out[8:], uint32(n))
		for i := range n {
			last := len(p.Pages) - 1
			be.PutUint64(out[0x10+8*i:], p.Pages[last])
			p.Pages = p.Pages[:last]
		}
	}
	return ok
}

// queryISSI offers revisions 0 and 1. mlx5_core uses 1 and falls back to 0.
func queryISSI(_ *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0x6c:], 1<<0|1<<1) // versions 0 and 1
	return ok
}

// special returns resd_lkey, the end of receive lists; see nextRecv.
func special(p *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0xc:], reservedKey)
	be.PutUint32(out[0x10:], nullKey)
	if p.newer() {
		be.PutUint32(out[8:], fillKey)
	}
	return ok
}

// queryPKey returns default keys, because RoCE has no other.
func queryPKey(p *Port, _, out []byte, _ uint32) status {
	for i := 0x10; i+4 <= min(p.outLen, len(out)); i += 4 {
		be.PutUint32(out[i:], 0xffff)
	}
	return ok
}

const (
	// An entry, struct mlx5_cmd_layout, has 64 bytes. cmd.c of mlx5_core refuses more than 32 of them, because the
	// doorbell has one bit for each, and a queue larger than 4 KiB. It keeps the last entry for page requests.
	logCmds      = 5
	logCmdStride = 6
	mailData     = 512
	// struct mlx5_cmd_prot_block: 512 bytes of data, reserved bytes, the address of the next block, its number, a token
	// and signatures. The last three are ignored, as cmdif_checksum is not offered.
	mailBlock  = 576
	mailNext   = 560 // address of the next block
	inlineData = 16
	// maxCommand holds the pages of a memory region of 2 GiB.
	maxCommand = 4 << 20
	// minCommand is the size of opcode, uid and op_mod, or of status and syndrome.
	minCommand = 8
	// minBuffer covers the longest structure without a list, so that its fields need no check.
	minBuffer = 0x1200
)

// status is MLX5_CMD_STAT_* in linux/mlx5/device.h. The driver maps it to EINVAL for badOp, badParam, badResource,
// badQPState and badCQSize, EBUSY for busy, EIO for badInLength, ENOMEM for limit.
type status byte

const (
	ok            status = 0
	internalError status = 0x01
	badOp         status = 0x02
	badParam      status = 0x03
	badResource   status = 0x05
	busy          status = 0x06
	limit         status = 0x08
	badQPState    status = 0x10
	badCQSize     status = 0x40 // more completions wait than the new size
	badInLength   status = 0x50
)

// command copies an entry and its command once, so that a guest cannot change a value after its check. A failed command
// answers zeros except for the status, so that no partial answer leaks.
func (p *Port) command(i uint64) {
	var e [64]byte
	at := p.CmdQ + i<<logCmdStride
	if p.CmdQ == 0 || !p.mem.Read(at, e[:]) || e[63]&1 == 0 {
		return // the entry is not the adapter's
	}
	inLen, outLen := be.Uint32(e[4:]), be.Uint32(e[56:])
	st := badInLength
	p.out = grown(p.out, minBuffer)
	if inLen >= minCommand && inLen <= maxCommand && outLen >= minCommand && outLen <= maxCommand &&
		p.gather(&e, int(inLen)) {
		p.out = grown(p.out, max(int(outLen), minBuffer))
		st = p.execute(int(outLen))
	}
	if st != ok {
		p.out = grown(p.out, minBuffer)
		p.out[0] = byte(st)
		outLen = 16
	}
	if !p.scatter(be.Uint64(e[48:]), int(outLen)) {
		p.logf("command %#x: its answer cannot be written", be.Uint16(p.in))
		p.out = grown(p.out, minBuffer)
		p.out[0] = byte(internalError)
	}
	// The bit after the answer returns the entry to the driver.
	if !p.mem.Write(at+32, p.out[:16]) {
		return // the driver would take its contents for the answer
	}
	p.mem.Store32(at+60, [4]byte{e[60], e[61], e[62], 0})
	// The driver polls the bit until it has armed its first EQ, and then waits for events.
	if q := p.EQs[p.CmdEQ]; p.Events && q != nil {
		var d [28]byte
		be.PutUint32(d[:], 1<<i)
		p.event(q, eventCommand, 0, d)
	}
}

// grown returns n zeros, at most maxCommand. Handlers rely on zeros after the end of a short command.
func grown(b []byte, n int) []byte {
	b = slices.Grow(b[:0], n)[:n]
	clear(b)
	return b
}

func (p *Port) gather(e *[64]byte, n int) bool {
	p.in = grown(p.in, max(n, minBuffer))
	copy(p.in, e[16:32])
	return p.mailboxes(be.Uint64(e[8:]), n, func(at uint64, o, k int) bool { return p.mem.Read(at, p.in[o:o+k]) })
}

func (p *Port) scatter(at uint64, n int) bool {
	return p.mailboxes(at, n, func(at uint64, o, k int) bool { return p.mem.Write(at, p.out[o:o+k]) })
}

// mailboxes calls f for each block of a command of n bytes after the first 16, which are in the entry. n also bounds a
// circular list.
func (p *Port) mailboxes(at uint64, n int, f func(at uint64, o, n int) bool) bool {
	for o := inlineData; o < n; o += mailData {
		var next [8]byte
		if !p.mem.Has(at, mailBlock) || !f(at, o, min(mailData, n-o)) || !p.mem.Read(at+mailNext, next[:]) {
			return false
		}
		at = be.Uint64(next[:])
	}
	return true
}

// A handler has the port's lock. in and the zeroed out have at least minBuffer bytes; a handler that reads further
// checks the length of in. id is the 24-bit number at byte 8, which is the object in most commands.
type handler func(p *Port, in, out []byte, id uint32) status

func (p *Port) execute(outLen int) status {
	op, id := be.Uint16(p.in), be.Uint32(p.in[8:])&0xffffff
	run, known := commands[op]
	if !known {
		p.logf("command %#x is unknown", op)
		return badOp
	}
	if st := p.permitted(op, p.in); st != ok {
		return st
	}
	p.outLen = outLen
	st := run(p, p.in, p.out, id)
	if st == ok {
		p.note(op, p.in, p.out)
	}
	return st
}

func opMod(in []byte) uint16 { return be.Uint16(in[6:]) }

// put24 writes the number of a new object, in the same place of all answers.
func put24(out []byte, n uint32) { be.PutUint32(out[8:], n) }

func nothing(*Port, []byte, []byte, uint32) status { return ok }
