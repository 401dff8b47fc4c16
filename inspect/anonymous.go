package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// identities replaces what identifies a machine: hardware addresses, addresses, GUIDs, UUIDs and
// serial numbers, the same one by the same substitute everywhere and in every form, so that what
// belongs together stays together. A GID that is made from a MAC address is then made from the
// substitute of that address.
//
// Substitutes are numbered in the order in which the originals are first met, and have the form and
// the length of the original:
//
//	MAC address   02:00:00:00:00:01      locally administered (IEEE 802)
//	UUID          00000000-0000-0000-0000-000000000001
//	IPv4          198.18.N.H             for benchmarks (RFC 2544): networks of 24 bits stay apart
//	IPv6          2001:db8:0:N::H        for documentation (RFC 3849): networks of 64 bits stay apart
//	GUID          02000000010000001, or of the MAC address that it is made from
type identities struct {
	macs     map[[6]byte]uint32
	guids    map[[8]byte]uint32 // those that are not made from a MAC address
	uuids    map[string]uint32  // lower case
	nets4    map[[3]byte]uint32
	hosts4   map[[4]byte]uint32
	inNet4   map[[3]byte]uint32 // hosts met in a network
	nets6    map[[8]byte]uint32
	serials  map[string]uint32
	words    map[string]uint32
	domains  map[string]uint32
	keep     map[string]bool   // words of this machine that are no names: network devices, the kernel's release
	hosts    []string          // names of the host
	bare     map[string]string // learned identities without separators, lower case, by substitute
	hardware map[[6]byte]bool  // MAC addresses that a network device has
}

func newIdentities() *identities {
	return &identities{
		inNet4: map[[3]byte]uint32{}, hosts4: map[[4]byte]uint32{}, keep: map[string]bool{}, bare: map[string]string{},
		hardware: map[[6]byte]bool{},
	}
}

// number returns the number of a key, the next one where it is new.
func number[K comparable](m *map[K]uint32, key K) uint32 {
	n, ok := (*m)[key]
	if !ok {
		n = uint32(len(*m) + 1)
		lists.Put(m, key, n)
	}
	return n
}

// groups are how addresses start that mean the same everywhere: the broadcast, and groups of IEEE 802.1, IPv4 and IPv6.
var groups = [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0x80, 0xc2}, {0x01, 0x00, 0x5e}, {0x33, 0x33}}

// mac returns the substitute of a MAC address. Zeros and group addresses are nobody's.
func (d *identities) mac(b [6]byte) [6]byte {
	if b == [6]byte{} || slices.ContainsFunc(groups, func(g []byte) bool { return bytes.HasPrefix(b[:], g) }) {
		return b
	}
	return d.oui(b)
}

// oui is mac for what is surely of a device.
func (d *identities) oui(b [6]byte) [6]byte {
	n := number(&d.macs, b)
	return [6]byte{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}
}

// guid returns the substitute of an EUI-64. There are three ways to make one from a MAC address:
// ff:fe in the middle and the bit for "locally administered" turned over (RFC 4291, appendix A:
// interface identifiers, GIDs), the same without the turn, and 03:00, 00:00 or ff:ff in the middle
// (node GUIDs of mlx4 and mlx5, bnxt, older cards).
func (d *identities) guid(b [8]byte) [8]byte {
	if b == [8]byte{} {
		return b
	}
	middle := [2]byte(b[3:5])
	plain := [6]byte{b[0], b[1], b[2], b[5], b[6], b[7]}
	turned := plain
	turned[0] ^= 2
	var sub [6]byte
	switch {
	case d.hardware[plain]:
		sub = d.oui(plain)
	case middle == [2]byte{0xff, 0xfe}:
		sub = d.oui(turned)
		sub[0] ^= 2
	case middle == [2]byte{3, 0}, middle == [2]byte{}, middle == [2]byte{0xff, 0xff}:
		sub = d.oui(plain)
	default:
		n := number(&d.guids, b)
		return [8]byte{2, 0, 0, 1, 0, byte(n >> 16), byte(n >> 8), byte(n)}
	}
	return eui(sub, middle)
}

// eui makes an EUI-64 of a MAC address and what stands in its middle.
func eui(mac [6]byte, middle [2]byte) [8]byte {
	return [8]byte{mac[0], mac[1], mac[2], middle[0], middle[1], mac[3], mac[4], mac[5]}
}

// addr returns the substitute of an IP address. Those that mean the same everywhere are kept.
func (d *identities) addr(a netip.Addr) netip.Addr {
	switch {
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast():
		return a
	case a.Is4():
		return netip.AddrFrom4(d.addr4(a.As4()))
	case a.Is4In6():
		b := a.As16()
		mapped := d.addr4([4]byte(b[12:]))
		copy(b[12:], mapped[:])
		return netip.AddrFrom16(b)
	}
	b := a.As16()
	low := [8]byte(b[8:])
	// Routers and other hosts that were numbered by hand tell nothing but their number.
	if binary.BigEndian.Uint64(low[:])>>16 != 0 {
		low = d.guid(low)
	}
	copy(b[8:], low[:])
	if !a.IsLinkLocalUnicast() {
		n := number(&d.nets6, [8]byte(b[:8]))
		copy(b[:8], []byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16(b).WithZone(a.Zone())
}

func (d *identities) addr4(b [4]byte) [4]byte {
	if a := netip.AddrFrom4(b); b[0] == 0 || b[0] == 255 || a.IsLoopback() || a.IsMulticast() ||
		a.IsLinkLocalUnicast() {
		return b // netmasks are as numbers, too
	}
	net := [3]byte(b[:3])
	n := number(&d.nets4, net) - 1
	h, ok := d.hosts4[b]
	switch {
	case !ok && (b[3] == 0 || b[3] == 255):
		h = uint32(b[3]) // the network and its broadcast
	case !ok:
		d.inNet4[net]++
		h = d.inNet4[net]
	}
	d.hosts4[b] = h
	return [4]byte{198, byte(18 + n>>8&1), byte(n), byte(h)} // 512 networks
}

// uuid returns the substitute of a UUID.
func (d *identities) uuid(s string) string {
	if strings.Trim(s, "0-") == "" {
		return s
	}
	return fmt.Sprintf("00000000-0000-0000-0000-%012d", number(&d.uuids, strings.ToLower(s)))
}

// serial returns a number in the place of a serial number, in as many hexadecimal digits as it has characters.
func (d *identities) serial(s string) string {
	if strings.Trim(s, "0x") == "" {
		return s
	}
	digits, prefix := strings.TrimPrefix(s, "0x"), ""
	if digits != s {
		prefix = "0x"
	}
	return fmt.Sprintf("%s%0*x", prefix, len(digits), number(&d.serials, strings.ToLower(digits)))
}

// shapes are forms of identities that can be told from all else that stands in /sys and /proc. The
// order matters: the first that fits counts.
//
//   - a UUID
//   - bytes with colons or dashes: a MAC address (6), an EUI-64 (8), the hardware address of IPoIB (20)
//   - groups of four digits: a GUID (4), a GID or an IPv6 address (8)
//   - other forms of an IPv6 address
//   - bytes without separators: 6, 8, 16, replaced only where they were met in another form
var shapes = lazyregexp.New(`(?i)` + strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	`[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,}`,
	`[0-9a-f]{4}(?::[0-9a-f]{4}){3,}`,
	`[0-9a-f:]*::[0-9a-f:]*|[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}`,
	`[0-9a-f]{12,}`,
}, "|"))

// text replaces all that has the shape of an identity.
func (d *identities) text(b []byte) []byte {
	if len(b) < 5 {
		return b // as most attributes: shorter than any
	}
	found := shapes.FindAllIndex(b, -1)
	if found == nil {
		return b
	}
	out := make([]byte, 0, len(b))
	last := 0
	for _, at := range found {
		start, end := at[0], at[1]
		if start > 0 && touches(b[start-1]) || end < len(b) && touches(b[end]) {
			// A part of something longer. Names of devices have an address behind letters: enx0200..., rocex0200...
			if start > 0 && isHex(b[start-1]) || end < len(b) && isHex(b[end]) || bytes.ContainsAny(b[start:end],
				":-") {
				continue
			}
		}
		sub := d.shape(string(b[start:end]))
		out = append(append(out, b[last:start]...), sub...)
		last = end
	}
	return append(out, b[last:]...)
}

// touches reports whether a character next to a shape says that it is part of something else: a
// word, or a number with a fraction.
func touches(c byte) bool {
	return c == ':' || c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// shape replaces one identity, and keeps what only looks like one.
func (d *identities) shape(s string) string {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' {
		return d.uuid(s)
	}
	if separator := strings.IndexAny(s, ":-"); separator == 2 && (len(s)+1)%3 == 0 && !strings.Contains(s, "::") {
		b, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "").Replace(s))
		if err == nil && len(b)*3 == len(s)+1 {
			return likeCase(s, joinHex(d.bytes(b), 1, s[2:3]))
		}
	}
	if strings.Contains(s, ":") {
		groups := strings.Split(s, ":")
		wide := !slices.ContainsFunc(groups, func(g string) bool { return len(g) != 4 })
		if wide && len(groups) == 4 {
			b, _ := hex.DecodeString(strings.Join(groups, ""))
			return likeCase(s, joinHex(d.bytes(b), 2, ":"))
		}
		if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
			sub := d.addr(a)
			if wide {
				b := sub.As16()
				return likeCase(s, joinHex(b[:], 2, ":"))
			}
			return sub.String()
		}
		return s
	}
	lower := strings.ToLower(s)
	if sub, ok := d.bare[lower]; ok {
		return likeCase(s, sub)
	}
	if _, ok := d.bare[lower[len(lower)/2:]]; ok && len(lower) == 32 { // an IPv6 address whose lower half is known
		if b, err := hex.DecodeString(lower); err == nil {
			return likeCase(s, hex.EncodeToString(d.bytes(b)))
		}
	}
	return s
}

// bytes replaces an identity of 6, 8, 16 or 20 bytes.
func (d *identities) bytes(b []byte) []byte {
	out := slices.Clone(b)
	switch len(b) {
	case 6:
		sub := d.mac([6]byte(b))
		copy(out, sub[:])
	case 8:
		sub := d.guid([8]byte(b))
		copy(out, sub[:])
	case 16:
		sub := d.addr(netip.AddrFrom16([16]byte(b))).As16()
		copy(out, sub[:])
	case 20: // IPoIB: flags and queue pair, then the GID (RFC 4391, section 9.1.1)
		copy(out[4:], d.bytes(b[4:]))
	default:
		copy(out, d.longer(b))
	}
	return out
}

// longer replaces an identity of a length that has no meaning here.
func (d *identities) longer(b []byte) []byte {
	n := number(&d.serials, hex.EncodeToString(b))
	out := make([]byte, len(b))
	for i := len(out) - 1; i >= 0 && n > 0; i-- {
		out[i] = byte(n)
		n >>= 8
	}
	return out
}

// joinHex writes bytes in hexadecimal, in groups of size bytes.
func joinHex(b []byte, size int, separator string) string {
	var groups []string
	for group := range slices.Chunk(b, size) {
		groups = append(groups, hex.EncodeToString(group))
	}
	return strings.Join(groups, separator)
}

// likeCase writes sub in capitals where the original is.
func likeCase(original, sub string) string {
	if strings.ContainsAny(original, "ABCDEF") && !strings.ContainsAny(original, "abcdef") {
		return strings.ToUpper(sub)
	}
	return sub
}

// learnBare makes the forms without separators of all that was met. Identities of few digits are
// left out: they would be found in numbers.
func (d *identities) learnBare() {
	add := func(b, sub []byte) {
		if trimmed := bytes.Trim(b, "\x00"); len(trimmed) >= 4 {
			d.bare[hex.EncodeToString(b)] = hex.EncodeToString(sub)
		}
	}
	// Numbers of little-endian machines have the bytes in the other order.
	addBoth := func(b, sub [8]byte) {
		add(b[:], sub[:])
		slices.Reverse(b[:])
		slices.Reverse(sub[:])
		add(b[:], sub[:])
	}
	for m := range d.macs {
		sub := d.oui(m)
		add(m[:], sub[:])
		// The EUI-64 in which it stands in addresses without separators.
		for _, middle := range [][2]byte{{0xff, 0xfe}, {3, 0}, {0, 0}, {0xff, 0xff}} {
			addBoth(eui(m, middle), eui(sub, middle))
		}
		turned, other := m, sub
		turned[0] ^= 2
		other[0] ^= 2
		addBoth(eui(turned, [2]byte{0xff, 0xfe}), eui(other, [2]byte{0xff, 0xfe}))
	}
	for g := range d.guids {
		addBoth(g, d.guid(g))
	}
	for u := range d.uuids {
		plain, sub := strings.ReplaceAll(u, "-", ""), strings.ReplaceAll(d.uuid(u), "-", "")
		d.bare[plain] = sub
	}
}

// anonymize removes what identifies the machine and its users from a snapshot. root is where it was
// taken, and is asked for the host's name.
func (s *snapshot) anonymize(root fs.FS) {
	d := newIdentities()
	d.learnHost(root)
	for _, e := range s.entries {
		if path.Base(e.Name) == "address" {
			if b, err := hex.DecodeString(strings.ReplaceAll(string(bytes.TrimSpace(e.Data)), ":", "")); err == nil &&
				len(b) == 6 {
				d.hardware[[6]byte(b)] = true
				d.mac([6]byte(b))
			}
		}
		if dir, name := path.Split(e.Name); dir == "sys/class/net/" {
			d.keepWords(name)
		}
		if e.Name == "proc/sys/kernel/osrelease" {
			d.keepWords(string(e.Data))
		}
	}
	// Once to meet all that there is, and once to replace it in the forms, too, that are only known
	// when it has been met.
	s.replaced(d)
	d.learnBare()
	*s = *s.replaced(d)
}

// replaced returns the snapshot with everything replaced that d knows, or meets.
func (s *snapshot) replaced(d *identities) *snapshot {
	out := &snapshot{}
	for _, e := range s.entries {
		name := e.Name
		e.Name = string(d.text([]byte(name)))
		e.Target = string(d.text([]byte(e.Target)))
		if len(e.Data) > 0 {
			data, ok := d.file(name, e.Data)
			if e.Data = data; !ok {
				e.Data, e.Omitted = nil, true
			}
		}
		out.entries = append(out.entries, e)
	}
	if s.commands != nil {
		out.commands = []snapshotCommand{}
	}
	for _, c := range s.commands {
		c.Argv = lists.Map(c.Argv, func(arg string) string { return string(d.text([]byte(arg))) })
		c.Error = string(d.text([]byte(c.Error)))
		c.out = d.output(c.out)
		out.commands = append(out.commands, c)
	}
	slices.SortFunc(out.entries, func(a, b tree.Entry) int { return tree.ComparePaths(a.Name, b.Name) })
	return out
}

// file replaces the identities in a file. ok is false for what must not be kept at all.
func (d *identities) file(name string, b []byte) (out []byte, ok bool) {
	if rule := ruleOf(name); rule != nil {
		return rule(d, b), true
	}
	if !isPrintable(b) {
		return nil, false // of a form that is not known here
	}
	return d.text(b), true
}

// isPrintable reports whether b is a text. Strings of a device tree end in a zero, as do some
// attributes of some kernels.
func isPrintable(b []byte) bool {
	return utf8.Valid(b) && !slices.ContainsFunc(b, func(c byte) bool {
		return c < ' ' && c != 0 && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
	})
}

// pciConfig removes the serial number from the configuration space of a function: capability 3 of
// the extended ones, often made from a MAC address.
//
// Source: PCI Express Base Specification, "Device Serial Number Extended Capability".
func (d *identities) pciConfig(b []byte) []byte {
	const first, capSerial = 0x100, 3
	if bytes.IndexByte(b, 0) < 0 {
		return d.text(b) // a text of the same name
	}
	b = slices.Clone(b)
	at := first
	for n := 0; n < 1024 && at >= first && at+4 <= len(b); n++ {
		head := binary.LittleEndian.Uint32(b[at:])
		if head&0xffff == capSerial {
			clear(b[at+4 : min(at+12, len(b))])
		}
		at = int(head>>20) &^ 3
	}
	return b
}

// route4 keeps the default routes of /proc/net/route, with substitutes for their gateways. The
// others would tell which networks there are.
func (d *identities) route4(b []byte) []byte {
	return defaultRoutes(b, "\t", 1, 2, 4, func(address []byte) []byte {
		// The order of the bytes is the machine's. Both give a substitute that is read as an
		// address; the common one is the right one.
		slices.Reverse(address)
		sub := d.addr4([4]byte(address))
		slices.Reverse(sub[:])
		return sub[:]
	}, strings.ToUpper)
}

// route6 does the same for /proc/net/ipv6_route.
func (d *identities) route6(b []byte) []byte {
	return defaultRoutes(b, " ", 0, 4, 16, d.bytes, strings.ToLower)
}

// eachLine replaces each line of a file.
func eachLine(b []byte, replace func(line string) string) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		out.WriteString(replace(line))
	}
	return []byte(out.String())
}

// defaultRoutes keeps the lines of a table whose destination is zeros, with a substitute for the
// gateway, which has size bytes in hexadecimal. Lines of another form are its headings.
func defaultRoutes(b []byte, separator string, destination, gateway, size int, substitute func([]byte) []byte,
	letters func(string) string) []byte {
	return eachLine(b, func(line string) string {
		f := strings.Split(line, separator)
		if len(f) <= gateway {
			return line
		}
		digits := strings.TrimSpace(f[gateway])
		address, err := hex.DecodeString(digits)
		switch {
		case len(digits) != 2*size:
			return line
		case err != nil, strings.Trim(f[destination], "0") != "":
			return ""
		}
		f[gateway] = strings.Replace(f[gateway], digits, letters(hex.EncodeToString(substitute(address))), 1)
		return strings.Join(f, separator)
	})
}

// wholeSerial replaces a file that is one serial number.
func (d *identities) wholeSerial(b []byte) []byte {
	s := string(bytes.TrimRight(b, "\x00\n "))
	return []byte(d.serial(s) + string(b[len(s):]))
}

// kfd replaces the serial number of a compute node of AMD: the file unique_id of the GPU, in decimal.
func (d *identities) kfd(b []byte) []byte {
	return eachLine(b, func(line string) string {
		value, ok := strings.CutPrefix(line, "unique_id ")
		if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); ok && err == nil && id != 0 {
			return fmt.Sprintf("unique_id %d\n", number(&d.serials, fmt.Sprintf("%016x", id)))
		}
		return line
	})
}
