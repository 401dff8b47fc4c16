package fabric

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// udpFrame is a RoCE v2 packet that supports ECN, with its source port as tag.
func udpFrame(dst, src int, port uint16, size int) []byte {
	f := ipv4Frame(station(dst), station(src), 2, size, uint32(port))
	ip := f[minFrame:]
	ip[15], ip[19] = byte(src), byte(dst)
	binary.BigEndian.PutUint16(ip[ipv4Header:], port)
	binary.BigEndian.PutUint16(ip[ipv4Header+2:], rocePort)
	copy(ip[ipv4Header+12:], []byte{0, 0, 1, byte(port)}) // destination QP
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], ^ipSum(ip[:ipv4Header]))
	return f
}

func TestFlowOf(t *testing.T) {
	roce := udpFrame(1, 2, 0xc123, 100)
	v6 := ipv6Frame(station(1), station(2), 0, 100, 0x01020304)
	fragment := udpFrame(1, 2, 0xc123, 100)
	fragment[minFrame+6] = 0x20
	cut := udpFrame(1, 2, 0xc123, 100)[:minFrame+ipv4Header+3]
	options := udpFrame(1, 2, 0xc123, 100)
	options[minFrame] = 0x4f // 60 bytes, of which the frame has fewer after its end
	arp := frame(broadcast, station(2), 60, 0)
	ports := func(f Flow) string { return fmt.Sprintf("%d %d>%d", f.Proto, f.SrcPort, f.DstPort) }
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"RoCE v2", roce, "17 49443>4791"},
		{"in a VLAN", tagged(roce, etherVLAN), "17 49443>4791"},
		{"a fragment", fragment, "17 0>0"},
		{"ports that are cut off", cut, "17 0>0"},
		{"options that are cut off", options[:minFrame+ipv4Header+30], "17 0>0"},
		{"not IP", arp, "0 0>34997"},
		{"the shortest frame", make([]byte, minFrame), "0 0>0"},
	} {
		if got := ports(FlowOf(tt.in)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	a, b := FlowOf(roce), FlowOf(tagged(roce, etherVLAN))
	if a != b || a.Hash() != b.Hash() {
		t.Error("a tag changes the flow")
	}
	six, other := FlowOf(v6), FlowOf(v6)
	other.Src[0]++
	if six.Src == (Flow{}).Src || six.Hash() == other.Hash() {
		t.Errorf("%+v: the first byte of an address does not matter", six)
	}
}

// Paths are evenly used, and independent from leaf to leaf.
func TestChoose(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		const flows = 4000
		count, alike := make([]int, n), 0
		for i := range flows {
			f := Flow{Proto: protoUDP, DstPort: rocePort, SrcPort: uint16(0xc000 + i)}
			h := f.Hash()
			k := Choose(h, Salt(DefaultSeed, 0), n)
			count[k]++
			if k == Choose(h, Salt(DefaultSeed, 1), n) {
				alike++
			}
		}
		for k, c := range append(count, alike) {
			if c < flows/n*8/10 || c > flows/n*12/10 {
				t.Errorf("%d of %d paths: %d of %d flows", k, n, c, flows)
			}
		}
	}
}
