package connectx

import "github.com/rackless/rackless/rdma/roce"

// The driver's dcbnl (en_dcbnl.c) reads and sets trust, PFC, traffic classes and rates by these registers. `dcb`,
// `mlnx_qos` and `ethtool -a` show them.

// Registers by number (MLX5_REG_*).
const (
	regQPTS  = 0x4002
	regQETCR = 0x4005
	regQTCT  = 0x400a
	regQPDPM = 0x4013
	regQCAM  = 0x4019
	regPFCC  = 0x5007
)

// struct pfcc_reg. The masks select the fields of a write: directly for priorities, and inverted for the link.
const (
	pfccPrioMaskTx bits = 0x28<<8 | 8
	pfccPrioMaskRx bits = 0x38<<8 | 8
	pfccPptx       bits = 0x40<<8 | 1
	pfccPptxMaskN  bits = 0x42<<8 | 1
	pfccPfctx      bits = 0x48<<8 | 8
	pfccPprx       bits = 0x60<<8 | 1
	pfccPprxMaskN  bits = 0x62<<8 | 1
	pfccPfcrx      bits = 0x68<<8 | 8
)

// struct qpts_reg, qtct_reg, qcam_reg, and ets_tcn_config_reg, which qetc_reg has for each traffic class.
const (
	qptsTrustState    bits = 0x3d<<8 | 3
	qtctPrio          bits = 0x1d<<8 | 3
	qtctTclass        bits = 0x3d<<8 | 3
	qcamQpdpm         bits = 0xac<<8 | 1
	qcamQpts          bits = 0xbd<<8 | 1
	etsGroupSet       bits = 0x0<<8 | 1
	etsBandwidthSet   bits = 0x1<<8 | 1
	etsRateSet        bits = 0x2<<8 | 1
	etsGroup          bits = 0xc<<8 | 4
	etsBandwidth      bits = 0x19<<8 | 7
	etsMaxUnits       bits = 0x2c<<8 | 4
	etsMaxValue       bits = 0x38<<8 | 8
	qetcFirst, etsLen      = 8, 8
	qpdpmFirst             = 4
)

const (
	trustPCP, trustDSCP = 1, 2
	units100M, units1G  = 3, 4 // of a rate; 0 means no limit
)

// share is only for the driver to read: classes take turns (see roce.Port).
type share struct{ Group, Bandwidth uint8 }

func (p *Port) qosReg(reg uint32, write bool, d, o []byte) bool {
	switch reg {
	case regPFCC:
		p.flowControl(write, d, o)
	case regQPTS:
		if write {
			p.QoS.TrustDSCP = qptsTrustState.get(d) == trustDSCP
		}
		state := uint64(trustPCP)
		if p.QoS.TrustDSCP {
			state = trustDSCP
		}
		qptsTrustState.put(o, state)
	case regQPDPM:
		for i := range p.QoS.Prio {
			at := qpdpmFirst + 2*i
			if write && d[at]>>7 != 0 {
				p.QoS.Prio[i] = d[at+1] & 7
			}
			be.PutUint16(o[at:], uint16(p.QoS.Prio[i]))
		}
	case regQTCT:
		tc := &p.QoS.TC[qtctPrio.get(d)]
		if write {
			*tc = uint8(qtctTclass.get(d))
		}
		qtctTclass.put(o, uint64(*tc))
	case regQETCR:
		for tc := range p.Shares {
			at := qetcFirst + etsLen*tc
			p.trafficClass(tc, write, d[at:], o[at:])
		}
	case regQCAM:
		putAll(o, map[bits]uint64{qcamQpts: 1, qcamQpdpm: 1})
	default:
		return false
	}
	return true
}

func (p *Port) flowControl(write bool, d, o []byte) {
	c := &p.QoS
	if write {
		if !pfccPptxMaskN.is(d) {
			c.TxPause = pfccPptx.is(d)
		}
		if !pfccPprxMaskN.is(d) {
			c.RxPause = pfccPprx.is(d)
		}
		tx, rx := uint8(pfccPrioMaskTx.get(d)), uint8(pfccPrioMaskRx.get(d))
		c.TxPFC = c.TxPFC&^tx | uint8(pfccPfctx.get(d))&tx
		c.RxPFC = c.RxPFC&^rx | uint8(pfccPfcrx.get(d))&rx
	}
	for f, on := range map[bits]bool{pfccPptx: c.TxPause, pfccPprx: c.RxPause} {
		f.put(o, 0)
		if on {
			f.put(o, 1)
		}
	}
	putAll(o, map[bits]uint64{pfccPfctx: uint64(c.TxPFC), pfccPfcrx: uint64(c.RxPFC)})
	p.netDirty = true
}

func (p *Port) trafficClass(tc int, write bool, d, o []byte) {
	s, rate := &p.Shares[tc], &p.QoS.MaxRate[tc]
	if write && etsGroupSet.is(d) {
		s.Group = uint8(etsGroup.get(d))
	}
	if write && etsBandwidthSet.is(d) {
		s.Bandwidth = uint8(etsBandwidth.get(d))
	}
	if write && etsRateSet.is(d) {
		*rate = etsMaxValue.get(d) * map[uint64]uint64{units100M: 100e6, units1G: 1e9}[etsMaxUnits.get(d)]
	}
	unit, value := uint64(0), uint64(0)
	switch {
	case *rate >= 255*100e6:
		unit, value = units1G, *rate/1e9
	case *rate > 0:
		unit, value = units100M, *rate/100e6
	}
	putAll(o, map[bits]uint64{etsGroup: uint64(s.Group), etsBandwidth: uint64(s.Bandwidth), etsMaxUnits: unit,
		etsMaxValue: value})
}

// priority reads the DSCP if the port trusts it, else the tag, or returns 0.
func (p *Port) priority(f []byte) uint8 {
	kind, ip := ipPacket(f)
	switch {
	case p.QoS.TrustDSCP && kind == 0x0800 && len(ip) > 1:
		return p.QoS.Prio[ip[1]>>2] & 7
	case p.QoS.TrustDSCP && kind == 0x86dd && len(ip) > 1:
		return p.QoS.Prio[be.Uint16(ip)>>6&63] & 7
	case len(f) >= 18 && be.Uint16(f[12:]) == etherVLAN:
		return f[14] >> 5
	}
	return 0
}

// prioCounters answers a group of PPCNT. Bytes and frames include RDMA and the guest's stack.
func (p *Port) prioCounters(prio byte, put func(at int, v uint64)) {
	t, w := &p.Traffic, &p.net.Counters
	rx, tx := roce.Traffic(t.PrioRx[prio]), roce.Traffic(t.PrioTx[prio])
	for at, v := range map[int]uint64{0x00: rx.Bytes + w.RxPrio[prio].Bytes, 0x20: rx.Packets + w.RxPrio[prio].Packets,
		0x28: tx.Bytes + w.TxPrio[prio].Bytes, 0x48: tx.Packets + w.TxPrio[prio].Packets, 0x50: w.RxPause[prio],
		0x58: w.PausedUS[prio], 0x70: w.RxTransitions[prio]} {
		put(at, v)
	}
}
