package connectx

import "github.com/rackless/rackless/rdma/roce"

type tally roce.Traffic

func (t *tally) add(n roce.Traffic) { t.Packets, t.Bytes = t.Packets+n.Packets, t.Bytes+n.Bytes }

type casts struct{ Uni, Multi, Broad tally }

func (c *casts) count(f []byte) {
	t := &c.Uni
	if f[0]&1 != 0 {
		if t = &c.Multi; [6]byte(f[:6]) == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} {
			t = &c.Broad
		}
	}
	t.add(roce.Traffic{Packets: 1, Bytes: uint64(len(f))})
}

func (c *casts) total() (t tally) {
	for _, x := range []tally{c.Uni, c.Multi, c.Broad} {
		t.add(roce.Traffic(x))
	}
	return t
}

type traffic struct {
	EthTx, EthRx   casts
	RDMATx, RDMARx tally
	PrioTx, PrioRx [8]tally
}

// counts are not saved, so a restored adapter starts them at 0. noBuffer counts frames without a large enough buffer,
// tooLong those above the MTU.
type counts struct {
	noSet              *roce.Counters
	txDropped, tooLong uint64
	noBuffer           uint64
	linkDowns          uint64
}

// queryVPortCounter answers with struct query_vport_counter_out: packets and bytes, received before sent, of errors,
// RDMA unicast (rx_vport_rdma_unicast_packets and the like), RDMA multicast, then the host's broadcast, unicast and
// multicast.
func queryVPortCounter(p *Port, _, out []byte, _ uint32) status {
	t := &p.Traffic
	rdmaRx, rdmaTx := p.rdma()
	for i, c := range []tally{{}, {Packets: p.count.txDropped}, rdmaRx, rdmaTx, {}, {}, t.EthRx.Broad, t.EthTx.Broad,
		t.EthRx.Uni, t.EthTx.Uni, t.EthRx.Multi, t.EthTx.Multi} {
		be.PutUint64(out[0x10+16*i:], c.Packets)
		be.PutUint64(out[0x18+16*i:], c.Bytes)
	}
	return ok
}

// rdma counts messages on the direct path as the frames that they would have been (message.counted).
func (p *Port) rdma() (rx, tx tally) {
	rx, tx = p.Traffic.RDMARx, p.Traffic.RDMATx
	rx.add(p.net.Counters.Rx)
	tx.add(p.net.Counters.Tx)
	return rx, tx
}

// allocCounter allocates one of max_qp_cnt's 128 sets except 0, which means none, for the QPs that name it in
// counter_set_id.
func allocCounter(p *Port, _, out []byte, _ uint32) status {
	n := p.number(kindCounter, 128, func(n uint32) bool { return p.Counters[n] != nil })
	if n == 0 {
		return limit
	}
	p.Counters[n] = &roce.Counters{}
	put24(out, n)
	return ok
}

func deallocCounter(p *Port, in, _ []byte, _ uint32) status {
	delete(p.Counters, uint32(in[11]))
	return ok
}

// counterPlace has offsets in QUERY_Q_COUNTER by the names in hw_counters.
var counterPlace = map[string]int{"rx_write_requests": 0x10, "rx_read_requests": 0x18, "rx_atomic_requests": 0x20,
	"out_of_buffer": 0x30, "out_of_sequence": 0x38, "duplicate_request": 0x40, "rnr_nak_retry_err": 0x48,
	"packet_seq_err": 0x50, "implied_nak_seq_err": 0x58, "local_ack_timeout_err": 0x60, "resp_local_length_error": 0x78,
	"resp_cqe_error": 0x90, "req_cqe_error": 0x94, "req_remote_invalid_request": 0xa0, "req_remote_access_errors": 0xa8,
	"resp_remote_access_errors": 0xac, "req_transport_retries_exceeded": 0xb4, "resp_cqe_flush_error": 0xbc,
	"req_cqe_flush_error": 0xc0, "roce_adp_retrans": 0xc8, "roce_slow_restart": 0xd0}

// queryCounter clears the set if asked. Fields have 32 bits and wrap, as on the card.
func queryCounter(p *Port, in, out []byte, _ uint32) status {
	c := p.Counters[uint32(in[0x1f])]
	if c == nil {
		return badResource
	}
	c.Each(func(name string, v uint64) {
		if at := counterPlace[name]; at != 0 {
			be.PutUint32(out[at:], uint32(v))
		}
	})
	if in[0x18]>>7 != 0 {
		*c = roce.Counters{}
	}
	return ok
}

const (
	congRP = 1 // reaction point
	congNP = 2 // notification point
)

// congField has a bit of field_select (the kernel's cong.c). Package roce limits values when it uses them.
type congField struct {
	at  bits
	sel uint
	get func(*roce.Congestion) uint64
	set func(*roce.Congestion, uint64)
}

func congNumber[T uint8 | uint32](at bits, sel uint, f func(*roce.Congestion) *T) congField {
	return congField{at, sel, func(c *roce.Congestion) uint64 { return uint64(*f(c)) },
		func(c *roce.Congestion, v uint64) { *f(c) = T(v) }}
}

func congBool(at bits, sel uint, f func(*roce.Congestion) *bool) congField {
	return congField{at, sel, func(c *roce.Congestion) uint64 {
		if *f(c) {
			return 1
		}
		return 0
	}, func(c *roce.Congestion, v uint64) { *f(c) = v != 0 }}
}

// congFields are debugfs cc_params. Without its bit of field_select a parameter would ignore writes.
var congFields = map[byte][]congField{
	congRP: {
		congBool(rpClampTgtRate, 1, func(c *roce.Congestion) *bool { return &c.ClampTargetRate }),
		congBool(rpClampTgtRateAfterTimeInc, 2, func(c *roce.Congestion) *bool { return &c.ClampTargetRateAfterInc }),
		congNumber(rpRpgTimeReset, 3, func(c *roce.Congestion) *uint32 { return &c.TimeReset }),
		congNumber(rpRpgByteReset, 4, func(c *roce.Congestion) *uint32 { return &c.ByteReset }),
		congNumber(rpRpgThreshold, 5, func(c *roce.Congestion) *uint32 { return &c.Threshold }),
		congNumber(rpRpgAiRate, 7, func(c *roce.Congestion) *uint32 { return &c.AIRate }),
		congNumber(rpRpgHaiRate, 8, func(c *roce.Congestion) *uint32 { return &c.HAIRate }),
		congNumber(rpRpgMinDecFac, 9, func(c *roce.Congestion) *uint32 { return &c.MinDecFac }),
		congNumber(rpRpgMinRate, 10, func(c *roce.Congestion) *uint32 { return &c.MinRate }),
		congNumber(rpRateToSetOnFirstCnp, 11, func(c *roce.Congestion) *uint32 { return &c.RateToSetOnFirstCNP }),
		congNumber(rpDceTcpG, 12, func(c *roce.Congestion) *uint32 { return &c.DCETCPG }),
		congNumber(rpDceTcpRtt, 13, func(c *roce.Congestion) *uint32 { return &c.DCETCPRTT }),
		congNumber(rpRateReduceMonitorPeriod, 14,
			func(c *roce.Congestion) *uint32 { return &c.RateReduceMonitorPeriod }),
		congNumber(rpInitialAlphaValue, 15, func(c *roce.Congestion) *uint32 { return &c.InitialAlpha }),
		congNumber(rpRpgGd, 16, func(c *roce.Congestion) *uint32 { return &c.GD }),
		congNumber(rpRpgMaxRate, 6, func(c *roce.Congestion) *uint32 { return &c.MaxRate }),
	},
	congNP: {
		congNumber(npMinTimeBetweenCnps, 2, func(c *roce.Congestion) *uint32 { return &c.MinTimeBetweenCNPs }),
		congNumber(npCnpDscp, 3, func(c *roce.Congestion) *uint8 { return &c.CNPDSCP }),
		congNumber(npCnp802pPrio, 4, func(c *roce.Congestion) *uint8 { return &c.CNPPrio }),
	},
}

func queryCong(p *Port, in, out []byte, _ uint32) status {
	for _, f := range congFields[in[11]&0xf] {
		f.at.put(out[0x10:], f.get(&p.Cong))
	}
	return ok
}

func modifyCong(p *Port, in, _ []byte, _ uint32) status {
	sel := be.Uint32(in[0xc:])
	for _, f := range congFields[in[11]&0xf] {
		if sel>>f.sel&1 != 0 {
			f.set(&p.Cong, f.at.get(in[0x20:]))
		}
	}
	return ok
}

// queryCongStatus tells whether congestion control is on for a priority, which is above the protocol in in[11].
func queryCongStatus(p *Port, in, out []byte, _ uint32) status {
	on := p.Cong.React
	if in[11]&0xf == congNP {
		on = p.Cong.Notify
	}
	out[0xc] = on >> (in[11] >> 4 & 7) & 1 << 7
	return ok
}

func modifyCongStatus(p *Port, in, _ []byte, _ uint32) status {
	on := &p.Cong.React
	if in[11]&0xf == congNP {
		on = &p.Cong.Notify
	}
	bit := uint8(1) << (in[11] >> 4 & 7)
	*on &^= bit
	if in[0xc]>>7 != 0 {
		*on |= bit
	}
	return ok
}

// queryCongStatistics answers with the port's hw_counters outside of sets: rp_cnp_ignored, rp_cnp_handled,
// np_ecn_marked_roce_packets, np_cnp_sent.
func queryCongStatistics(p *Port, _, out []byte, _ uint32) status {
	w := &p.net.Counters
	for at, v := range map[int]uint64{0x18: w.CNPIgnored, 0x20: w.CNPHandled, 0x54: w.ECNMarked, 0x5c: w.CNPSent} {
		be.PutUint64(out[at:], v)
	}
	return ok
}
