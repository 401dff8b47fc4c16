package bench

import (
	"fmt"
)

// A Wire is the slowest link between two nodes. The zero value is unknown, as for soft RoCE.
type Wire struct {
	Rate  float64 // Gb/s of one link, as reported by the port; 0 if unknown
	Links int     // of a bond; 0 and 1 mean one
	MTU   int     // payload bytes of a packet, 256 to 4096
	IPv6  bool
}

// Bytes of a RoCE v2 packet on Ethernet in addition to its payload.
const (
	// Preamble and start of frame 8, MAC header 14, check sequence 4, gap to the next frame 12 (IEEE 802.3); UDP 8;
	// base transport header 12 and invariant CRC 4 (InfiniBand Architecture Specification, volume 1, 9.2 and annex
	// A17).
	packetBytes = 8 + 14 + 4 + 12 + 8 + 12 + 4
	ipv4Bytes   = 20
	ipv6Bytes   = 40
	rethBytes   = 16 // in the first packet of a write
	aethBytes   = 4  // in the first and in the last packet of a read response
	dethBytes   = 8  // in every packet of a datagram
	immBytes    = 4  // in the last packet of a write with it
)

// PacketHeaders are the bytes of a packet of RoCE v2 over IPv4 that are not payload.
const PacketHeaders = packetBytes + ipv4Bytes

// Limit returns the payload in Gb/s of messages of a size over all links of a bond; 0 if unknown. With 25 Gb/s and an
// MTU of 4096 it is 24.51 Gb/s, which a ConnectX-4 Lx reaches.
func (w Wire) Limit(e Engine, bytes int64) float64 {
	if w.Rate <= 0 || w.MTU <= 0 || bytes <= 0 {
		return 0
	}
	t := e.Traffic()
	packets := (bytes + int64(w.MTU) - 1) / int64(w.MTU)
	overhead := packets * (packetBytes + ipv4Bytes)
	if w.IPv6 {
		overhead += packets * (ipv6Bytes - ipv4Bytes)
	}
	switch t.Operation {
	case "write":
		overhead += rethBytes
	case "read":
		overhead += min(packets, 2) * aethBytes
	case "send":
	default:
		return 0 // MPI chooses the transport, with its own headers
	}
	if t.Datagrams {
		overhead += packets * dethBytes
	}
	if t.Immediate {
		overhead += immBytes
	}
	// The pad count of the base transport header pads payload to a multiple of four bytes.
	padded := (bytes + 3) / 4 * 4
	limit := w.links() * w.Rate * float64(bytes) / float64(padded+overhead)
	if t.Both {
		limit *= 2 // perftest adds up both directions
	}
	return limit
}

// links returns at least 1: a port outside a bond has 0.
func (w Wire) links() float64 { return float64(max(1, w.Links)) }

func (w Wire) text() string {
	if w.Links > 1 {
		return fmt.Sprintf("a bond of %d links of %g Gb/s", w.Links, w.Rate)
	}
	return fmt.Sprintf("a link of %g Gb/s", w.Rate)
}

// rounding may exceed the limit: the clocks of both sides differ, and figures are rounded.
const rounding = 0.005

// Check refuses figures that no wire of this rate allows, except a peak bandwidth: completions come in batches.
func (w Wire) Check(e Engine, figures []Figure) error {
	bad := func(format string, args ...any) error {
		return &BadResultError{Tool: e.Tool, Reason: fmt.Sprintf(format, args...) +
			": it took another path, or was measured wrongly"}
	}
	for _, f := range figures {
		if limit := w.Limit(e, f.Bytes); f.Metric == MetricBWAverage && limit > 0 && f.Value > limit*(1+rounding) {
			return bad("%g Gb/s with messages of %d bytes is more than %s carries with an MTU of %d, which is %.4g "+
				"Gb/s", f.Value, f.Bytes, w.text(), w.MTU, limit)
		}
		if w.Rate <= 0 || e.Local {
			continue
		}
		most := w.links() * w.Rate
		if e.Traffic().Both {
			most *= 2
		}
		if f.Unit == UnitGbps && f.Metric != MetricBWPeak && f.Value > most*(1+rounding) {
			return bad("%g Gb/s is more than %s carries", f.Value, w.text())
		}
		if least := w.leastLatency(e, f.Bytes); f.Unit == UnitUsec && f.Metric != MetricLatencyStdev &&
			f.Value < least*(1-rounding) {
			return bad("%s of %g us is less than the %.4g us that a link of %g Gb/s takes to carry the message",
				f.Metric, f.Value, least, w.Rate)
		}
	}
	return nil
}

// leastLatency is in microseconds: twice the wire for an echo, once for messages one way or answered without payload.
func (w Wire) leastLatency(e Engine, bytes int64) float64 {
	times := 1.0
	if echo := e.Traffic().Echo; echo > 0 {
		times, bytes = 2, echo
	}
	return times * float64(bytes) * 8 / (w.Rate * 1e3)
}

// SlowerWire is unknown if one of the endpoints does not say.
func SlowerWire(a, b Wire) Wire {
	return Wire{Rate: min(a.Rate, b.Rate), MTU: min(a.MTU, b.MTU), Links: min(max(1, a.Links), max(1, b.Links)),
		IPv6: a.IPv6 || b.IPv6}
}

// TCPLimit is the rate of TCP's payload: segments that fill the MTU, with time stamps, which Linux sends (RFC 7323).
func TCPLimit(rate float64, mtu int, ipv6 bool) float64 {
	const tcpBytes, ethernet = 20 + 12, 8 + 14 + 4 + 12
	ip := ipv4Bytes
	if ipv6 {
		ip = ipv6Bytes
	}
	if rate <= 0 || mtu <= ip+tcpBytes {
		return 0
	}
	return rate * float64(mtu-ip-tcpBytes) / float64(mtu+ethernet)
}
