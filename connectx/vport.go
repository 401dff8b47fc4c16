package connectx

import "github.com/rackless/rackless/roce"

// GUID of the adapter with a MAC, as Mellanox makes it.
func GUID(mac [6]byte) [8]byte { return [8]byte{mac[0], mac[1], mac[2], 0, 3, mac[3], mac[4], mac[5]} }

func (p *Port) guid() uint64 {
	g := GUID(p.nic.MAC)
	return be.Uint64(g[:])
}

// The NIC vport context: addresses, MTU, promiscuous modes. Fields of field_select in modify_nic_vport_context_in.
const (
	vportSize    = 0x100
	vportAddress = 0xf4 // permanent address: 2 bytes of nothing, then 6
	vportList    = 0x100
	listUC       = 0
	listMC       = 1
	listVLAN     = 2
	maxList      = 1 << 6
)

// queryVPort answers QUERY_NIC_VPORT_CONTEXT. What the driver may change comes from p.VPort, all else from the adapter:
// a clone that was restored from another's state has its own addresses so.
func queryVPort(p *Port, in, out []byte, _ uint32) status {
	o := out[0x10:]
	if len(p.VPort) == vportSize {
		copy(o, p.VPort)
	}
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

// modifyVPort takes over the selected fields and one list. The lists are what the driver wants to receive; frames are
// in fact steered by the flow tables, to which it enters the same addresses. So they are kept for QUERY only.
func modifyVPort(p *Port, in, _ []byte, _ uint32) status {
	x := in[0x100:]
	sel := be.Uint32(in[0xc:])
	if p.VPort == nil {
		p.VPort = make([]byte, vportSize)
		vportRoceEn.put(p.VPort, 1)
	}
	// Bits of field_select, from the least: 1 roce_en, 2 list of addresses, 4 promiscuous modes.
	for f, b := range map[bits]uint{vportRoceEn: 1, vportPromiscUc: 4, vportPromiscMc: 4, vportPromiscAll: 4} {
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

// macList reads n addresses of 8 bytes, the first two of which are nothing. n is bounded by maxList, which minBuffer
// holds.
func macList(b []byte, n int) [][6]byte {
	l := make([][6]byte, n)
	for i := range l {
		l[i] = [6]byte(b[8*i+2 : 8*i+8])
	}
	return l
}

// setRoCEAddress enters a row of the address table, which the driver calls GID table.
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
	p.setGID(i, g)
	// QPs that use the row see its new address.
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
	out[0xf] = 1 << 4 // admin up
	if p.AdminDown {
		out[0xf] = 0
	}
	if p.up() {
		out[0xf] |= 1
	}
	return ok
}

func attachMcast(p *Port, in, _ []byte, id uint32) status {
	if len(p.Mcast) >= maxList {
		return limit
	}
	p.Mcast[mcast{[16]byte(in[0x10:0x20]), id}] = true
	return ok
}

func detachMcast(p *Port, in, _ []byte, id uint32) status {
	delete(p.Mcast, mcast{[16]byte(in[0x10:0x20]), id})
	return ok
}
