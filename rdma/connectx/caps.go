package connectx

const maxGIDs = 256

const (
	// The op_mod of QUERY_HCA_CAP is twice the type, plus the mode: maximum or current values.
	capsGeneral = 0
	capsEth     = 1
	capsPaging  = 2
	capsAtomic  = 3
	capsRoCE    = 4
	capsFlow    = 7
	capsCurrent = 1
)

// The adapter does not offer blue flame (each write would be eight messages of QEMU), striding RQs, eswitch.
var (
	// struct cmd_hca_cap. The driver trusts these values, and an unsupported one would fail only when a guest uses it.
	// So limits of tables.go, queues.go and steer.go are at least as high. Numbers of objects are a card's, whose
	// memory for contexts the driver gives; here maxObjects and maxPages end them.
	generalCaps = map[bits]uint64{
		capLogMaxSrqSz: 15, capLogMaxQpSz: 15, capLogMaxSrq: 23, capLogMaxQp: 17, capLogMaxCqSz: 22, capLogMaxCq: 24,
		capLogMaxEqSz: 22, capLogMaxMkey: 24, capLogMaxEq: 5, capLogMaxMrwSz: 40,
		capLogMaxKlmListSize: logMaxPieces,
		// Port type 1 is Ethernet. With CQE version 1 a CQE has the queue's user_index, which libmlx5 needs.
		capLogMaxRaReqQp: 4, capLogMaxRaResQp: 4, capGidTableSize: 4, capNumPorts: 1, capLogMaxMsg: 30,
		capVportCounters: 1, capOutOfSeqCnt: 1, capPortModuleEvent: 1, capRetransmissionQCounters: 1, capPortType: 1,
		capCqeVersion: 1,
		capLogMaxPd:   23, capLogMaxXrcd: 8, capLogMaxTransportDomain: 8, capLogMaxRq: 12, capLogMaxSq: 12,
		capLogMaxTir: 11,
		capLogMaxTis: 10, capLogMaxRqt: 10, capLogMaxRqtSize: logMaxRQT, capLogMaxStrideSzRq: 8, capLogMaxStrideSzSq: 8,
		capLogMaxWqSz: 14, capLogMinStrideSzRq: 4, capLogMinStrideSzSq: 6, capLogMaxRmp: 12, capUarSz: 4,
		capLogPgSz: 12,
		// log_bf_reg_size is set even without blue flame, because uar.c derives the distance of doorbell registers from
		// it: 0x100, since a register of 512 bytes has two halves.
		capLogBfRegSize: 9, capMaxWqeSzSq: maxWQE, capMaxWqeSzRq: 512, capRoce: 1, capEthNetOffloads: 1,
		capNicFlowTable: 1, capCqResize: 1, capCqModeration: 1, capCqOi: 1, capBlockLbMc: 1, capCd: 1,
		capCompactAddressVector: 1,
		capQkv:                  1, capPkv: 1, capXrc: 1, capUd: 1, capUc: 1, capRc: 1, capLogMaxL2Table: 6,
		// Raw packet queues of two programs hear each other: mlx5_ib enables this loopback for the second one.
		capDisableLocalLbUc: 1, capDisableLocalLbMc: 1,
		capLogMaxVlanList: 5, capLogMaxCurrentMcList: 5,
		capLogMaxCurrentUcList: 5, capCqPeriodStartFromCqe: 1, capBasicCyclicRcvWqe: 1,
		// lib/clock.c of mlx5_core converts the timer of the init segment and the time stamps of CQEs by it.
		capDeviceFrequencyKhz: clockHz / 1000, capDeviceFrequencyMhz: clockHz / 1000000, capFixedBufferSize: 1,
		// As umr_modify_entity_size_disabled, umr_modify_atomic_disabled and umr_indirect_mkey_disabled are not set,
		// mlx5_ib loads page lists piece by piece, by UMR requests. Only so does it register dma-bufs, change regions
		// (ibv_rereg_mr), keep keys, and have MEM_MGT_EXTENSIONS, the fast registration of the kernel's users, such as
		// NVMe and NFS over RDMA. Regions from 256 MiB on need the extended offset. umr_fence 1 is the small fence, as
		// of a ConnectX-6: a change of a key need not wait for earlier requests.
		capUmrExtendedTranslationOffset: 1, capPg: 1, capNullMkey: 1, capImaicl: 1, capUmrFence: 1,
		// A card has 2^21 multicast groups of 240 queues each; here maxObjects limits all members.
		capLogMaxMcg: 21, capMaxQpMcg: maxMembers,
		// set_deth_sqpn lets mlx5_ib send management datagrams from further QPs with the sender's number set to QP 1.
		// If max_qp_cnt is 0 there is no hw_counters directory, and `rdma statistic` fails with "Invalid argument".
		capSetDethSqpn: 1, capMaxQpCnt: 128, capEnhancedErrorQCounters: 1, capLocalCaAckDelay: 16, capAtomic: 1,
		// mlx5_ib creates debugfs cc_params only with both (cong.c).
		capCcQueryAllowed: 1, capCcModifyAllowed: 1,
		// Without qos and vport_group_manager the driver has no dcbnl. qcam_reg enables trust by DSCP (en_dcbnl.c), and
		// roce_accl enables roce_slow_restart.
		capQos: 1, capVportGroupManager: 1, capEts: 1, capQcamReg: 1, capRoceAccl: 1,
	}
	// newCaps are general capabilities that cards after the ConnectX-4 Lx have in addition.
	// A card compresses CQEs if many come at once, and here none are compressed; those of 128 bytes may be padded.
	newCaps = map[bits]uint64{capDct: 1, capRts2rtsQpUdpSport: 1, capDumpFillMkey: 1, capDeviceMemory: 1,
		capMiniCqeRespStrideIndex: 1, capCqe128Always: 1, capCqeCompression128: 1, capCqeCompression: 1,
		capCqeCompressionMaxNum: 64}
	// struct per_protocol_networking_offload_caps. Without csum_cap, max_lso_cap, vlan_cap and rss_ind_tbl_cap
	// (mlx5_eth_supported of en_main.c) there is no netdev, and the RDMA port stays down. Inline mode 2 means that the
	// WQE need not contain headers.
	ethCaps = map[bits]uint64{ethCapCsumCap: 1, ethCapVlanCap: 1, ethCapMaxLsoCap: logMaxLSO, ethCapWqeInlineMode: 2,
		ethCapRssIndTblCap: logMaxRQT, ethCapSelfLbEnModifiable: 1}
	// Endianness mode 1 is the host's byte order. Without it mlx5_ib reports no atomics on x86.
	atomicCaps = map[bits]uint64{atomicCapAtomicOperations: 3, atomicCapAtomicSizeQp: 8,
		atomicCapAtomicReq8BEndiannessMode: 1, atomicCapSupportedAtomicReq8BEndiannessMode1: 1}
	// roce_version has a bit for v1 and v2. The driver fills both into its GID table, so that index 3 is the IPv4
	// address under v2, as documents expect.
	roceCaps = map[bits]uint64{roceCapRoceVersion: 1<<0 | 1<<2, roceCapL3Type: 7, roceCapRRoceDestUdpPort: 4791,
		roceCapRRoceMaxSrcUdpPort: 0xffff, roceCapRRoceMinSrcUdpPort: 0xc000, roceCapRoceAddressTableSize: maxGIDs}
	// Bits of flow_table_properties_nic_receive in struct flow_table_nic_cap. The first line has
	// ft_support, flow_modify_en, modify_root, identified_miss_table_mode and flow_table_modify. Only with all of them
	// does mlx5_core have tables for flows of users (ibv_create_flow), of ethtool -N and of tc.
	flowCaps = map[bits]uint64{0x200<<8 | 1: 1, 0x203<<8 | 1: 1, 0x204<<8 | 1: 1, 0x205<<8 | 1: 1, 0x206<<8 | 1: 1,
		0x222<<8 | 6: 16, 0x238<<8 | 8: 64, // log of a table's size; levels
		0x278<<8 | 8: 10, 0x298<<8 | 8: 6, 0x2b8<<8 | 8: 16} // logs of numbers of tables, destinations, flows
)

// flowFields is the offset in flow_table_nic_cap of the fields that flows can match. It covers the fields of steer.go.
const flowFields = 0x60

// queryCaps returns zeros for unknown types, so that they are unsupported.
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
		if p.newer() {
			putAll(o, newCaps)
			putAll(o, newDevX)
		}
	case capsEth:
		putAll(o, ethCaps)
	case capsPaging:
		putAll(o, pagingCaps)
	case capsAtomic:
		putAll(o, atomicCaps)
	case capsRoCE:
		putAll(o, roceCaps)
	case capsMemory:
		if p.newer() {
			putAll(o, memoryCaps)
		}
	case capsQoS:
		if p.newer() {
			putAll(o, qosCaps)
		}
	case capsFlow:
		putAll(o, flowCaps)
		for i := range 16 {
			o[flowFields+i] = 0xff
		}
		// Headers of Geneve are not parsed, and programs ask for them.
		for f := range bits(4) {
			((flowFields*8+0x1a+f)<<8 | 1).put(o, 0)
		}
	}
	return ok
}

// capSize is the space for any type of capability. setCaps relies on minBuffer being larger.
const capSize = 0x1000

// setCaps stores the driver's choice for it to read back. The emulation does not use it, so a guest gains nothing from
// larger values.
func setCaps(p *Port, in, _ []byte, _ uint32) status {
	if opMod(in)>>1 == capsGeneral {
		p.Caps = append([]byte(nil), in[0x10:0x10+capSize]...)
	}
	return ok
}
