package inspect

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/inspect/tree"
)

// An anonymizer replaces identities with a keyed hash in the form of the original. In one snapshot a token always has
// the same substitute, with or without separators.
//
//	MAC address   02:HH:HH:HH:HH:HH     locally administered (IEEE 802)
//	GUID          02HH:HHHH:HHHH:HHHH
//	UUID          hexadecimal digits of the hash
//	IPv4          10.H.H.n              networks of 24 bits stay apart; the host's number stays
//	IPv6          2001:db8:H:H::        for documentation (RFC 3849): networks of 64 bits stay apart
//	name          nameHHHHHHHH
type anonymizer struct {
	key   []byte
	keep  map[string]bool // no identities here: network devices, the kernel's release
	hosts []string
	prose *prose // of texts beside the files of a machine, else nil
}

func (a *anonymizer) hash(kind, token string, n int) []byte {
	h := hmac.New(sha256.New, a.key)
	fmt.Fprintf(h, "%s %s", kind, token)
	sum := h.Sum(nil)
	for len(sum) < n {
		sum = append(sum, sum...)
	}
	return sum[:n]
}

func (a *anonymizer) digits(kind, token string, n int) string {
	return hex.EncodeToString(a.hash(kind, strings.ToLower(token), n))[:n]
}

func (s *snapshot) anonymize(root fs.FS) { s.anonymizeWith(s.anonymizer(root, s.key(root))) }

// anonymizer reads the host's name from root, the source of the snapshot.
func (s *snapshot) anonymizer(root fs.FS, key []byte) *anonymizer {
	a := &anonymizer{key: key, keep: map[string]bool{}}
	a.learnHost(root)
	for _, e := range s.entries {
		if dir, name := path.Split(e.Name); dir == "sys/class/net/" {
			a.keepWords(name)
		}
		if e.Name == "proc/sys/kernel/osrelease" {
			a.keepWords(string(e.Data))
		}
	}
	return a
}

func (s *snapshot) anonymizeWith(a *anonymizer) { *s = *s.replaced(a) }

// key is made from secrets of the machine that the snapshot lacks and from all files read. Equal readings give equal
// snapshots, and two snapshots cannot be linked.
func (s *snapshot) key(root fs.FS) []byte {
	h := sha256.New()
	for _, name := range []string{"etc/machine-id", "proc/sys/kernel/random/boot_id"} {
		if b, err := tree.Bytes(root, name); err == nil {
			h.Write(b)
		}
	}
	for _, e := range s.entries {
		fmt.Fprintf(h, "%q %q %q\n", e.Name, e.Target, e.Data)
	}
	for _, c := range s.commands {
		fmt.Fprintf(h, "%q %q\n", c.Argv, c.out)
	}
	return h.Sum(nil)
}

func (s *snapshot) replaced(a *anonymizer) *snapshot {
	out := &snapshot{}
	for _, e := range s.entries {
		name := e.Name
		e.Name = a.text(name)
		e.Target = a.text(e.Target)
		if len(e.Data) > 0 {
			data, ok := a.file(name, e.Data)
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
		c.Argv = slices.Clone(c.Argv)
		for i, arg := range c.Argv {
			c.Argv[i] = a.text(arg)
		}
		c.Error = a.text(c.Error)
		c.out = a.output(c.out)
		out.commands = append(out.commands, c)
	}
	slices.SortFunc(out.entries, func(a, b tree.Entry) int { return tree.ComparePaths(a.Name, b.Name) })
	return out
}

// file returns ok false if the file must be dropped.
func (a *anonymizer) file(name string, b []byte) (out []byte, ok bool) {
	if rule := ruleOf(name); rule != nil {
		return []byte(rule(a, string(b))), true
	}
	if !isPrintable(b) {
		return nil, false // of an unknown form
	}
	return []byte(a.text(string(b))), true
}

// isPrintable allows a NUL at the end, as device trees and some attributes have.
func isPrintable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool {
		return r < ' ' && !strings.ContainsRune("\x00\t\n\r", r) || r == 0x7f
	})
}

// shapes match the forms of identities that differ from all other text in /sys and /proc. The first match counts:
//
//   - a UUID
//   - a MAC address (6 bytes), an EUI-64 (8), the hardware address of IPoIB (20)
//   - an IPv6 address with "::" or eight groups, also a GID, before the four groups that it may begin with
//   - groups of four digits: a GUID
//   - a device that systemd names after its address, enx0200..., rocex0200...
var shapes = lazyregexp.New(`(?i)` + strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	`[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,}`,
	`[0-9a-f:]*::[0-9a-f:]*`,
	`[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}`,
	`[0-9a-f]{4}(?::[0-9a-f]{4}){3,}`,
	`[a-z]x(?:[0-9a-f]{16}|[0-9a-f]{12})`,
}, "|"))

func (a *anonymizer) text(s string) string {
	if len(s) < 5 {
		return s // no identity is this short
	}
	return eachShape(s, a.token, func(rest string) string { return rest })
}

// eachShape applies token to matches and between to other text.
func eachShape(s string, token, between func(string) string) string {
	var out strings.Builder
	last := 0
	for _, at := range shapes().FindAllStringIndex(s, -1) {
		// A match inside a word, or "10.0.0.5::10.0.0.1" of ip=, is not an identity.
		if isPart(s[:at[0]], s[at[0]:at[1]], s[at[1]:]) {
			continue
		}
		out.WriteString(between(s[last:at[0]]))
		out.WriteString(token(s[at[0]:at[1]]))
		last = at[1]
	}
	out.WriteString(between(s[last:]))
	return out.String()
}

func isPart(before, token, behind string) bool {
	touches := func(r rune) bool { return r == ':' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	left, _ := utf8.DecodeLastRuneInString(before)
	right, _ := utf8.DecodeRuneInString(behind)
	switch {
	case strings.Contains(token, "::"):
		return left == '.' || right == '.' || touches(left) || touches(right)
	case strings.ContainsAny(token, ":-"):
		return touches(left) || touches(right)
	}
	return unicode.Is(unicode.ASCII_Hex_Digit, right)
}

// token keeps text that only looks like an identity.
func (a *anonymizer) token(s string) string {
	digits := strings.NewReplacer(":", "", "-", "").Replace(s)
	b, _ := hex.DecodeString(digits)
	switch {
	case len(s) == 36 && s[8] == '-':
		return like(s, a.uuid(digits))
	case digits == s: // a device name: letter and x stay
		b, _ = hex.DecodeString(s[2:])
		return s[:2] + like(s[2:], hex.EncodeToString(a.bytes(b)))
	case inGroups(s, 2), inGroups(s, 4) && (len(b) == 8 || len(b) == 16):
		return like(s, hex.EncodeToString(a.bytes(b)))
	}
	address, err := netip.ParseAddr(s)
	if err != nil || !address.Is6() {
		return s
	}
	return a.addr(address).String()
}

func inGroups(s string, n int) bool {
	for i, c := range s {
		if (c == ':' || c == '-') != (i%(n+1) == n) {
			return false
		}
	}
	return (len(s)+1)%(n+1) == 0
}

// like keeps the separators and the case of the original.
func like(original, digits string) string {
	out := []byte(original)
	for i, c := range out {
		if c != ':' && c != '-' {
			out[i], digits = digits[0], digits[1:]
		}
	}
	if strings.ContainsAny(original, "ABCDEF") && !strings.ContainsAny(original, "abcdef") {
		return strings.ToUpper(string(out))
	}
	return string(out)
}

// groups are broadcast, and prefixes of IEEE 802.1, IPv4 and IPv6 groups.
var groups = [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0x80, 0xc2}, {0x01, 0x00, 0x5e}, {0x33, 0x33}}

// bytes keeps zeros and group addresses, which identify nothing.
func (a *anonymizer) bytes(b []byte) []byte {
	isGroup := func(g []byte) bool { return len(b) == 6 && bytes.HasPrefix(b, g) }
	switch {
	case len(bytes.Trim(b, "\x00")) == 0, slices.ContainsFunc(groups, isGroup):
		return b
	case len(b) == 4:
		sub := a.addr(netip.AddrFrom4([4]byte(b))).As4()
		return sub[:]
	case len(b) == 16:
		sub := a.addr(netip.AddrFrom16([16]byte(b))).As16()
		return sub[:]
	case len(b) == 20: // IPoIB: flags and queue pair, then the GID (RFC 4391, section 9.1.1)
		return slices.Concat(b[:4], a.bytes(b[4:]))
	}
	return append([]byte{2}, a.hash("bytes", string(b), len(b)-1)...)
}

// addr keeps addresses with a universal meaning.
func (a *anonymizer) addr(address netip.Addr) netip.Addr {
	if address.IsUnspecified() || address.IsLoopback() || address.IsMulticast() {
		return address
	}
	if v4 := address.Unmap(); v4.Is4() {
		b := v4.As4()
		if b[0] == 0 || b[0] == 255 || v4.IsLoopback() || v4.IsMulticast() || v4.IsLinkLocalUnicast() {
			return address // also netmasks, which are numbers
		}
		copy(b[:], append([]byte{10}, a.hash("net", string(b[:3]), 2)...))
		if address.Is4() {
			return netip.AddrFrom4(b)
		}
		return netip.AddrFrom16(netip.AddrFrom4(b).As16())
	}
	b := address.As16()
	// An interface ID numbered by hand reveals only that number.
	if binary.BigEndian.Uint64(b[8:])>>16 != 0 {
		copy(b[8:], a.bytes(b[8:]))
	}
	if !address.IsLinkLocalUnicast() {
		copy(b[:8], append([]byte{0x20, 0x01, 0x0d, 0xb8}, a.hash("net", string(b[:8]), 4)...))
	}
	return netip.AddrFrom16(b).WithZone(address.Zone())
}

func (a *anonymizer) uuid(digits string) string {
	if strings.Trim(digits, "0") == "" {
		return digits
	}
	return a.digits("uuid", digits, len(digits))
}

// serial returns as many digits as the number has characters.
func (a *anonymizer) serial(s string) string {
	digits, isHex := strings.CutPrefix(s, "0x")
	if strings.Trim(digits, "0") == "" {
		return s
	}
	sub := a.digits("serial", digits, len(digits))
	if isHex {
		return "0x" + sub
	}
	return sub
}
