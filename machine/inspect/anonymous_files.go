package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
)

type rule func(a *anonymizer, s string) string

// rules are selected by the end of the file name.
var rules = []struct {
	match func() *regexp.Regexp
	rule  rule
}{
	{lazyregexp.New(`^proc/cmdline$`), (*anonymizer).cmdline},
	{lazyregexp.New(`^(proc/.*mountinfo|proc/.*mounts|etc/mtab|proc/swaps|sys/.*/dm/(name|uuid)|sys/.*/md/name)$`),
		(*anonymizer).names},
	{lazyregexp.New(`/net/route$`), addresses("8")},
	{lazyregexp.New(`/net/ipv6_route$`), addresses("32")},
	{lazyregexp.New(`^run/udev/data/`), (*anonymizer).udev},
	{lazyregexp.New(`^proc/version$`), (*anonymizer).version},
	{lazyregexp.New(`^proc/cpuinfo$`), keyed(`serial|processor [0-9]+: version = [0-9A-F]+,  identification`,
		(*anonymizer).serial)},
	{lazyregexp.New(`^proc/sysinfo$`), keyed(`sequence code|plant|[^:]*\bname|[^:]*\buuid`, (*anonymizer).serial)},
	{lazyregexp.New(`^proc/hwloc-nofile-info$`), keyed(`hostname`, func(*anonymizer, string) string { return "host" })},
	{lazyregexp.New(`^sys/.*/config$`), (*anonymizer).pciConfig},
	{lazyregexp.New(`/kfd/topology/nodes/[0-9]+/properties$`), (*anonymizer).kfd},
	{lazyregexp.New(`(^|/)([\w,-]*serial[\w,-]*|unique_id|phys_switch_id|phys_port_id|\w*asset_tag|` +
		`wwn|wwid|nguid|eui|fru_id|machine-id|boot_id)$`), whole((*anonymizer).serial)},
	{lazyregexp.New(`(^|/)(node_desc|hostname|domainname|ibm,partition-name|system-id)$`),
		whole(func(*anonymizer, string) string { return "host" })},
	{lazyregexp.New(`\.xml$`), (*anonymizer).domain},
}

func ruleOf(name string) rule {
	for _, r := range rules {
		if r.match().MatchString(name) {
			return r.rule
		}
	}
	return nil
}

// whole is for a file with one value, possibly with a NUL.
func whole(replace rule) rule {
	return func(a *anonymizer, s string) string {
		value := strings.TrimRight(s, "\x00\n ")
		return replace(a, value) + s[len(value):]
	}
}

func eachLine(s string, replace func(line string) string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		out.WriteString(replace(line))
	}
	return out.String()
}

// keyed returns a rule for the values of some keys in lines "key: value".
//
// Sources of the keys: arch/arm/kernel/setup.c (a board's serial number), arch/s390/kernel/processor.c and sysinfo.c
// (numbers and names of the machine, its partition and hypervisors), and hwloc-gather-topology (the output of
// uname(2)).
func keyed(keys string, replace rule) rule {
	identifying := lazyregexp.New(`(?i)^(?:` + keys + `)[ \t]*[:=][ \t]*([^\s,][^,\n]*)`)
	return func(a *anonymizer, s string) string {
		return a.text(eachLine(s, func(line string) string {
			m := identifying().FindStringSubmatchIndex(line)
			if m == nil {
				return line
			}
			value := strings.TrimRight(line[m[2]:m[3]], " \t\r")
			return line[:m[2]] + replace(a, value) + line[m[2]+len(value):]
		}))
	}
}

// pciConfig removes the serial number, extended capability 3, often made from a MAC address.
//
// Source: PCI Express Base Specification, "Device Serial Number Extended Capability".
func (a *anonymizer) pciConfig(s string) string {
	const first, capSerial = 0x100, 3
	if strings.IndexByte(s, 0) < 0 {
		return a.text(s) // a text file of the same name
	}
	b := []byte(s)
	at := first
	for n := 0; n < 1024 && at >= first && at+4 <= len(b); n++ {
		head := binary.LittleEndian.Uint32(b[at:])
		if head&0xffff == capSerial {
			clear(b[at+4 : min(at+12, len(b))])
		}
		at = int(head>>20) &^ 3
	}
	return string(b)
}

// addresses reads 8 digits as little-endian.
func addresses(digits string) rule {
	form := lazyregexp.New(`\b[0-9A-Fa-f]{` + digits + `}\b`)
	return func(a *anonymizer, s string) string {
		return form().ReplaceAllStringFunc(s, func(token string) string {
			b, _ := hex.DecodeString(token)
			if len(b) == 4 {
				slices.Reverse(b)
			}
			sub := slices.Clone(a.bytes(b))
			if len(b) == 4 {
				slices.Reverse(sub)
			}
			return like(token, hex.EncodeToString(sub))
		})
	}
}

// kfd replaces the unique_id of an AMD GPU, in decimal.
func (a *anonymizer) kfd(s string) string {
	return eachLine(s, func(line string) string {
		value, ok := strings.CutPrefix(line, "unique_id ")
		if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); ok && err == nil && id != 0 {
			return fmt.Sprintf("unique_id %d\n", binary.BigEndian.Uint64(a.hash("serial", fmt.Sprintf("%016x", id), 8)))
		}
		return line
	})
}

// udev keeps only the lines that inspect reads: the rest is full of serial numbers.
func (a *anonymizer) udev(s string) string {
	return eachLine(s, func(line string) string {
		switch key, value, _ := strings.Cut(line, "="); key {
		case "E:ID_FS_TYPE", "E:ID_FS_USAGE", "E:ID_BUS", "E:ID_TYPE":
			return line
		case "E:ID_FS_LABEL":
			return key + "=" + a.nameLine(value)
		}
		return ""
	})
}

var builder = lazyregexp.New(`\([^()@\s]+@[^()\s]+\)`)

func (a *anonymizer) version(s string) string {
	return a.text(builder().ReplaceAllString(s, "(builder@host)"))
}

func (a *anonymizer) output(b []byte) []byte {
	if bytes.Contains(b[:min(len(b), 500)], []byte("<domain")) {
		return []byte(a.domain(string(b)))
	}
	s := a.text(string(b))
	for _, host := range a.hosts {
		// A host may be called "gpu", which the output also uses as an ordinary word.
		if len(host) > 3 && !isOrdinary(strings.ToLower(host)) {
			s = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllLiteralString(s, "host")
		}
	}
	return []byte(s)
}

// domainElements are about host resources. Others are dropped, because they tell the owner and the paths of disks.
var domainElements = setOfWords(
	`domain name uuid memory currentMemory memoryBacking hugepages page nosharepages locked vcpu vcpus iothreads cputune
	vcpupin emulatorpin iothreadpin numatune memnode cpu topology numa cell distances sibling devices hostdev
	interface disk source address driver`)

// domain replaces text that is not XML word by word.
func (a *anonymizer) domain(s string) string {
	var out strings.Builder
	decoder, encoder := xml.NewDecoder(strings.NewReader(s)), xml.NewEncoder(&out)
	var open []string
	skipped := 0 // open elements that are left out
	for {
		token, err := decoder.Token()
		if err == io.EOF && out.Len() > 0 {
			return out.String()
		}
		if err != nil {
			return a.names(a.text(s))
		}
		switch t := token.(type) {
		case xml.StartElement:
			if skipped > 0 || !domainElements[t.Name.Local] || t.Name.Space != "" {
				skipped++
				continue
			}
			open = append(open, t.Name.Local)
			t.Attr = slices.DeleteFunc(t.Attr, func(attr xml.Attr) bool {
				return attr.Name.Space != "" || attr.Name.Local == "xmlns"
			})
			for i := range t.Attr {
				t.Attr[i].Value = a.nameLine(t.Attr[i].Value)
			}
			token = t
		case xml.EndElement:
			if skipped > 0 {
				skipped--
				continue
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if name := strings.TrimSpace(string(t)); name != "" && path.Join(open...) == "domain/name" {
				token = xml.CharData("vm-" + a.digits("domain", name, 8))
			} else {
				token = xml.CharData(a.nameLine(string(t)))
			}
		default:
			continue
		}
		if _, chars := token.(xml.CharData); chars && skipped > 0 {
			continue
		}
		if err := encoder.EncodeToken(token); err != nil {
			return a.names(a.text(s))
		}
		encoder.Flush()
	}
}
