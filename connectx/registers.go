package connectx

import "github.com/rackless/rackless/roce"

// Registers of ACCESS_REG (MLX5_REG_* of linux/mlx5/driver.h). The data start after 16 bytes, in the command and in its
// answer.
const (
	regPMLP  = 0x5002
	regPMTU  = 0x5003
	regPTYS  = 0x5004
	regPAOS  = 0x5006
	regPPCNT = 0x5008
	regData  = 0x10
	// maxMTU is the largest frame of a ConnectX-4 Lx.
	maxMTU = 9978
	// keptRegs bounds the registers that are kept as they were written.
	keptRegs = 64
	keptSize = 256
)

// accessReg answers ACCESS_REG: op_mod 0 writes, 1 reads. The answer starts as an echo of the request, so that fields
// which choose something (port, group) come back. Unknown registers keep what is written: tools that set and read one
// again see their value. Their number and size are bounded.
func accessReg(p *Port, in, out []byte, _ uint32) status {
	reg, write := be.Uint32(in[8:])&0xffff, opMod(in) == 0
	d, o := in[regData:], out[regData:]
	copy(o[:keptSize], d)
	switch reg {
	case regPMTU:
		if m := pmtuAdminMtu.get32(d); write && m > 0 {
			p.MTU = min(m, maxMTU)
		}
		putAll(o, map[bits]uint64{pmtuMaxMtu: maxMTU, pmtuAdminMtu: uint64(p.MTU), pmtuOperMtu: uint64(p.MTU)})
	case regPAOS:
		p.portState(d, o, write)
	case regPTYS:
		p.linkModes(o)
	case regPMLP:
		pmlpWidth.put(o, 1)
	case regPPCNT:
		p.portCounters(byte(ppcntGrp.get(d)), byte(ppcntPrioTc.get(d)), o[8:])
	default:
		if st, known := p.firmwareReg(reg, d, o, write); known {
			return st
		}
		if p.qosReg(reg, write, d, o) {
			break
		}
		// A register of which the adapter only keeps what is in it.
		if write && (p.Regs[reg] != nil || len(p.Regs) < keptRegs) {
			p.Regs[reg] = append([]byte(nil), d[:keptSize]...)
		} else if !write && p.Regs[reg] != nil {
			copy(o, p.Regs[reg])
		}
	}
	return ok
}

// portState is the register by which the driver sets the port up or down. The driver sets it down when the netdev goes
// down. Status 1 is up, 2 is down.
func (p *Port) portState(d, o []byte, write bool) {
	if write {
		was := p.up()
		p.AdminDown = paosAdminStatus.get(d) == 2
		p.shareLink()
		if p.up() != was {
			p.portEvent()
		}
	}
	admin, oper := uint64(1), uint64(1)
	if p.AdminDown {
		admin = 2
	}
	if !p.up() {
		oper = 2
	}
	paosAdminStatus.put(o, admin)
	paosOperStatus.put(o, oper)
}

// Link modes of PTYS (eth_proto): bits by speed.
const (
	modes25G  = 1<<27 | 1<<28 | 1<<29 // CR, KR, SR
	mode25G   = 1 << 28
	modes100G = 1<<20 | 1<<21 | 1<<22 | 1<<23 // CR4, SR4, KR4, LR4
	mode100G  = 1 << 22
)

// linkModes fills in PTYS: all modes of the port's speed are offered, one is in use while the link is up. ethtool,
// ibstat and the rate in the GID attributes come from it. A rate that is no speed of a card counts as 25 Gb/s below
// 100.
func (p *Port) linkModes(o []byte) {
	all, one := uint64(modes25G), uint64(mode25G)
	if p.nic.RateBits >= 100e9 || p.nic.RateBits == 0 && p.nic.Model == ConnectX5 {
		all, one = modes100G, mode100G
	}
	if !p.up() {
		one = 0
	}
	putAll(o, map[bits]uint64{ptysEthProtoCapability: all, ptysEthProtoAdmin: all, ptysEthProtoOper: one,
		ptysEthProtoLpAdvertise: all})
}

// portCounters fills in a group of PPCNT: 64-bit counters, in the order of mlx5_ifc.h. ethtool -S shows them with the
// suffix _phy, and those by priority as rx_prio3_pause and alike. Groups that are not here read as zeros.
func (p *Port) portCounters(group, prio byte, o []byte) {
	clear(o[:0xf8])
	put := func(at int, v uint64) { be.PutUint64(o[at:], v) }
	t := &p.Traffic
	ethRx, ethTx := t.EthRx.total(), t.EthTx.total()
	rdmaRx, rdmaTx := p.rdma()
	rx, tx := ethRx, ethTx
	rx.add(roce.Traffic(rdmaRx))
	tx.add(roce.Traffic(rdmaTx))
	w := &p.net.Counters
	switch group {
	case 0x00: // IEEE 802.3; octets there count the FCS
		put(0x00, tx.Packets)
		put(0x08, rx.Packets)
		put(0x20, tx.Bytes+4*tx.Packets)
		put(0x28, rx.Bytes+4*rx.Packets)
		put(0x30, t.EthTx.Multi.Packets)
		put(0x38, t.EthTx.Broad.Packets)
		put(0x40, t.EthRx.Multi.Packets)
		put(0x48, t.EthRx.Broad.Packets)
		put(0x60, p.count.tooLong)
		put(0x78, w.RxControl)
		put(0x88, w.RxLinkPause)
	case 0x01: // RFC 2863
		put(0x00, rx.Bytes+4*rx.Packets)
		put(0x08, rx.Packets-t.EthRx.Multi.Packets-t.EthRx.Broad.Packets)
		put(0x10, w.RxDropped)
		put(0x28, tx.Bytes+4*tx.Packets)
		put(0x30, tx.Packets-t.EthTx.Multi.Packets-t.EthTx.Broad.Packets)
		put(0x38, w.TxDropped)
	case 0x02: // RFC 2819
		put(0x00, w.RxDropped)
		put(0x08, rx.Bytes+4*rx.Packets)
		put(0x10, rx.Packets)
		put(0x18, t.EthRx.Broad.Packets)
		put(0x20, t.EthRx.Multi.Packets)
		put(0x38, p.count.tooLong)
	case 0x05: // extended
		put(0x38, w.RxICRC)
	case 0x10: // by priority
		p.prioCounters(prio, put)
	case 0x12: // physical layer
		be.PutUint32(o[0xc0:], uint32(p.count.linkDowns))
	}
}
