package connectx

import "github.com/rackless/rackless/rdma/roce"

// Received frames go from the root's flow tables to TIRs, and from a TIR to an RQ, or to one of an RQT by a hash.

// tir (transport interface receive) is for one kind of traffic. It has a queue, or a table of them with the hashed
// fields and the key of the Toeplitz hash.
type tir struct {
	RQ       uint32 // the only queue
	RQT      uint32 // or a table of queues
	Indirect bool
	Hash     uint8 // 1: Toeplitz
	Fields   uint32
	L3, L4   uint8 // 0 IPv4, TCP; 1 IPv6, UDP
	Key      [40]byte
	Domain   uint32 // transport domain
	Self     uint8  // frames of its own domain that it takes: bits of selfUnicast and selfMulticast
	UID      uint16
}

// Bits of self_lb_block of a TIR, which say against the name of the field what is let through.
const (
	selfUnicast   = 1
	selfMulticast = 2
)

func readTIR(x []byte) *tir {
	t := &tir{Indirect: tircDispType.get(x) == 1, RQ: tircInlineRqn.get32(x), RQT: tircIndirectTable.get32(x),
		Hash: uint8(tircRxHashFn.get(x)), Domain: tircDomain.get32(x), Self: uint8(tircSelfLb.get(x))}
	copy(t.Key[:], x[0x28:])
	f := be.Uint32(x[0x50:])
	t.L3, t.L4, t.Fields = uint8(f>>31), uint8(f>>30&1), f&0x3fffffff
	return t
}

// Bits of a TIR's modify_bitmask.
const (
	tirLRO = 1 << iota
	tirTable
	tirHash
	_
	tirLoopback
)

func modifyTIR(p *Port, t *tir, in, _ []byte) status {
	// LRO is not offered.
	n, mask := readTIR(in[0x20:]), be.Uint64(in[0x10:])
	if mask&tirTable != 0 {
		t.RQT, t.Indirect = n.RQT, true
	}
	if mask&tirHash != 0 {
		t.Hash, t.Key, t.L3, t.L4, t.Fields = n.Hash, n.Key, n.L3, n.L4, n.Fields
	}
	if mask&tirLoopback != 0 {
		t.Self = n.Self
	}
	return ok
}

// logMaxRQT is rss_ind_tbl_cap and log_max_rqt_size. mlx5e uses 128 entries if it can.
const logMaxRQT = 7

func readRQT(x []byte) []uint32 {
	n := min(rqtcRqtActualSize.get(x), 1<<logMaxRQT, uint64(len(x)-0xf0)/4)
	t := make([]uint32, n)
	for i := range t {
		t[i] = be.Uint32(x[0xf0+4*i:]) & 0xffffff
	}
	return t
}

func modifyRQT(p *Port, in, _ []byte, id uint32) status {
	if p.RQTs[id] == nil {
		return badResource
	}
	p.RQTs[id] = readRQT(in[0x20:])
	return ok
}

const (
	tableNICRx    = 0
	destTable     = 1
	destTIR       = 2
	actionForward = 4
	actionDrop    = 2
	maxDests      = 64
	maxVisits     = 64 // tables visited for one frame
)

// flowKey has an index that is also the entry's precedence.
type flowKey struct{ Table, Index uint32 }

// matchSize is the size of struct fte_match_set_lyr_2_4, the outer headers.
const matchSize = 0x40

// flow is an entry of a flow table. Value is stored masked for the look-up.
type flow struct {
	Mask, Value [matchSize]byte
	Other       bool // matches on unsupported fields
	Action      uint16
	Dests       []uint32 // type<<24 | number
	Counters    []uint32
	Tag         uint32 // for the CQEs of its frames; 0 means none
}

type flowGroup struct {
	Table uint32
	Mask  [matchSize]byte
	Other bool
}

// readGroup reads a mask. match_criteria_enable has a bit for each part of a match; bit 0 is the outer headers. Entries
// with other parts, such as tunnels, are skipped.
func readGroup(in []byte) *flowGroup {
	g := &flowGroup{Table: be.Uint32(in[0x14:]) & 0xffffff}
	if in[0x3f]&1 != 0 {
		copy(g.Mask[:], in[0x40:])
	}
	g.Other = in[0x3f]&^1 != 0
	return g
}

func destroyGroup(p *Port, in, _ []byte, _ uint32) status {
	delete(p.Groups, be.Uint32(in[0x18:]))
	return ok
}

// setFlow ignores tables for sent frames and RDMA, which no traffic here goes through.
func setFlow(p *Port, in, _ []byte, _ uint32) status {
	if in[0x10] != tableNICRx {
		return ok
	}
	k := flowKey{be.Uint32(in[0x14:]) & 0xffffff, be.Uint32(in[0x20:])}
	g := p.Groups[be.Uint32(in[0x44:])]
	if g == nil {
		return badResource
	}
	if p.Flows[k] == nil && p.objects() >= maxObjects {
		return limit
	}
	f := &flow{Mask: g.Mask, Other: g.Other, Action: be.Uint16(in[0x4e:])}
	copy(f.Value[:], in[0x80:])
	for i := range f.Value {
		f.Value[i] &= f.Mask[i]
	}
	n := min(int(be.Uint32(in[0x50:])&0xffffff), maxDests, (len(in)-0x340)/8)
	for i := range n {
		f.Dests = append(f.Dests, be.Uint32(in[0x340+8*i:]))
	}
	if f.Action&actionCount != 0 {
		list := in[min(len(in), 0x340+8*n):]
		for i := range min(int(be.Uint32(in[0x54:])&0xffffff), maxCounts, len(list)/8) {
			f.Counters = append(f.Counters, be.Uint32(list[8*i:])&0xffffff)
		}
	}
	f.Tag = be.Uint32(in[0x48:]) & 0xffffff
	p.setFlowEntry(k, f)
	return ok
}

func deleteFlow(p *Port, in, _ []byte, _ uint32) status {
	p.deleteFlowEntry(flowKey{be.Uint32(in[0x14:]) & 0xffffff, be.Uint32(in[0x20:])})
	return ok
}

// createTable stores the next table for frames without a match, as does modifyTable.
func createTable(p *Port, in, out []byte, _ uint32) status {
	n := p.number(kindOther, 1<<16, func(n uint32) bool { _, used := p.Misses[n]; return used })
	if n == 0 {
		return limit
	}
	p.Misses[n] = missTable(in)
	put24(out, n)
	return ok
}

func modifyTable(p *Port, in, _ []byte, _ uint32) status {
	n := be.Uint32(in[0x14:]) & 0xffffff
	if _, there := p.Misses[n]; !there {
		return badResource
	}
	if be.Uint16(in[0xe:])&1 != 0 {
		p.Misses[n] = missTable(in)
	}
	return ok
}

func missTable(in []byte) uint32 {
	if in[0x18]&0xf != 1 {
		return 0
	}
	return be.Uint32(in[0x1c:]) & 0xffffff
}

func destroyTable(p *Port, in, _ []byte, _ uint32) status {
	n := be.Uint32(in[0x14:]) & 0xffffff
	delete(p.Misses, n)
	for k := range p.Flows {
		if k.Table == n {
			delete(p.Flows, k)
		}
	}
	delete(p.flows, n)
	if p.Root == n {
		p.Root = 0
	}
	return ok
}

func setRoot(p *Port, in, _ []byte, _ uint32) status {
	if in[0x10] == tableNICRx && opMod(in) == 0 {
		p.Root = be.Uint32(in[0x14:]) & 0xffffff
	}
	return ok
}

type target struct {
	rq, hash uint32
	hashType byte
	tag      uint32
	uid      uint16 // of the TIR
}

// headers returns struct fte_match_set_lyr_2_4. Missing fields are zeros, so an entry that requires them does not
// match. IPv4 addresses are in the last 4 of 16 bytes.
func headers(f []byte) (m [matchSize]byte) {
	copy(m[0:], f[6:12]) // source
	be.PutUint16(m[6:], be.Uint16(f[12:]))
	copy(m[8:], f[0:6])
	kind, ip := ipPacket(f)
	if be.Uint16(f[12:]) == etherVLAN && len(f) >= 18 {
		copy(m[14:], f[14:16])
		m[0x12] |= 0x80 // cvlan_tag
		be.PutUint16(m[6:], kind)
	}
	var l4 []byte
	switch {
	case kind == 0x0800 && len(ip) >= 20:
		m[0x10], m[0x11] = ip[9], ip[1]
		matchIpVersion.put(m[:], 4)
		copy(m[0x2c:], ip[12:16])
		copy(m[0x3c:], ip[16:20])
		if be.Uint16(ip[6:])&0x3fff != 0 {
			m[0x12] |= 0x20 // a fragment
		} else if h := int(ip[0]&15) * 4; h >= 20 && h <= len(ip) {
			l4 = ip[h:]
		}
	case kind == 0x86dd && len(ip) >= 40:
		m[0x10], m[0x11] = ip[6], byte(be.Uint16(ip)>>4)
		matchIpVersion.put(m[:], 6)
		copy(m[0x20:], ip[8:24])
		copy(m[0x30:], ip[24:40])
		l4 = ip[40:]
	}
	if len(l4) >= 4 {
		switch m[0x10] {
		case protoTCP:
			copy(m[0x14:], l4[:4])
		case protoUDP:
			copy(m[0x1c:], l4[:4])
		}
	}
	return m
}

// sender is the source of a frame that comes back to the adapter which has sent it: the transport domain of its queue,
// and selfUnicast or selfMulticast.
type sender struct {
	domain uint32
	cast   uint8
}

// hears reports whether the TIR takes a frame. Frames of its own adapter are for other transport domains, which are
// other programs. from is nil for frames from the wire.
func (t *tir) hears(from *sender) bool {
	return from == nil || t.Domain != from.domain || t.Self&from.cast != 0
}

// steer returns the queues for a frame.
func (p *Port) steer(f []byte, from *sender) []target {
	s := steering{p: p, m: headers(f), size: len(f), from: from, visits: maxVisits, masks: maxMasks}
	s.walk(p.Root)
	return s.out
}

// steering is the way of one frame through the flow tables.
type steering struct {
	p             *Port
	m             [matchSize]byte
	size          int    // of the frame
	tag           uint32 // of the last entry that has one
	from          *sender
	visits, masks int // that are left
	out           []target
}

// walk follows a table. The smallest matching index wins; groups have ranges of indices, so precise masks come first. A
// guest's tables may form circles and lead to many others, so visits and masks are limited.
func (s *steering) walk(table uint32) {
	if s.visits == 0 || len(s.out) >= maxDests {
		return
	}
	s.visits--
	best := s.p.match(table, &s.m, &s.masks)
	if best == nil {
		if next := s.p.Misses[table]; next != 0 {
			s.walk(next)
		}
		return
	}
	if best.Action&actionCount != 0 {
		for _, n := range best.Counters {
			if c := s.p.FlowCounters[n]; c != nil {
				c.add(roce.Traffic{Packets: 1, Bytes: uint64(s.size)})
			}
		}
	}
	if best.Tag != 0 {
		s.tag = best.Tag
	}
	if best.Action&actionForward == 0 {
		return
	}
	for _, d := range best.Dests {
		switch d >> 24 {
		case destTable:
			s.walk(d & 0xffffff)
		case destTIR:
			if t := s.p.TIRs[d&0xffffff]; t != nil && t.hears(s.from) && len(s.out) < maxDests {
				to := s.p.spread(t, &s.m)
				to.tag, to.uid = s.tag, t.UID
				s.out = append(s.out, to)
			}
		}
	}
}

// In the order of hashing.
const (
	hashSrcIP = 1 << iota
	hashDstIP
	hashSrcPort
	hashDstPort
)

// spread hashes the fields selected by the TIR, in the order source, destination, ports, as in Microsoft's RSS. If the
// table names a destroyed RQ, receiveInto drops the frame.
func (p *Port) spread(t *tir, m *[matchSize]byte) target {
	if !t.Indirect {
		return target{rq: t.RQ}
	}
	table := p.RQTs[t.RQT]
	// A number of a table that is gone may be another program's by now; receiveInto checks that of the queue.
	if len(table) == 0 || !p.owns(t.UID, classRQT, t.RQT) {
		return target{}
	}
	var in []byte
	var typ byte
	v := matchIpVersion.get(m[:])
	src, dst, ports := m[0x2c:0x30], m[0x3c:0x40], m[0x14:0x18]
	typ = 1 << 2
	if v == 6 {
		src, dst, typ = m[0x20:0x30], m[0x30:0x40], 2<<2
	}
	if t.L4 == 1 {
		ports = m[0x1c:0x20]
	}
	for _, x := range []struct {
		f uint32
		b []byte
	}{{hashSrcIP, src}, {hashDstIP, dst}, {hashSrcPort, ports[:2]}, {hashDstPort, ports[2:]}} {
		if t.Fields&x.f != 0 {
			in = append(in, x.b...)
		}
	}
	if t.Fields&hashSrcPort != 0 {
		typ |= (t.L4 + 1) << 6
	}
	if len(in) == 0 || v == 0 {
		return target{rq: table[0]}
	}
	h := toeplitz(t.Key[:], in)
	return target{rq: table[h%uint32(len(table))], hash: h, hashType: typ}
}

// toeplitz adds for each set bit the 32 bits of the key from its position on. The key of 40 bytes is just enough for an
// input of 36.
func toeplitz(key, in []byte) uint32 {
	var h uint32
	w := be.Uint64(key)
	next := 8
	for _, b := range in {
		for bit := range 8 {
			if b<<bit&0x80 != 0 {
				h ^= uint32(w >> 32)
			}
			w <<= 1
		}
		if next < len(key) {
			w |= uint64(key[next])
			next++
		}
	}
	return h
}
