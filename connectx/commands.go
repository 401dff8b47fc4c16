package connectx

// Opcodes (MLX5_CMD_OP_* of linux/mlx5/mlx5_ifc.h).
const (
	opQueryCaps     = 0x100
	opQueryAdapter  = 0x101
	opInitHCA       = 0x102
	opTeardownHCA   = 0x103
	opEnableHCA     = 0x104
	opDisableHCA    = 0x105
	opQueryPages    = 0x107
	opManagePages   = 0x108
	opSetCaps       = 0x109
	opQueryISSI     = 0x10a
	opSetISSI       = 0x10b
	opDriverVersion = 0x10d
	opCreateKey     = 0x200
	opQueryKey      = 0x201
	opDestroyKey    = 0x202
	opSpecial       = 0x203
	opCreateEQ      = 0x301
	opDestroyEQ     = 0x302
	opQueryEQ       = 0x303
	opCreateCQ      = 0x400
	opDestroyCQ     = 0x401
	opQueryCQ       = 0x402
	opModifyCQ      = 0x403
	opCreateQP      = 0x500
	opDestroyQP     = 0x501
	opRst2Init      = 0x502
	opInit2RTR      = 0x503
	opRTR2RTS       = 0x504
	opRTS2RTS       = 0x505
	opSQErr2RTS     = 0x506
	op2Err          = 0x507
	op2Rst          = 0x50a
	opQueryQP       = 0x50b
	opSQD2RTS       = 0x50c
	opInit2Init     = 0x50e
	opArmRQ         = 0x703
	opCreateXSRQ    = 0x705
	opDestroyXSRQ   = 0x706
	opQueryXSRQ     = 0x707
	opArmXSRQ       = 0x708
	opQueryVPort    = 0x750 // its state
	opModifyVPort   = 0x751
	opQueryContext  = 0x754
	opModifyContext = 0x755
	opQueryAddress  = 0x760
	opSetAddress    = 0x761
	opQueryPKey     = 0x765
	opQueryEnv      = 0x76f
	opVPortCounter  = 0x770
	opAllocCounter  = 0x771
	opFreeCounter   = 0x772
	opQueryCounter  = 0x773
	opRateLimit     = 0x780
	opAllocPD       = 0x800
	opFreePD        = 0x801
	opAllocUAR      = 0x802
	opFreeUAR       = 0x803
	opModeration    = 0x804
	opAccessReg     = 0x805
	opAttachMcast   = 0x806
	opDetachMcast   = 0x807
	opNop           = 0x80d
	opAllocXRCD     = 0x80e
	opFreeXRCD      = 0x80f
	opAllocDomain   = 0x816
	opFreeDomain    = 0x817
	opQueryCongSt   = 0x822
	opModifyCongSt  = 0x823
	opQueryCong     = 0x824
	opModifyCong    = 0x825
	opCongStats     = 0x826
	opAddVXLAN      = 0x827
	opDelVXLAN      = 0x828
	opSetL2         = 0x829
	opQueryL2       = 0x82a
	opDeleteL2      = 0x82b
	opSetWoL        = 0x830
	opQueryWoL      = 0x831
	opCreateTIR     = 0x900
	opModifyTIR     = 0x901
	opDestroyTIR    = 0x902
	opCreateSQ      = 0x904
	opModifySQ      = 0x905
	opDestroySQ     = 0x906
	opQuerySQ       = 0x907
	opCreateRQ      = 0x908
	opModifyRQ      = 0x909
	opDestroyRQ     = 0x90a
	opQueryRQ       = 0x90b
	opCreateRMP     = 0x90c
	opModifyRMP     = 0x90d
	opDestroyRMP    = 0x90e
	opQueryRMP      = 0x90f
	opCreateTIS     = 0x912
	opModifyTIS     = 0x913
	opDestroyTIS    = 0x914
	opCreateRQT     = 0x916
	opModifyRQT     = 0x917
	opDestroyRQT    = 0x918
	opSetRoot       = 0x92f
	opCreateTable   = 0x930
	opDestroyTable  = 0x931
	opCreateGroup   = 0x933
	opDestroyGroup  = 0x934
	opSetFlow       = 0x936
	opDeleteFlow    = 0x938
	opAllocFlowCnt  = 0x939
	opFreeFlowCnt   = 0x93a
	opQueryFlowCnt  = 0x93b
	opModifyTable   = 0x93c
)

// commands are the commands that the adapter knows. It answers others as an older firmware would: bad opcode.
//
// An unknown command must not succeed: the driver would take zeros for the number of a new object.
var commands map[uint16]struct{ run handler }

func init() {
	table := map[uint16]handler{
		opQueryCaps: queryCaps, opSetCaps: setCaps, opQueryAdapter: queryAdapter, opInitHCA: nothing,
		opTeardownHCA: teardown, opEnableHCA: nothing, opDisableHCA: nothing, opQueryPages: queryPages,
		opManagePages: managePages, opQueryISSI: queryISSI, opSetISSI: nothing, opDriverVersion: nothing,
		opCreateKey: createKey, opQueryKey: queryKey, opDestroyKey: destroyKey, opSpecial: special,
		opCreateEQ: createEQ, opDestroyEQ: destroyEQ, opQueryEQ: nothing, opCreateCQ: createCQ, opDestroyCQ: destroyCQ,
		opQueryCQ: queryCQ, opModifyCQ: modifyCQ, opCreateQP: createQP, opDestroyQP: destroyQueue, opQueryQP: queryQP,
		opArmRQ: armLimit(14), opCreateXSRQ: createXSRQ, opDestroyXSRQ: destroyQueue, opQueryXSRQ: queryWQ,
		opArmXSRQ: armLimit(14), opQueryVPort: queryVPortState, opModifyVPort: nothing, opQueryContext: queryVPort,
		opModifyContext: modifyVPort, opQueryAddress: queryRoCEAddress, opSetAddress: setRoCEAddress,
		opQueryPKey: queryPKey,
		opQueryEnv:  nothing, opVPortCounter: queryVPortCounter, opAllocCounter: allocCounter,
		opFreeCounter: deallocCounter, opQueryCounter: queryCounter, opRateLimit: nothing, opAllocPD: allocPD,
		opFreePD: freePD, opModeration: nothing, opAccessReg: accessReg,
		opAttachMcast: attachMcast, opDetachMcast: detachMcast, opNop: nothing, opQueryCongSt: queryCongStatus,
		opModifyCongSt: modifyCongStatus, opQueryCong: queryCong, opModifyCong: modifyCong,
		opCongStats: queryCongStatistics,
		opAddVXLAN:  nothing, opDelVXLAN: nothing, opSetL2: nothing, opQueryL2: nothing, opDeleteL2: nothing,
		opSetWoL:   nothing,
		opQueryWoL: nothing, opCreateTIR: createTIR, opModifyTIR: modifyTIR, opDestroyTIR: destroyTIR,
		opCreateSQ: createWQ(queueSQ), opModifySQ: modifyWQ(queueSQ), opDestroySQ: destroyQueue, opQuerySQ: queryWQ,
		opCreateRQ: createWQ(queueRQ), opModifyRQ: modifyWQ(queueRQ), opDestroyRQ: destroyQueue, opQueryRQ: queryWQ,
		opCreateRMP: createWQ(queueRMP), opModifyRMP: nothing, opDestroyRMP: destroyQueue, opQueryRMP: queryWQ,
		opModifyTIS: nothing, opCreateRQT: createRQT, opModifyRQT: modifyRQT,
		opDestroyRQT: destroyRQT, opSetRoot: setRoot, opDestroyTable: destroyTable, opCreateGroup: createGroup,
		opDestroyGroup: destroyGroup, opSetFlow: setFlow, opDeleteFlow: deleteFlow, opQueryFlowCnt: nothing,
		opCreateTable: createTable, opModifyTable: modifyTable,
	}
	for op := range transitions {
		table[op] = modifyQP(op)
	}
	// Objects of which only the number counts, as the driver names them elsewhere: domains of XRC and of transport,
	// TISs, flow counters and UARs.
	for create, destroy := range map[uint16]uint16{opAllocXRCD: opFreeXRCD, opAllocDomain: opFreeDomain,
		opCreateTIS: opDestroyTIS, opAllocFlowCnt: opFreeFlowCnt, opAllocUAR: opFreeUAR} {
		table[create], table[destroy] = createOther(create), destroyOther(create)
	}
	commands = map[uint16]struct{ run handler }{}
	for op, h := range table {
		commands[op] = struct{ run handler }{h}
	}
}

// createOther makes an object of which only the number counts. The number of a UAR is that of its page in the BAR, from
// 16 on, so there are no more than the BAR has.
func createOther(op uint16) handler {
	k, limitTo := kindOther, uint32(1<<16)
	if op == opAllocUAR {
		k, limitTo = kindUAR, barSize/pageSize
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

// allocPD makes a protection domain. It is no more than a number, which keys and queues carry: translate refuses a key
// to a queue of another domain.
func allocPD(p *Port, _, out []byte, _ uint32) status {
	n := p.number(kindOther, 1<<16, func(n uint32) bool { return p.PDs[n] })
	if n == 0 {
		return limit
	}
	p.PDs[n] = true
	put24(out, n)
	return ok
}

func freePD(p *Port, _, _ []byte, id uint32) status {
	delete(p.PDs, id)
	return ok
}

// queryAdapter gives the vendor and the PSID (vsd_contd_psid), which ethtool -i and ibv_devinfo print as board id.
func queryAdapter(p *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0x28:], 0x2c9) // Mellanox
	copy(out[0x100:0x110], p.model.psid)
	return ok
}

// teardown ends what the driver set up, apart from the command queue. The pages stay: the driver takes those from boot
// back after TEARDOWN_HCA (mlx5_reclaim_startup_pages), and waits for them. The command queue stays, or that could not
// be asked for.
func teardown(p *Port, _, _ []byte, _ uint32) status {
	high, q, mode, pages := p.CmdQHigh, p.CmdQ, p.NICMode, p.Pages
	p.dropState()
	p.CmdQHigh, p.CmdQ, p.NICMode, p.Pages = high, q, mode, pages
	return ok
}

// Pages that the firmware asks the driver for. It needs none, but a driver that is asked for none
// is not what is tested.
const (
	bootPages = 64
	initPages = 128
	maxBoot   = 1 << 12
)

// queryPages says how many pages the firmware wants: op_mod 1 is at boot, 2 at initialization. For others, such as the
// regular asking at run time, it is 0.
func queryPages(_ *Port, in, out []byte, _ uint32) status {
	n := map[uint16]uint32{1: bootPages, 2: initPages}[opMod(in)]
	be.PutUint32(out[0xc:], n)
	return ok
}

// managePages keeps the addresses of given pages, to give them back. It never touches their memory. maxBoot bounds what
// a guest can leave here. op_mod 0, with which a driver says that it has no pages, needs no answer.
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

// queryISSI says which revisions of the command interface there are. mlx5_core takes 1 and falls back to 0.
func queryISSI(_ *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0x6c:], 1<<0|1<<1) // versions 0 and 1 of the interface
	return ok
}

// special answers QUERY_SPECIAL_CONTEXTS. resd_lkey ends the receive lists of linked queues: see nextRecv.
func special(_ *Port, _, out []byte, _ uint32) status {
	be.PutUint32(out[0xc:], reservedKey)
	return ok
}

// queryPKey fills all asked entries with the default partition key: RoCE has no other.
func queryPKey(p *Port, _, out []byte, _ uint32) status {
	for i := 0x10; i+4 <= min(p.outLen, len(out)); i += 4 {
		be.PutUint32(out[i:], 0xffff)
	}
	return ok
}
