package fabric

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// ipv4Frame returns a correct IPv4 header with DSCP 26 and the given ECN bits, followed by tag.
func ipv4Frame(dst, src mac, ecn byte, size int, tag uint32) []byte {
	f := frame(dst, src, size, tag)
	f[12], f[13] = 0x08, 0x00
	ip := f[minFrame:]
	copy(ip, []byte{0x45, 26<<2 | ecn, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], uint16(tag))
	binary.BigEndian.PutUint16(ip[10:], ^ipSum(ip[:ipv4Header]))
	return f
}

func ipv6Frame(dst, src mac, ecn byte, size int, tag uint32) []byte {
	f := frame(dst, src, size, tag)
	f[12], f[13] = 0x86, 0xdd
	ip := f[minFrame:]
	class := 26<<2 | ecn
	ip[0], ip[1] = 0x60|class>>4, class<<4|0x0a
	return f
}

func tagged(f []byte, kinds ...uint16) []byte {
	out := bytes.Clone(f[:12])
	for i, kind := range kinds {
		out = binary.BigEndian.AppendUint16(out, kind)
		out = binary.BigEndian.AppendUint16(out, uint16(100+i))
	}
	return append(out, f[12:]...)
}

// ipSum returns the Internet checksum by its definition, not inverted: 0xffff for a correct header.
func ipSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

func TestMarkCE(t *testing.T) {
	v4 := func(ecn byte) []byte { return ipv4Frame(station(1), station(2), ecn, 100, 5) }
	v6 := func(ecn byte) []byte { return ipv6Frame(station(1), station(2), ecn, 100, 5) }
	short := v4(1)[:minFrame+ipv4Header-1]
	headless := v4(1)
	headless[minFrame] = 0x44
	wrongVersion := v4(1)
	wrongVersion[minFrame] = 0x65
	tests := []struct {
		name     string
		in, want []byte // want is nil if nothing changes
	}{
		{"IPv4, ECT(0)", v4(2), v4(3)},
		{"IPv4, ECT(1)", v4(1), v4(3)},
		{"IPv4, not ECT", v4(0), nil},
		{"IPv4, marked before", v4(3), nil},
		{"IPv6, ECT(0)", v6(2), v6(3)},
		{"IPv6, ECT(1)", v6(1), v6(3)},
		{"IPv6, not ECT", v6(0), nil},
		{"IPv6, marked before", v6(3), nil},
		{"one VLAN tag", tagged(v4(1), etherVLAN), tagged(v4(3), etherVLAN)},
		{"two VLAN tags", tagged(v6(1), etherQinQ, etherVLAN), tagged(v6(3), etherQinQ, etherVLAN)},
		{"three VLAN tags", tagged(v4(1), etherVLAN, etherVLAN, etherVLAN), nil},
		{"a header that is cut off", short, nil},
		{"a tag that is cut off", tagged(v4(1), etherVLAN)[:15], nil},
		{"the version of another protocol", wrongVersion, nil},
		{"a header length below the least", headless, nil},
		{"RoCE v1, whose GRH begins like IPv6", v1Frame(1, 2, nil), nil},
		{"ARP", frame(station(1), station(2), 60, 1), nil},
		{"less than a frame", v4(1)[:10], nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := bytes.Clone(tt.in)
			changed := MarkCE(got)
			want := tt.want
			if want == nil {
				want = tt.in
			}
			if changed != (tt.want != nil) || !bytes.Equal(got, want) {
				t.Errorf("MarkCE() = %v\n got %x\nwant %x", changed, got, want)
			}
		})
	}
}

func TestEveryChecksumStaysRight(t *testing.T) {
	// With all identifications the checksum takes all values too, including 0 and 0xffff.
	for id := range 1 << 16 {
		for _, ecn := range []byte{1, 2} {
			f := ipv4Frame(1, 2, ecn, 60, uint32(id))
			if !MarkCE(f) || ipSum(f[minFrame:minFrame+ipv4Header]) != 0xffff {
				t.Fatalf("identification %#x: the checksum is wrong: %x", id, f)
			}
		}
	}
	// RFC 1624 has this example in which the older equation is wrong.
	if got := updateChecksum(0xdd2f, 0x5555, 0x3285); got != 0 {
		t.Errorf("RFC 1624, section 4: got %#04x, want 0", got)
	}
}

func FuzzMarkCE(f *testing.F) {
	f.Add(ipv4Frame(1, 2, 1, 60, 1))
	f.Add(ipv6Frame(1, 2, 2, 60, 1))
	f.Add(tagged(ipv4Frame(1, 2, 2, 60, 1), etherVLAN))
	f.Add(tagged(ipv4Frame(1, 2, 1, 60, 1), etherQinQ, etherVLAN)[:30])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		got := bytes.Clone(in)
		if !MarkCE(got) {
			if !bytes.Equal(got, in) {
				t.Fatalf("changed without saying so: %x to %x", in, got)
			}
			return
		}
		changed := 0
		for i := range in {
			if got[i] != in[i] {
				changed++
			}
		}
		if changed > 3 {
			t.Fatalf("%d bytes changed: %x to %x", changed, in, got)
		}
		if MarkCE(got) {
			t.Fatalf("marked twice: %x", got)
		}
		// gopacket leaves a layer that it could not decode without a version.
		p := gopacket.NewPacket(got, layers.LayerTypeEthernet, gopacket.Default)
		if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok && ip.Version == 4 && ip.TOS&ecnMask != ecnCE {
			t.Fatalf("IPv4 type of service %#x", ip.TOS)
		}
		if ip, ok := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ok && ip.Version == 6 &&
			ip.TrafficClass&ecnMask != ecnCE {
			t.Fatalf("IPv6 traffic class %#x", ip.TrafficClass)
		}
	})
}
