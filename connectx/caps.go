package connectx

// maxGIDs is the size of the address table of a port, as the driver shows it.
const maxGIDs = 256

// Types of capabilities, and which values: the largest, or those that are set.
const (
	capsGeneral = 0
	capsEth     = 1
	capsAtomic  = 3
	capsRoCE    = 4
	capsFlow    = 7
	capsCurrent = 1
)

// Capabilities. What would need more of the adapter than this package has is not offered: blue flame (each write would
// be eight messages of QEMU's), striding RQs, compressed CQEs, on-demand paging, DEVX, eswitch, page loading by UMR.
var (
	generalCaps = map[bits]uint64{
		capLogMaxSrqSz: 15, capLogMaxQpSz: 15, capLogMaxSrq: 16, capLogMaxQp: 17, capLogMaxCqSz: 22, capLogMaxCq: 16,
		capLogMaxEqSz: 22, capLogMaxMkey: 17, capLogMaxEq: 5, capLogMaxMrwSz: 40, capLogMaxKlmListSize: 6,
		capLogMaxRaReqQp: 4, capLogMaxRaResQp: 4, capGidTableSize: 4, capNumPorts: 1, capLogMaxMsg: 30,
		capVportCounters: 1, capOutOfSeqCnt: 1, capRetransmissionQCounters: 1, capPortType: 1, capCqeVersion: 1,
		capLogMaxPd: 16, capLogMaxXrcd: 8, capLogMaxTransportDomain: 8, capLogMaxRq: 12, capLogMaxSq: 12,
		capLogMaxTir: 11,
		capLogMaxTis: 10, capLogMaxRqt: 10, capLogMaxRqtSize: logMaxRQT, capLogMaxStrideSzRq: 8, capLogMaxStrideSzSq: 8,
		capLogMaxWqSz: 14, capLogMinStrideSzRq: 4, capLogMinStrideSzSq: 6, capLogMaxRmp: 12, capUarSz: 4,
		capLogPgSz:      12,
		capLogBfRegSize: 9, capMaxWqeSzSq: maxWQE, capMaxWqeSzRq: 512, capRoce: 1, capEthNetOffloads: 1,
		capNicFlowTable: 1, capCqModeration: 1, capCqOi: 1, capBlockLbMc: 1, capCd: 1, capCompactAddressVector: 1,
		capXrc: 1, capUd: 1, capUc: 1, capRc: 1, capLogMaxL2Table: 6, capLogMaxVlanList: 5, capLogMaxCurrentMcList: 5,
		capLogMaxCurrentUcList: 5, capCqPeriodStartFromCqe: 1, capBasicCyclicRcvWqe: 1,
		capDeviceFrequencyKhz: clockHz / 1000, capDeviceFrequencyMhz: clockHz / 1000000, capFixedBufferSize: 1,
		capUmrModifyEntitySizeDisabled: 1, capUmrIndirectMkeyDisabled: 1, capUmrModifyAtomicDisabled: 1, capImaicl: 1,
		capSetDethSqpn: 1, capMaxQpCnt: 128, capEnhancedErrorQCounters: 1, capLocalCaAckDelay: 16, capAtomic: 1,
		capCcQueryAllowed: 1, capCcModifyAllowed: 1,
	}
	ethCaps = map[bits]uint64{ethCapCsumCap: 1, ethCapVlanCap: 1, ethCapMaxLsoCap: logMaxLSO, ethCapWqeInlineMode: 2,
		ethCapRssIndTblCap: logMaxRQT, ethCapSelfLbEnModifiable: 1}
	atomicCaps = map[bits]uint64{atomicCapAtomicOperations: 3, atomicCapAtomicSizeQp: 8,
		atomicCapAtomicReq8BEndiannessMode: 1, atomicCapSupportedAtomicReq8BEndiannessMode1: 1}
	roceCaps = map[bits]uint64{roceCapRoceVersion: 1<<0 | 1<<2, roceCapL3Type: 7, roceCapRRoceDestUdpPort: 4791,
		roceCapRRoceMaxSrcUdpPort: 0xffff, roceCapRRoceMinSrcUdpPort: 0xc000, roceCapRoceAddressTableSize: maxGIDs}
	// Of received frames: bits of flow_table_properties_nic_receive in struct flow_table_nic_cap.
	// supported; can be modified; root too
	flowCaps = map[bits]uint64{0x200<<8 | 1: 1, 0x203<<8 | 1: 1, 0x204<<8 | 1: 1,
		0x222<<8 | 6: 16, 0x238<<8 | 8: 64, // log of a table's size; levels
		0x278<<8 | 8: 10, 0x298<<8 | 8: 6, 0x2b8<<8 | 8: 16} // logs of the numbers of tables, destinations, flows
)

// flowFields is where flow_table_nic_cap says on which fields flows match: on all that steer.go looks at.
const flowFields = 0x60

func queryCaps(p *Port, in, out []byte, _ uint32) status {
	o := out[0x10:]
	typ, mode := opMod(in)>>1, opMod(in)&1
	switch typ {
	case capsGeneral:
		if mode == capsCurrent && p.Caps != nil {
			copy(o, p.Caps)
			return ok
		}
		putAll(o, generalCaps)
	case capsEth:
		putAll(o, ethCaps)
	case capsAtomic:
		putAll(o, atomicCaps)
	case capsRoCE:
		putAll(o, roceCaps)
	case capsFlow:
		putAll(o, flowCaps)
		for i := range 16 {
			o[flowFields+i] = 0xff
		}
	}
	return ok
}

const capSize = 0x1000

func setCaps(p *Port, in, _ []byte, _ uint32) status {
	if opMod(in)>>1 == capsGeneral {
		p.Caps = append([]byte(nil), in[0x10:0x10+capSize]...)
	}
	return ok
}
