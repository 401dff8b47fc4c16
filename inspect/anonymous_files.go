package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rackless/rackless/inspect/tree"
)

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
		argv := make([]string, len(c.Argv))
		for i, a := range c.Argv {
			argv[i] = string(d.text([]byte(a)))
		}
		c.Argv = argv
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

// defaultRoutes keeps the lines of a table whose destination is zeros, with a substitute for the
// gateway, which has size bytes in hexadecimal. Lines of another form are its headings.
func defaultRoutes(b []byte, separator string, destination, gateway, size int, substitute func([]byte) []byte,
	letters func(string) string) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(line, separator); len(f) > gateway {
			digits := strings.TrimSpace(f[gateway])
			address, err := hex.DecodeString(digits)
			switch {
			case len(digits) != 2*size:
			case err != nil, strings.Trim(f[destination], "0") != "":
				continue
			default:
				f[gateway] = strings.Replace(f[gateway], digits, letters(hex.EncodeToString(substitute(address))), 1)
				line = strings.Join(f, separator)
			}
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}

// wholeSerial replaces a file that is one serial number.
func (d *identities) wholeSerial(b []byte) []byte {
	s := string(bytes.TrimRight(b, "\x00\n "))
	return []byte(d.serial(s) + string(b[len(s):]))
}

// kfd replaces the serial number of a compute node of AMD: the file unique_id of the GPU, in decimal.
func (d *identities) kfd(b []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "unique_id "); ok {
			if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil && id != 0 {
				line = fmt.Sprintf("unique_id %d\n", number(&d.serials, fmt.Sprintf("%016x", id)))
			}
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}
