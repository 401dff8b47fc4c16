package roce

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// realFrames were sent by adapters, as published with the RoCE layer of Scapy.
var realFrames = map[string]string{
	"CNP of a ConnectX-4 Lx": "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a0012010000 12b700280000" +
		"8100ffff400001180000000000000000000000000000000000000000 82fd002a",
	"UC SEND only, padded": "248a07a8fa22248a07a8fa2208004501004004784000 4011b4d5c0a80007c0a80007c00012b7002caca2" +
		"2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3",
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFramesOfRealAdaptersHaveTheCRCThatWeCompute(t *testing.T) {
	for name, s := range realFrames {
		frame := unhex(t, s)
		var p Packet
		if err := Parse(frame, &p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, i := range []int{19, 30, 33, 45, len(frame) - 1} {
			bad := bytes.Clone(frame)
			bad[i] ^= 4
			if err := Parse(bad, &p); err != ErrICRC {
				t.Errorf("%s: with byte %d changed: %v, want %v", name, i, err, ErrICRC)
			}
		}
		// A router changes these bytes.
		for _, i := range []int{15, 22, 24, 40} {
			ok := bytes.Clone(frame)
			ok[i] ^= 4
			if err := Parse(ok, &p); err != nil {
				t.Errorf("%s: with byte %d changed: %v", name, i, err)
			}
		}
	}
}

// The kernel's soft RoCE is an independent reference.
func TestFramesOfSoftRoCEAreOurs(t *testing.T) {
	text, err := os.ReadFile("testdata/rxe.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		op, hexed, frame := strings.Cut(strings.TrimSpace(line), " ")
		if op == "#" || !frame {
			continue
		}
		n++
		b := unhex(t, hexed)
		var p Packet
		if err := Parse(b, &p); err != nil || fmt.Sprintf("%02x", uint8(p.Opcode)) != op {
			t.Errorf("opcode %s: read as %#x, %v", op, p.Opcode, err)
			continue
		}
		got := p.Append(nil)
		// Soft RoCE counts IP identifications, and does not set MigReq, which only a change of path needs.
		for _, f := range [][]byte{b, got} {
			copy(f[18:], []byte{0, 0})
			copy(f[24:], []byte{0, 0})
			f[14+20+8+1] &^= 0x40
		}
		if end := len(b) - sizeICRC; !bytes.Equal(got[:end], b[:end]) {
			t.Errorf("opcode %s: built\n%x, soft RoCE\n%x", op, got[:end], b[:end])
		}
	}
	if n != 17 {
		t.Errorf("%d frames", n)
	}
}

func TestCNPIsThatOfAConnectX(t *testing.T) {
	frame := unhex(t, realFrames["CNP of a ConnectX-4 Lx"])
	var p Packet
	if err := Parse(frame, &p); err != nil {
		t.Fatal(err)
	}
	if p.Opcode != opCNP || !p.BECN || p.DstQP != 0x118 || p.TClass != 48<<2|ecnECT0 || len(p.Payload) != sizeCNP {
		t.Errorf("parsed: %+v", p)
	}
	got := p.Append(nil)
	// The card counts IP identifications.
	for _, f := range [][]byte{frame, got} {
		copy(f[18:], []byte{0, 0})
		copy(f[24:], []byte{0, 0})
	}
	if n := len(frame) - sizeICRC; !bytes.Equal(got[:n], frame[:n]) {
		t.Errorf("built\n%x, the card\n%x", got[:n], frame[:n])
	}
}

// packets returns each opcode, over IPv4 and IPv6, with and without tag, with all paddings, and in RoCE v1.
func packets() (l []Packet) {
	r := rand.New(rand.NewPCG(3, 4))
	for i, h := range opInfo {
		if h == 0 {
			continue
		}
		p := Packet{SrcMAC: [6]byte{2, 1}, DstMAC: [6]byte{2, 2}, TClass: uint8(r.Uint32()), HopLimit: 64,
			SrcPort: 0xc000 | uint16(r.Uint32()), Opcode: Opcode(i), PKey: 0xffff, DstQP: r.Uint32() & psnMask,
			PSN: r.Uint32() & psnMask, AckReq: i%2 == 0 && h&hCNP == 0, Solicited: i%3 == 0 && h&hCNP == 0,
			BECN: h&hCNP != 0}
		p.Src, p.Dst = GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}
		if i%2 == 1 {
			p.Src, p.Dst, p.FlowLabel = GID{0: 0xfd, 15: 1}, GID{0: 0xfd, 15: 2}, r.Uint32()&0xfffff
		}
		if i%3 == 0 {
			p.Tagged, p.TCI = true, 3<<13|100
		}
		if h&(hRETH|hAtomic) != 0 {
			p.VA, p.RKey = r.Uint64(), r.Uint32()
		}
		if h&hRETH != 0 {
			p.Len = r.Uint32()
		}
		if h&hAtomic != 0 {
			p.Operand, p.Want = r.Uint64(), r.Uint64()
		}
		if h&hAETH != 0 {
			p.Syndrome, p.MSN = aethACK, r.Uint32()&psnMask
		}
		if h&hAtomicAck != 0 {
			p.Original = r.Uint64()
		}
		if h&(hImm|hIETH) != 0 {
			p.Imm = r.Uint32()
		}
		if h&hXRC != 0 {
			p.SRQ = r.Uint32() & psnMask
		}
		if h&hDETH != 0 {
			p.QKey, p.SrcQP = r.Uint32(), r.Uint32()&psnMask
		}
		if h&hPayload != 0 {
			p.Payload = bytes.Repeat([]byte{byte(i)}, 5+i%7)
		}
		if h&hCNP != 0 {
			p.Payload = make([]byte, sizeCNP)
		}
		l = append(l, p)
	}
	for _, p := range l {
		if p.V1, p.SrcPort = true, 0; p.Opcode != opCNP {
			l = append(l, p)
		}
	}
	return l
}

func TestEachPacketIsReadAsItWasBuilt(t *testing.T) {
	for _, p := range packets() {
		frame := p.Append(nil)
		var got Packet
		if err := Parse(frame, &got); err != nil {
			t.Errorf("opcode %#x: %v", p.Opcode, err)
			continue
		}
		l3 := got.L3
		got.L3, got.h, got.pad, p.h, p.pad = nil, 0, 0, 0, 0
		if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", p); a != b {
			t.Errorf("opcode %#x:\nread  %s\nbuilt %s", p.Opcode, a, b)
		}
		if to, found := Destination(frame); !found || to != p.Dst {
			t.Errorf("opcode %#x: destination %v, %v", p.Opcode, to, found)
		}
		if n := len(l3); n != 20 && n != 40 {
			t.Errorf("opcode %#x: IP header of %d bytes", p.Opcode, n)
		}
		// A truncated frame must be an error, never a panic.
		for i := range frame {
			if Parse(frame[:i], &got) == nil {
				t.Errorf("opcode %#x: %d of %d bytes parse", p.Opcode, i, len(frame))
			}
		}
	}
}

// slowICRC follows the rules of annexes A16 and A17.3.3 bit by bit.
func slowICRC(frame []byte) uint32 {
	ip := 14
	if frame[12] == 0x81 {
		ip += 4
	}
	v1 := frame[ip-2] == 0x89
	b := append(bytes.Repeat([]byte{0xff}, 8), frame[ip:len(frame)-4]...)
	ones := func(i ...int) {
		for _, i := range i {
			b[8+i] = 0xff
		}
	}
	l4 := 20
	if b[8]>>4 == 4 {
		ones(1, 8, 10, 11)
	} else {
		l4 = 40
		b[8] |= 0xf
		ones(1, 2, 3, 7)
	}
	if v1 {
		ones(l4 + 4)
	} else {
		ones(l4+6, l4+7, l4+8+4)
	}
	crc := ^uint32(0)
	for _, x := range b {
		for bit := range 8 {
			if (crc^uint32(x)>>bit)&1 != 0 {
				crc = crc>>1 ^ 0xedb88320
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

func TestCRCFollowsTheRules(t *testing.T) {
	for _, p := range packets() {
		frame := p.Append(nil)
		if got, want := le.Uint32(frame[len(frame)-4:]), slowICRC(frame); got != want {
			t.Errorf("opcode %#x: CRC %#x, want %#x", p.Opcode, got, want)
		}
	}
}

func TestFramesThatAreNotOursAreLeftAlone(t *testing.T) {
	p := packets()[0]
	ok := p.Append(nil)
	change := func(i int, v byte) []byte {
		b := bytes.Clone(ok)
		b[i] = v
		return b
	}
	o := sizeEther + 4 // it has a tag
	for name, frame := range map[string][]byte{
		"ARP": change(17, 6), "TCP": change(o+9, 6), "another port": change(o+22, 80), "a fragment": change(o+6, 0x20),
		"IPv4 options": change(o, 0x46), "nothing": nil, "a runt": ok[:20],
	} {
		var got Packet
		if err := Parse(frame, &got); err != ErrNotRoCE {
			t.Errorf("%s: %v", name, err)
		}
		if to, found := Destination(frame); found {
			t.Errorf("%s: destination %v", name, to)
		}
	}
}

func TestFramesOfV1AreEtherType8915WithAGRH(t *testing.T) {
	p := Packet{SrcMAC: [6]byte{2, 1}, DstMAC: [6]byte{2, 2}, V1: true, Src: GID{10: 0xff, 11: 0xff, 12: 10, 15: 1},
		Dst: GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, TClass: 0x20, FlowLabel: 0x12345, HopLimit: 3, Opcode: opSendOnly,
		PKey: 0xffff, DstQP: 0x11, PSN: 5, Payload: []byte("hello")}
	frame := p.Append(nil)
	// The GRH counts BTH, payload with padding, and ICRC.
	want := unhex(t, "020200000000 020100000000 8915 62012345 0018 1b 03 00000000000000000000ffff0a000001"+
		"00000000000000000000ffff0a000002 0470ffff 00000011 00000005 68656c6c6f 000000")
	if !bytes.Equal(frame[:len(frame)-sizeICRC], want) {
		t.Errorf("built\n%x, want\n%x", frame, want)
	}
	change := func(i int, v byte) []byte {
		b := bytes.Clone(frame)
		b[i] = v
		return b
	}
	padded := append(bytes.Clone(frame), make([]byte, 20)...)
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"as built": {frame, nil}, "padded by Ethernet": {padded, nil}, "another hop limit": {change(21, 1), nil},
		"another traffic class": {change(14, 0x6f), nil}, "an IPv4 header": {change(14, 0x45), ErrVersion},
		"UDP in the GRH": {change(20, protoUDP), ErrVersion}, "another address": {change(53, 3), ErrICRC},
		"a length of 0": {change(19, 0), ErrShort}, "a length beyond the frame": {change(18, 1), ErrShort},
		"only a GRH": {frame[:54], ErrShort}, "no CRC": {change(len(frame)-1, frame[len(frame)-1]^1), ErrICRC},
	} {
		var got Packet
		if err := Parse(c.frame, &got); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func decode(t *testing.T, frames [][]byte, fields ...string) []string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("tshark is needed: hack/setup.sh installs it")
	}
	name := filepath.Join(t.TempDir(), "a.pcap")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, b := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	// The payload is random.
	args := []string{"-r", name, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "--disable-protocol",
		"rpcordma"}
	for _, x := range fields {
		args = append(args, "-e", x)
	}
	out, err := exec.Command(tshark, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestWiresharkDecodesEachPacketAsItWasBuilt(t *testing.T) {
	var frames [][]byte
	all := packets()
	for _, p := range all {
		frames = append(frames, p.Append(nil))
	}
	lines := decode(t, frames, "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn",
		"infiniband.invariant.crc", "infiniband.bth.padcnt", "_ws.malformed",
		"infiniband.reth.dmalen", "infiniband.deth.srcqp", "infiniband.immdt")
	if len(lines) != len(all) {
		t.Fatalf("%d lines for %d frames:\n%s", len(lines), len(all), strings.Join(lines, "\n"))
	}
	for i, p := range all {
		if p.Opcode&serviceMask == serviceDC {
			continue // Wireshark knows no opcodes of manufacturers
		}
		opt := func(h header, format string, v uint32) string {
			if opInfo[p.Opcode]&h == 0 || p.Opcode&serviceMask == serviceXRC {
				return ""
			}
			return fmt.Sprintf(format, v)
		}
		imm := opt(hImm, "%08x", p.Imm)
		crc := fmt.Sprintf("0x%08x", be.Uint32(frames[i][len(frames[i])-4:]))
		if p.Opcode == opCNP || p.Opcode&serviceMask == serviceXRC {
			crc = "" // Wireshark 4.0 reads nothing after the BTH of XRC
		}
		want := fmt.Sprintf("%d|0x%06x|%d|%s|%d||%s|%s|%s", p.Opcode, p.DstQP, p.PSN, crc, -len(p.Payload)&3,
			opt(hRETH, "%d", p.Len), opt(hDETH, "0x%08x", p.SrcQP), imm)
		if lines[i] != want {
			t.Errorf("opcode %#x: Wireshark says\n%s\nwant\n%s", p.Opcode, lines[i], want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, p := range packets() {
		f.Add(p.Append(nil))
	}
	for _, s := range realFrames {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		Destination(b)
		if err := Parse(b, &p); err == ErrICRC {
			// A valid CRC lets the fuzzer reach later checks.
			le.PutUint32(b[len(b)-4:], slowICRC(b))
			_ = Parse(b, &p)
		} else if err == nil && !p.Src.Is4() && len(p.L3) == 20 {
			t.Error("an IPv4 packet without IPv4 addresses")
		}
	})
}

func TestConversationIsDecoded(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) {
		p := &a.Path
		p.Src, p.Dst = GID{0: 0xfd, 15: p.Src[15]}, GID{0: 0xfd, 15: p.Dst[15]}
		p.Tagged, p.VLAN, p.TClass, p.FlowLabel, a.MTU = true, 100, 26<<2, 0xabcde, 256
	})
	a, b := s.nodes[0], s.nodes[1]
	var frames [][]byte
	s.tap = func(f []byte) {
		frames = append(frames, f)
		if got, want := le.Uint32(f[len(f)-4:]), slowICRC(f); got != want {
			t.Errorf("frame %d: CRC %#x, want %#x", len(frames), got, want)
		}
	}
	b.recvs = []RecvWR{{SG: local(0, 1000)}, {SG: local(0, 1000)}, {SG: local(0, 1000)}}
	b.mem[7] = &region{}
	for op := WRSend; op <= WRFetchAdd; op++ {
		n := 700
		if op.atomic() {
			n = 8
		}
		if op == WRWriteImm {
			n = 1
		}
		a.post(SendWR{Op: op, Imm: 7, SG: local(0, n), VA: remoteVA, RKey: keyRemote})
	}
	s.run(time.Millisecond)
	b.recvs = append(b.recvs, RecvWR{})
	s.run(10 * time.Millisecond)
	var got []string
	for i, l := range decode(t, frames, "vlan.id", "vlan.priority", "ipv6.tclass.dscp", "infiniband.bth.opcode",
		"infiniband.aeth.syndrome.opcode", "_ws.malformed") {
		x := strings.Split(l, "|")
		if len(x) != 6 || x[0] != "100" || x[1] != "3" || x[2] != "26" || x[5] != "" {
			t.Errorf("frame %d: %s", i+1, l)
			continue
		}
		got = append(got, x[3])
	}
	seen := strings.Join(got, " ")
	for _, want := range []string{"0 1 2", "0 1 3", "0 1 22", "6 7 8", "11", "12", "13 14 15", "17", "18", "19", "20"} {
		if !strings.Contains(" "+seen+" ", " "+want+" ") {
			t.Errorf("no %q in %s", want, seen)
		}
	}
}
