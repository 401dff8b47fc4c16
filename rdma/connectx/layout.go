package connectx

// bits is a field of the firmware interface: the first bit, counted from the most significant bit of the first byte,
// shifted by 8, plus the width in bits. Names and places are from Linux 6.1, include/linux/mlx5/mlx5_ifc.h.
//
// Structures are big-endian. A field of up to 32 bits lies within a word of 32 bits; one of 64 starts at a byte. The
// caller ensures that the bytes exist (see minBuffer).
type bits uint32

func (f bits) get(b []byte) uint64 {
	at, n := int(f>>8), int(f&0xff)
	var v uint64
	for i := at / 8; i <= (at+n-1)/8; i++ {
		v = v<<8 | uint64(b[i]) // starts at a byte
	}
	return v >> (7 - (at+n-1)%8) & (1<<n - 1)
}

func (f bits) get32(b []byte) uint32 { return uint32(f.get(b)) }
func (f bits) is(b []byte) bool      { return f.get(b) != 0 }

// put leaves other bits unchanged.
func (f bits) put(b []byte, v uint64) {
	at, n := int(f>>8), int(f&0xff)
	last := (at + n - 1) / 8
	shift := 7 - (at+n-1)%8
	for i := last; n > 0; i-- {
		w := min(n, 8-shift)
		mask := byte(1<<w-1) << shift
		b[i] = b[i]&^mask | byte(v)<<shift&mask
		v >>= w
		n -= w
		shift = 0
	}
}

func putAll(b []byte, m map[bits]uint64) {
	for f, v := range m {
		f.put(b, v)
	}
}

// struct qpc: 0xe8 bytes at 0x18 of CREATE_QP and of the commands that change its state. struct ads, the primary path,
// is at its byte 0x18. Logs are powers of two: the number of WQEs, and their size, in units of 16 bytes for receives
// and in blocks of 64 bytes for sends.
const (
	qpcState            bits = 0x0<<8 | 4
	qpcSt               bits = 0x8<<8 | 8
	qpcBlockLbMc        bits = 0x21<<8 | 1
	qpcPd               bits = 0x28<<8 | 24
	qpcMtu              bits = 0x40<<8 | 3
	qpcLogRqSize        bits = 0x49<<8 | 4
	qpcLogRqStride      bits = 0x4d<<8 | 3
	qpcNoSq             bits = 0x50<<8 | 1
	qpcFre              bits = 0x394<<8 | 1
	qpcLogSqSize        bits = 0x51<<8 | 4
	qpcCounterSetId     bits = 0x60<<8 | 8
	qpcUserIndex        bits = 0x88<<8 | 24
	qpcLogPageSize      bits = 0xa3<<8 | 5
	qpcRemoteQpn        bits = 0xa8<<8 | 24
	qpcLogSraMax        bits = 0x388<<8 | 3
	qpcRetryCount       bits = 0x38d<<8 | 3
	qpcRnrRetry         bits = 0x390<<8 | 3
	qpcNextSendPsn      bits = 0x3c8<<8 | 24
	qpcCqnSnd           bits = 0x3e8<<8 | 24
	qpcDethSqpn         bits = 0x408<<8 | 24
	qpcLogRraMax        bits = 0x488<<8 | 3
	qpcRre              bits = 0x490<<8 | 1
	qpcRwe              bits = 0x491<<8 | 1
	qpcRae              bits = 0x492<<8 | 1
	qpcPageOffset       bits = 0x494<<8 | 6
	qpcMinRnrNak        bits = 0x4a3<<8 | 5
	qpcXrcd             bits = 0x4c8<<8 | 24
	qpcNextRcvPsn       bits = 0x4a8<<8 | 24
	qpcCqnRcv           bits = 0x4e8<<8 | 24
	qpcDbrAddr          bits = 0x500<<8 | 64
	qpcQKey             bits = 0x540<<8 | 32
	qpcRqType           bits = 0x565<<8 | 3
	qpcSrqnRmpnXrqn     bits = 0x568<<8 | 24
	qpcHwSqWqebbCounter bits = 0x5a0<<8 | 16
	qpcHwRqCounter      bits = 0x5c0<<8 | 32
	qpcDbrUmemValid     bits = 0x683<<8 | 1
	qpcDbrUmemId        bits = 0x720<<8 | 32
)

// struct ads. The source is an index into the GIDs, the destination a MAC (rmac) and a GID at 0x10. ack_timeout is an
// exponent of two, in units of 4.096 us.
const (
	adsAckTimeout   bits = 0x40<<8 | 5
	adsSrcAddrIndex bits = 0x48<<8 | 8
	adsHopLimit     bits = 0x58<<8 | 8
	adsTclass       bits = 0x64<<8 | 8
	adsFlowLabel    bits = 0x6c<<8 | 20
	adsDscp         bits = 0x10a<<8 | 6
	adsUdpSport     bits = 0x110<<8 | 16
	adsEthPrio      bits = 0x121<<8 | 3
	adsRmac4732     bits = 0x130<<8 | 16
	adsRmac310      bits = 0x140<<8 | 32
)

// struct wq, in the contexts of RQs, SQs and RMPs at byte 0x30, with the page addresses at 0xc0. wq_type 0 is a linked
// list, 1 a ring.
const (
	wqWqType      bits = 0x0<<8 | 4
	wqPageOffset  bits = 0x2b<<8 | 5
	wqLwm         bits = 0x30<<8 | 16
	wqPd          bits = 0x48<<8 | 24
	wqDbrAddr     bits = 0x80<<8 | 64
	wqLogWqStride bits = 0x10c<<8 | 4
	wqLogWqPgSz   bits = 0x113<<8 | 5
	wqLogWqSz     bits = 0x11b<<8 | 5
	wqDbrValid    bits = 0x120<<8 | 1
	wqUmemValid   bits = 0x121<<8 | 1
	wqDbrUmemId   bits = 0x140<<8 | 32
	wqUmemId      bits = 0x160<<8 | 32
	wqUmemOffset  bits = 0x180<<8 | 64
)

// struct sqc
const (
	sqcState     bits = 0x8<<8 | 4
	sqcUserIndex bits = 0x28<<8 | 24
	sqcCqn       bits = 0x48<<8 | 24
	sqcRate      bits = 0xf0<<8 | 16
	sqcTis       bits = 0x168<<8 | 24
)

// struct tisc, at 0x20 of CREATE_TIS
const (
	tiscDomain bits = 0x128<<8 | 24
)

// struct rqc
const (
	rqcVsd          bits = 0x3<<8 | 1
	rqcState        bits = 0x8<<8 | 4
	rqcUserIndex    bits = 0x28<<8 | 24
	rqcCqn          bits = 0x48<<8 | 24
	rqcCounterSetId bits = 0x60<<8 | 8
)

// struct rmpc. Without basic_cyclic_rcv_wqe the WQEs of a ring have a segment before their list.
const (
	rmpcBasic bits = 0x20<<8 | 1
)

// struct xrc_srqc. Its doorbell record's address is in two parts, the lower one without its low two bits.
const (
	xsrqLogXrcSrqSize bits = 0x4<<8 | 4
	xsrqLogRqStride   bits = 0x25<<8 | 3
	xsrqXrcd          bits = 0x28<<8 | 24
	xsrqPageOffset    bits = 0x40<<8 | 6
	xsrqDbrUmemValid  bits = 0x47<<8 | 1
	xsrqCqn           bits = 0x48<<8 | 24
	xsrqLogPageSize   bits = 0x82<<8 | 6
	xsrqUserIndex     bits = 0x88<<8 | 24
	xsrqPd            bits = 0xc8<<8 | 24
	xsrqLwm           bits = 0xe0<<8 | 16
	xsrqDbRecordAddrH bits = 0x140<<8 | 32
	xsrqDbRecordAddrL bits = 0x160<<8 | 30
)

// struct cqc, at 0x10 of CREATE_CQ; page addresses follow at 0x110. cqe_sz 0 means 64 bytes, 1 means 128, 2 means 64
// padded to 128; oi lets the queue overrun.
const (
	cqcStatus            bits = 0x0<<8 | 4
	cqcDbrUmemValid      bits = 0x6<<8 | 1
	cqcCqeSz             bits = 0x8<<8 | 3
	cqcOi                bits = 0xe<<8 | 1
	cqcDbrUmemId         bits = 0x20<<8 | 32
	cqcPageOffset        bits = 0x54<<8 | 6
	cqcLogCqSize         bits = 0x63<<8 | 5
	cqcCqPeriod          bits = 0x84<<8 | 12
	cqcCqMaxCount        bits = 0x90<<8 | 16
	cqcCEqnOrApuElement  bits = 0xa0<<8 | 32
	cqcLogPageSize       bits = 0xc3<<8 | 5
	cqcLastNotifiedIndex bits = 0x108<<8 | 24
	cqcProducerCounter   bits = 0x168<<8 | 24
	cqcDbrAddr           bits = 0x1c0<<8 | 64
)

// struct eqc, at 0x10 of CREATE_EQ; its mask is at 0x58, the page addresses at 0x110. intr is the MSI-X vector.
const (
	eqcPageOffset  bits = 0x54<<8 | 6
	eqcLogEqSize   bits = 0x63<<8 | 5
	eqcIntr        bits = 0xb4<<8 | 12
	eqcLogPageSize bits = 0xc3<<8 | 5
)

// struct mkc, at 0x10 of CREATE_MKEY; page addresses follow at 0x110. length64 covers all addresses; a UMR request must
// fill in a free key first. pg_access, of the command itself, means that the addresses have flags.
const (
	createKeyPgAccess          bits = 0x60<<8 | 1
	createKeyUmemValid         bits = 0x61<<8 | 1
	createKeyActualSize        bits = 0x300<<8 | 32
	createKeyUmemId            bits = 0x320<<8 | 32
	createKeyUmemOffset        bits = 0x340<<8 | 64
	mkcFree                    bits = 0x1<<8 | 1
	mkcAccessMode42            bits = 0x3<<8 | 3
	mkcUmrEn                   bits = 0x10<<8 | 1
	mkcA                       bits = 0x11<<8 | 1
	mkcRw                      bits = 0x12<<8 | 1
	mkcRr                      bits = 0x13<<8 | 1
	mkcLw                      bits = 0x14<<8 | 1
	mkcLr                      bits = 0x15<<8 | 1
	mkcAccessMode10            bits = 0x16<<8 | 2
	mkcQpn                     bits = 0x20<<8 | 24
	mkcMkey70                  bits = 0x38<<8 | 8
	mkcLength64                bits = 0x60<<8 | 1
	mkcEnRinval                bits = 0x67<<8 | 1
	mkcPd                      bits = 0x68<<8 | 24
	mkcStartAddr               bits = 0x80<<8 | 64
	mkcLen                     bits = 0xc0<<8 | 64
	mkcTranslationsOctwordSize bits = 0x1a0<<8 | 32
	mkcLogPageSize             bits = 0x1db<<8 | 5
)

// Umems in CREATE_QP, and in CREATE_CQ, MODIFY_CQ and CREATE_XRC_SRQ, in place of pages.
const (
	createQPUmemOffset bits = 0x800<<8 | 64
	createQPUmemId     bits = 0x840<<8 | 32
	createQPUmemValid  bits = 0x860<<8 | 1
	createCQUmemOffset bits = 0x280<<8 | 64
	createCQUmemId     bits = 0x2c0<<8 | 32
	createCQUmemValid  bits = 0x2e0<<8 | 1
)

// struct tirc, at 0x20 of CREATE_TIR. The hash's key is at 0x28, its fields at 0x50.
const (
	tircDispType      bits = 0x20<<8 | 4
	tircInlineRqn     bits = 0xe8<<8 | 24
	tircIndirectTable bits = 0x108<<8 | 24
	tircRxHashFn      bits = 0x120<<8 | 4
	tircSelfLb        bits = 0x126<<8 | 2
	tircDomain        bits = 0x128<<8 | 24
)

// struct rqtc
const (
	rqtcRqtActualSize bits = 0xd0<<8 | 16
)

// struct fte_match_set_lyr_2_4: see headers for the places of addresses and ports.
const (
	matchIpVersion bits = 0x93<<8 | 4
)

// struct nic_vport_context. The list of addresses follows at 0x100.
const (
	vportMinWqeInlineMode bits = 0x5<<8 | 3
	vportNoMcLb           bits = 0x1d<<8 | 1
	vportNoUcLb           bits = 0x1e<<8 | 1
	vportRoceEn           bits = 0x1f<<8 | 1
	vportMtu              bits = 0x130<<8 | 16
	vportSystemImageGuid  bits = 0x140<<8 | 64
	vportPortGuid         bits = 0x180<<8 | 64
	vportNodeGuid         bits = 0x1c0<<8 | 64
	vportQkeyViolations   bits = 0x340<<8 | 16
	vportPromiscUc        bits = 0x780<<8 | 1
	vportPromiscMc        bits = 0x781<<8 | 1
	vportPromiscAll       bits = 0x782<<8 | 1
	vportAllowedListType  bits = 0x785<<8 | 3
	vportAllowedListSize  bits = 0x794<<8 | 12
)

// struct roce_addr_layout, a row of the GIDs in SET_ROCE_ADDRESS. The GID is in the first 16 bytes.
const (
	gidVlanValid     bits = 0x83<<8 | 1
	gidVlanId        bits = 0x84<<8 | 12
	gidSourceMac4732 bits = 0x90<<8 | 16
	gidSourceMac310  bits = 0xa0<<8 | 32
	gidRoceL3Type    bits = 0xd4<<8 | 4
	gidRoceVersion   bits = 0xd8<<8 | 8
)

// struct cmd_hca_cap; caps.go has values and reasons.
const (
	capLogMaxSrqSz                  bits = 0x80<<8 | 8
	capLogMaxQpSz                   bits = 0x88<<8 | 8
	capLogMaxQp                     bits = 0x9b<<8 | 5
	capLogMaxSrq                    bits = 0xab<<8 | 5
	capLogMaxCqSz                   bits = 0xc8<<8 | 8
	capLogMaxCq                     bits = 0xdb<<8 | 5
	capLogMaxEqSz                   bits = 0xe0<<8 | 8
	capLogMaxMkey                   bits = 0xea<<8 | 6
	capLogMaxEq                     bits = 0xfc<<8 | 4
	capDumpFillMkey                 bits = 0xf8<<8 | 1
	capFixedBufferSize              bits = 0x108<<8 | 1
	capLogMaxMrwSz                  bits = 0x109<<8 | 7
	capUmrExtendedTranslationOffset bits = 0x118<<8 | 1
	capNullMkey                     bits = 0x119<<8 | 1
	capLogMaxKlmListSize            bits = 0x11a<<8 | 6
	capLogMaxRaReqQp                bits = 0x14a<<8 | 6
	capRoceAccl                     bits = 0x149<<8 | 1
	capRts2rtsQpUdpSport            bits = 0x151<<8 | 1
	capLogMaxRaResQp                bits = 0x15a<<8 | 6
	capCcQueryAllowed               bits = 0x161<<8 | 1
	capCcModifyAllowed              bits = 0x162<<8 | 1
	capQcamReg                      bits = 0x16f<<8 | 1
	capGidTableSize                 bits = 0x170<<8 | 16
	capOutOfSeqCnt                  bits = 0x180<<8 | 1
	capPortModuleEvent              bits = 0x1b0<<8 | 1
	capVportCounters                bits = 0x181<<8 | 1
	capRetransmissionQCounters      bits = 0x182<<8 | 1
	capMaxQpCnt                     bits = 0x186<<8 | 10
	capVportGroupManager            bits = 0x1a0<<8 | 1
	capEts                          bits = 0x1a5<<8 | 1
	capNicFlowTable                 bits = 0x1a6<<8 | 1
	capDeviceMemory                 bits = 0x1a8<<8 | 1
	capLocalCaAckDelay              bits = 0x1ab<<8 | 5
	capEnhancedErrorQCounters       bits = 0x1b1<<8 | 1
	capPortType                     bits = 0x1b6<<8 | 2
	capNumPorts                     bits = 0x1b8<<8 | 8
	capLogMaxMsg                    bits = 0x1c3<<8 | 5
	capCqeVersion                   bits = 0x1fc<<8 | 4
	capCompactAddressVector         bits = 0x200<<8 | 1
	capUmrFence                     bits = 0x20a<<8 | 2
	capDct                          bits = 0x21a<<8 | 1
	capQos                          bits = 0x21b<<8 | 1
	capUmemUid0                     bits = 0x252<<8 | 1
	capEthNetOffloads               bits = 0x21c<<8 | 1
	capRoce                         bits = 0x21d<<8 | 1
	capAtomic                       bits = 0x21e<<8 | 1
	capCqOi                         bits = 0x220<<8 | 1
	capCqResize                     bits = 0x221<<8 | 1
	capCqModeration                 bits = 0x222<<8 | 1
	capPg                           bits = 0x227<<8 | 1
	capBlockLbMc                    bits = 0x228<<8 | 1
	capCqPeriodStartFromCqe         bits = 0x22b<<8 | 1
	capCd                           bits = 0x22c<<8 | 1
	capImaicl                       bits = 0x231<<8 | 1
	capQkv                          bits = 0x236<<8 | 1
	capPkv                          bits = 0x237<<8 | 1
	capSetDethSqpn                  bits = 0x238<<8 | 1
	capXrc                          bits = 0x23c<<8 | 1
	capUd                           bits = 0x23d<<8 | 1
	capUc                           bits = 0x23e<<8 | 1
	capRc                           bits = 0x23f<<8 | 1
	capUarSz                        bits = 0x24a<<8 | 6
	capLogPgSz                      bits = 0x258<<8 | 8
	capLogBfRegSize                 bits = 0x26b<<8 | 5
	capMaxWqeSzSq                   bits = 0x290<<8 | 16
	capMaxWqeSzRq                   bits = 0x2b0<<8 | 16
	capMaxQpMcg                     bits = 0x2e7<<8 | 25
	capLogMaxMcg                    bits = 0x318<<8 | 8
	capLogMaxTransportDomain        bits = 0x323<<8 | 5
	capLogMaxPd                     bits = 0x32b<<8 | 5
	capLogMaxXrcd                   bits = 0x33b<<8 | 5
	capLogMaxRq                     bits = 0x363<<8 | 5
	capLogMaxSq                     bits = 0x36b<<8 | 5
	capLogMaxTir                    bits = 0x373<<8 | 5
	capLogMaxTis                    bits = 0x37b<<8 | 5
	capBasicCyclicRcvWqe            bits = 0x380<<8 | 1
	capLogMaxRmp                    bits = 0x383<<8 | 5
	capLogMaxRqt                    bits = 0x38b<<8 | 5
	capLogMaxRqtSize                bits = 0x393<<8 | 5
	capLogMaxStrideSzRq             bits = 0x3a3<<8 | 5
	capLogMinStrideSzRq             bits = 0x3ab<<8 | 5
	capLogMaxStrideSzSq             bits = 0x3b3<<8 | 5
	capLogMinStrideSzSq             bits = 0x3bb<<8 | 5
	capLogMaxWqSz                   bits = 0x3db<<8 | 5
	capDisableLocalLbUc             bits = 0x3e1<<8 | 1
	capDisableLocalLbMc             bits = 0x3e2<<8 | 1
	capLogMaxVlanList               bits = 0x3eb<<8 | 5
	capLogMaxCurrentMcList          bits = 0x3f3<<8 | 5
	capLogMaxCurrentUcList          bits = 0x3fb<<8 | 5
	capLogMaxUctx                   bits = 0x463<<8 | 5
	capLogMaxUmem                   bits = 0x46b<<8 | 5
	capLogMaxL2Table                bits = 0x483<<8 | 5
	capDeviceFrequencyMhz           bits = 0x4c0<<8 | 32
	capDeviceFrequencyKhz           bits = 0x4e0<<8 | 32
	capMiniCqeRespStrideIndex       bits = 0x5bc<<8 | 1
	capCqe128Always                 bits = 0x5bd<<8 | 1
	capCqeCompression128            bits = 0x5be<<8 | 1
	capCqeCompression               bits = 0x5bf<<8 | 1
	capCqeCompressionMaxNum         bits = 0x5d0<<8 | 16
	capUctxCap                      bits = 0x6a0<<8 | 32
)

// struct per_protocol_networking_offload_caps
const (
	ethCapCsumCap            bits = 0x0<<8 | 1
	ethCapVlanCap            bits = 0x1<<8 | 1
	ethCapSelfLbEnModifiable bits = 0x8<<8 | 1
	ethCapMaxLsoCap          bits = 0xb<<8 | 5
	ethCapWqeInlineMode      bits = 0x12<<8 | 2
	ethCapRssIndTblCap       bits = 0x14<<8 | 4
)

// struct atomic_caps
const (
	atomicCapAtomicReq8BEndiannessMode           bits = 0x40<<8 | 2
	atomicCapSupportedAtomicReq8BEndiannessMode1 bits = 0x46<<8 | 1
	atomicCapAtomicOperations                    bits = 0x90<<8 | 16
	atomicCapAtomicSizeQp                        bits = 0xb0<<8 | 16
)

// struct roce_cap
const (
	roceCapL3Type               bits = 0x8c<<8 | 4
	roceCapRoceVersion          bits = 0x98<<8 | 8
	roceCapRRoceDestUdpPort     bits = 0xb0<<8 | 16
	roceCapRRoceMaxSrcUdpPort   bits = 0xc0<<8 | 16
	roceCapRRoceMinSrcUdpPort   bits = 0xd0<<8 | 16
	roceCapRoceAddressTableSize bits = 0xf0<<8 | 16
)

// struct cong_control_r_roce_ecn_np
const (
	npMinTimeBetweenCnps bits = 0xa0<<8 | 32
	npCnpDscp            bits = 0xd2<<8 | 6
	npCnp802pPrio        bits = 0xdd<<8 | 3
)

// struct cong_control_r_roce_ecn_rp
const (
	rpClampTgtRate             bits = 0x64<<8 | 1
	rpClampTgtRateAfterTimeInc bits = 0x68<<8 | 1
	rpRpgTimeReset             bits = 0xa0<<8 | 32
	rpRpgByteReset             bits = 0xc0<<8 | 32
	rpRpgThreshold             bits = 0xe0<<8 | 32
	rpRpgMaxRate               bits = 0x100<<8 | 32
	rpRpgAiRate                bits = 0x120<<8 | 32
	rpRpgHaiRate               bits = 0x140<<8 | 32
	rpRpgGd                    bits = 0x160<<8 | 32
	rpRpgMinDecFac             bits = 0x180<<8 | 32
	rpRpgMinRate               bits = 0x1a0<<8 | 32
	rpRateToSetOnFirstCnp      bits = 0x2a0<<8 | 32
	rpDceTcpG                  bits = 0x2c0<<8 | 32
	rpDceTcpRtt                bits = 0x2e0<<8 | 32
	rpRateReduceMonitorPeriod  bits = 0x300<<8 | 32
	rpInitialAlphaValue        bits = 0x340<<8 | 32
)

// struct ptys_reg. The masks have a bit for each link mode.
const (
	ptysExtEthProtoCapability bits = 0x40<<8 | 32
	ptysExtEthProtoAdmin      bits = 0xa0<<8 | 32
	ptysExtEthProtoOper       bits = 0x100<<8 | 32
	ptysEthProtoCapability    bits = 0x60<<8 | 32
	ptysEthProtoAdmin         bits = 0xc0<<8 | 32
	ptysEthProtoOper          bits = 0x120<<8 | 32
	ptysEthProtoLpAdvertise   bits = 0x180<<8 | 32
)

// struct paos_reg; 1 is up, 2 down.
const (
	paosAdminStatus bits = 0x14<<8 | 4
	paosOperStatus  bits = 0x1c<<8 | 4
)

// struct pmtu_reg: bytes, with header and FCS.
const (
	pmtuMaxMtu   bits = 0x20<<8 | 16
	pmtuAdminMtu bits = 0x40<<8 | 16
	pmtuOperMtu  bits = 0x60<<8 | 16
)

// struct pmlp_reg
const (
	pmlpWidth bits = 0x18<<8 | 8
)

// struct ppcnt_reg: grp selects counters, prio_tc the priority in groups by priority.
const (
	ppcntGrp    bits = 0x1a<<8 | 6
	ppcntPrioTc bits = 0x3d<<8 | 3
)
