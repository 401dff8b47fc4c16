package connectx

import (
	"cmp"
	"net"
	"net/netip"

	"github.com/rackless/rackless/rdma/roce"
)

// MLX5_REG_* of linux/mlx5/driver.h. Data start after 16 bytes of ACCESS_REG and of its answer.
const (
	regPMLP  = 0x5002
	regPMTU  = 0x5003
	regPTYS  = 0x5004
	regPAOS  = 0x5006
	regPPCNT = 0x5008
	regData  = 0x10
	// maxMTU is the largest frame of a ConnectX-4 Lx.
	maxMTU   = 9978
	keptRegs = 64
	keptSize = 256
)

// accessReg answers ACCESS_REG: op_mod 0 writes, 1 reads. The answer copies the request, so that selecting fields
// (port, group) come back. Unknown registers store the written value, because tools read it back, within limits.
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
		if write && (p.Regs[reg] != nil || len(p.Regs) < keptRegs) {
			p.Regs[reg] = append([]byte(nil), d[:keptSize]...)
		} else if !write && p.Regs[reg] != nil {
			copy(o, p.Regs[reg])
		}
	}
	return ok
}

// portState sets the port up (1) or down (2) with the netdev.
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

// Bits of eth_proto in PTYS by speed.
const (
	modes25G  = 1<<27 | 1<<28 | 1<<29 // CR, KR, SR
	mode25G   = 1 << 28
	modes100G = 1<<20 | 1<<21 | 1<<22 | 1<<23 // CR4, SR4, KR4, LR4
	mode100G  = 1 << 22
)

// Bits of ext_eth_proto, for cards with lanes of 50 Gb/s and more: 100 Gb/s on 4 and 2 lanes, 200 and 400 Gb/s on 4.
const (
	extModes100G = 1<<9 | 1<<10
	extMode200G  = 1 << 12
	extMode400G  = 1 << 16
)

// linkModes answers PTYS: all modes of the port's speed are offered, and one is in use while the link is up, which
// ethtool, ibstat and the GID attributes show. A rate below 100 Gb/s that no card has counts as 25 Gb/s. The driver
// reads extended modes if a card offers any.
func (p *Port) linkModes(o []byte) {
	rate := cmp.Or(p.nic.RateBits, p.model.rate)
	all, one := uint64(modes25G), uint64(mode25G)
	if rate >= 100e9 {
		all, one = modes100G, mode100G
	}
	var ext, extOne uint64
	if p.model.rate > 100e9 {
		ext, extOne = extModes100G|extMode200G, 1<<9
		if p.model.rate >= 400e9 {
			ext |= extMode400G
		}
		if rate >= 200e9 {
			extOne = extMode200G
		}
		if rate >= 400e9 {
			extOne = extMode400G
		}
	}
	if !p.up() {
		one, extOne = 0, 0
	}
	putAll(o, map[bits]uint64{ptysEthProtoCapability: all, ptysEthProtoAdmin: all, ptysEthProtoOper: one,
		ptysEthProtoLpAdvertise: all, ptysExtEthProtoCapability: ext, ptysExtEthProtoAdmin: ext,
		ptysExtEthProtoOper: extOne})
}

// portCounters answers a group of PPCNT, in the order of mlx5_ifc.h. ethtool -S shows them with the suffix _phy, and by
// priority as rx_prio3_pause and the like. Unknown groups are zeros.
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
	case 0x00: // IEEE 802.3; octets include the FCS
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

// GUID derives an adapter's GUID from its MAC as Mellanox does.
func GUID(mac [6]byte) [8]byte { return [8]byte{mac[0], mac[1], mac[2], 0, 3, mac[3], mac[4], mac[5]} }

func (p *Port) guid() uint64 {
	g := GUID(p.nic.MAC)
	return be.Uint64(g[:])
}

// Fields of field_select in modify_nic_vport_context_in.
const (
	vportSize    = 0x100
	vportAddress = 0xf4 // permanent: 2 unused bytes, then 6
	vportList    = 0x100
	listUC       = 0
	listMC       = 1
	listVLAN     = 2
	maxList      = 1 << 6
)

// queryVPort takes the driver's values from p.VPort, all others from the adapter, so that a clone restored from
// another's state has its own addresses.
func queryVPort(p *Port, in, out []byte, _ uint32) status {
	o := out[0x10:]
	if len(p.VPort) == vportSize {
		copy(o, p.VPort)
	}
	vportQkeyViolations.put(o, min(p.net.Counters.BadQKey, 0xffff))
	putAll(o, map[bits]uint64{vportMtu: uint64(p.MTU), vportNodeGuid: p.guid(), vportSystemImageGuid: p.guid(),
		vportPortGuid: p.guid(), vportMinWqeInlineMode: 0})
	if p.VPort == nil {
		vportRoceEn.put(o, 1)
	}
	copy(o[vportAddress+2:], p.nic.MAC[:])
	typ := in[12] & 7
	vportAllowedListType.put(o, uint64(typ))
	list := p.UCList
	switch typ {
	case listMC:
		list = p.MCList
	case listVLAN:
		vportAllowedListSize.put(o, uint64(len(p.VLANs)))
		for i, v := range p.VLANs {
			be.PutUint32(o[vportList+4*i:], uint32(v))
		}
		return ok
	}
	vportAllowedListSize.put(o, uint64(len(list)))
	for i, m := range list {
		copy(o[vportList+8*i+2:], m[:])
	}
	return ok
}

// modifyVPort stores the selected fields and one list. Lists of addresses are only for QUERY, because frames are
// steered by the flow tables, in which the driver enters them too.
func modifyVPort(p *Port, in, _ []byte, _ uint32) status {
	x := in[0x100:]
	sel := be.Uint32(in[0xc:])
	if p.VPort == nil {
		p.VPort = make([]byte, vportSize)
		vportRoceEn.put(p.VPort, 1)
	}
	// Bits of field_select, from the least: 1 roce_en, 2 list of addresses, 4 promiscuous modes, 10 and 11 loopback of
	// multicasts and unicasts.
	for f, b := range map[bits]uint{vportRoceEn: 1, vportPromiscUc: 4, vportPromiscMc: 4, vportPromiscAll: 4,
		vportNoMcLb: 10, vportNoUcLb: 11} {
		if sel>>b&1 != 0 {
			f.put(p.VPort, f.get(x))
		}
	}
	if sel>>2&1 == 0 { // the list of addresses
		return ok
	}
	n := min(int(vportAllowedListSize.get(x)), maxList)
	switch vportAllowedListType.get(x) {
	case listUC:
		p.UCList = macList(x[vportList:], n)
	case listMC:
		p.MCList = macList(x[vportList:], n)
	case listVLAN:
		p.VLANs = nil
		for i := range n {
			p.VLANs = append(p.VLANs, uint16(be.Uint32(x[vportList+4*i:])&0xfff))
		}
	}
	return ok
}

// macList skips the first two of 8 bytes. At most maxList addresses fit in minBuffer.
func macList(b []byte, n int) [][6]byte {
	l := make([][6]byte, n)
	for i := range l {
		l[i] = [6]byte(b[8*i+2 : 8*i+8])
	}
	return l
}

// setRoCEAddress refuses an address of another adapter of the network, which the driver reports in the guest's kernel
// log.
func setRoCEAddress(p *Port, in, _ []byte, _ uint32) status {
	i := uint32(be.Uint16(in[8:]))
	if i >= maxGIDs {
		return badParam
	}
	x := in[0x10:]
	g := gidEntry{GID: [16]byte(x[:16]), Version: byte(gidRoceVersion.get(x)), L3: byte(gidRoceL3Type.get(x)),
		VLAN: uint16(gidVlanId.get(x)), Tagged: gidVlanValid.is(x)}
	be.PutUint16(g.MAC[:], uint16(gidSourceMac4732.get(x)))
	be.PutUint32(g.MAC[2:], gidSourceMac310.get32(x))
	if !p.setGID(i, g) {
		p.refused++
		p.logf("the address %v with MAC %v is another adapter's: refused", netip.AddrFrom16(g.GID).Unmap(),
			net.HardwareAddr(g.MAC[:]))
		return badParam
	}
	for _, q := range p.Queues {
		if q.Kind == queueQP && adsSrcAddrIndex.get32(q.Ctx[qpcPath:]) == i {
			p.setAttr(q)
			if q.State >= roce.ReadyToReceive && q.State <= roce.SendDrain {
				p.wireState(q, q.State)
			}
		}
	}
	return ok
}

func queryRoCEAddress(p *Port, in, out []byte, _ uint32) status {
	g := p.GIDs[uint32(be.Uint16(in[8:]))]
	copy(out[0x10:], g.GID[:])
	return ok
}

func queryVPortState(p *Port, _, out []byte, _ uint32) status {
	if !p.AdminDown {
		out[0xf] = 1 << 4 // administratively up
	}
	if p.up() {
		out[0xf] |= 1
	}
	return ok
}
