package bench

import "fmt"

// A Wire is the slowest link between two nodes. The zero value is one that nothing is known of, or that is none: what soft RoCE says of its rate is made up.
type Wire struct {
	Rate float64 // Gb/s, as the port says; 0: not known
	MTU  int     // active MTU of the RDMA port: payload of a packet in bytes, 256 to 4096
	IPv6 bool
}

// Bytes that a RoCE v2 packet takes on an Ethernet beside its payload.
const (
	// Preamble and start of frame 8, MAC header 14, check sequence 4, gap to the next frame 12 (IEEE 802.3); UDP 8; base transport header 12 and invariant CRC 4
	// (InfiniBand Architecture Specification, volume 1, 9.2 and annex A17).
	packetBytes = 8 + 14 + 4 + 12 + 8 + 12 + 4
	ipv4Bytes   = 20
	ipv6Bytes   = 40
	rethBytes   = 16 // RDMA extended transport header: in the first packet of a write
	aethBytes   = 4  // ACK extended transport header: in the first and in the last packet of the answer to a read
)

// Limit returns the payload in Gb/s that the wire carries in messages of a size, with one test's operation; 0 where it is not known. Payload is padded to four bytes. With
// 25 Gb/s and an MTU of 4096 it is 24.51 Gb/s, which is what a ConnectX-4 Lx reaches.
func (w Wire) Limit(e Engine, bytes int64) float64 {
	if w.Rate <= 0 || w.MTU <= 0 || bytes <= 0 {
		return 0
	}
	packets := (bytes + int64(w.MTU) - 1) / int64(w.MTU)
	overhead := packets * (packetBytes + ipv4Bytes)
	if w.IPv6 {
		overhead += packets * (ipv6Bytes - ipv4Bytes)
	}
	switch e.Name {
	case "ib_write_bw":
		overhead += rethBytes
	case "ib_read_bw":
		overhead += min(packets, 2) * aethBytes
	case "ib_send_bw":
	default:
		return 0
	}
	padded := (bytes + 3) / 4 * 4
	return w.Rate * float64(bytes) / float64(padded+overhead)
}

// rounding is by how much a good figure may be above the limit: clocks of both sides differ, and the figures are rounded.
const rounding = 0.005

// check refuses an average that is above its limit. A peak may be: it is between any two completions, which come in batches.
func (w Wire) check(e Engine, figures []Figure) error {
	for _, f := range figures {
		if limit := w.Limit(e, f.Bytes); f.Metric == MetricBWAverage && limit > 0 && f.Value > limit*(1+rounding) {
			return &BadResultError{Tool: e.Tool, Reason: fmt.Sprintf("%g Gb/s with messages of %d bytes is more than a link of %g Gb/s carries with an MTU of %d, which is %.4g Gb/s: it went another way, or was measured wrongly",
				f.Value, f.Bytes, w.Rate, w.MTU, limit)}
		}
	}
	return nil
}

// slower returns the wire between two endpoints: nothing is known of it where one of them does not say.
func slower(a, b Wire) Wire {
	if b.Rate < a.Rate {
		a.Rate = b.Rate
	}
	if b.MTU < a.MTU {
		a.MTU = b.MTU
	}
	a.IPv6 = a.IPv6 || b.IPv6
	return a
}
