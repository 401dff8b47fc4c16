package inspect

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// Names are harder than numbers: a mount point, a volume group or a word of the kernel's command
// line may be a person's, a customer's or the host's. In the files that have such, every word is
// replaced that is not one of a list of words that are on many machines; words are replaced one by
// one, so that "/home/alice/a" stays below "/home/alice", and "/dev/alice/root" is still the volume
// "alice-root".

// A rule replaces what identifies in a file of a form of its own.
type rule func(d *identities, b []byte) []byte

// rules are by the end of the file's name.
var rules = []struct {
	match *lazyregexp.Regexp
	rule  rule
}{
	{lazyregexp.New(`^proc/cmdline$`), (*identities).cmdline},
	{lazyregexp.New(`^(proc/.*mountinfo|proc/.*mounts|etc/mtab|proc/swaps|sys/.*/dm/(name|uuid)|sys/.*/md/name)$`),
		(*identities).names},
	{lazyregexp.New(`/net/route$`), (*identities).route4},
	{lazyregexp.New(`/net/ipv6_route$`), (*identities).route6},
	{lazyregexp.New(`^run/udev/data/`), (*identities).udev},
	{lazyregexp.New(`^proc/version$`), (*identities).version},
	{lazyregexp.New(`^proc/cpuinfo$`), keyed(`serial|processor [0-9]+: version = [0-9A-F]+,  identification`,
		(*identities).serial)},
	{lazyregexp.New(`^proc/sysinfo$`), keyed(`sequence code|plant|[^:]*\bname|[^:]*\buuid`, (*identities).serial)},
	{lazyregexp.New(`^proc/hwloc-nofile-info$`), keyed(`hostname`, (*identities).hostName)},
	{lazyregexp.New(`^sys/.*/config$`), (*identities).pciConfig},
	{lazyregexp.New(`/kfd/topology/nodes/[0-9]+/properties$`), (*identities).kfd},
	{lazyregexp.New(`(^|/)([\w,-]*serial[\w,-]*|unique_id|phys_switch_id|phys_port_id|\w*asset_tag|` +
		`wwn|wwid|nguid|eui|fru_id|machine-id|boot_id)$`),
		(*identities).wholeSerial},
	{lazyregexp.New(`(^|/)(node_desc|hostname|domainname|ibm,partition-name|system-id)$`), (*identities).wholeName},
	{lazyregexp.New(`\.xml$`), (*identities).domain},
}

func ruleOf(name string) rule {
	for _, r := range rules {
		if r.match.MatchString(name) {
			return r.rule
		}
	}
	return nil
}

// learnHost finds out what the host is called. Its files are read for this alone, and are not recorded.
func (d *identities) learnHost(root fs.FS) {
	add := func(name string) {
		name = strings.TrimSpace(name)
		for _, name := range []string{name, strings.SplitN(name, ".", 2)[0]} {
			if len(name) > 2 && name != "localhost" && !slices.Contains(d.hosts, name) {
				d.hosts = append(d.hosts, name)
			}
		}
	}
	for _, p := range []string{"proc/sys/kernel/hostname", "etc/hostname"} {
		if b, err := tree.Bytes(root, p); err == nil && len(b) < 1000 {
			add(string(b))
		}
	}
	if b, err := tree.Bytes(root, "proc/hwloc-nofile-info"); err == nil {
		name, _ := lineAfter(string(b), "HostName: ")
		add(name)
	}
}

// isHost reports whether a word is part of the host's name.
func (d *identities) isHost(word string) bool {
	return slices.ContainsFunc(d.hosts, func(name string) bool {
		return strings.EqualFold(name, word) || slices.ContainsFunc(wordShape.FindAllString(name, -1),
			func(part string) bool { return len(part) > 2 && strings.EqualFold(part, word) })
	})
}

// keepWords keeps the words of s: they are known to be no names.
func (d *identities) keepWords(s string) {
	for _, w := range wordShape.FindAllString(s, -1) {
		d.keep[w] = true
	}
}

var (
	wordShape = lazyregexp.New(`[\pL\pN_]+`)
	// address4 is an IPv4 address, in files where four numbers with dots are not a version.
	address4 = lazyregexp.New(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	// plainNumber is one that counts or measures, and names nothing: it is short. "115200n8" is a serial line's speed.
	plainNumber = lazyregexp.New(`^(?:[0-9]{1,9}[kKmMgGtTbBnsx]?|0[xX][0-9a-fA-F]{1,8}|[0-9]{4,6}n[0-9])$`)
	// blockDevice is a name that the kernel gives.
	blockDevice = lazyregexp.New(
		`^(?:(?:sd|vd|xvd|hd|dasd)[a-z]{1,3}|nvme[0-9]+(?:c[0-9]+)?n[0-9]+|mmcblk[0-9]+(?:boot[0-9])?|` +
			`(?:md|dm|loop|ram|zram|sr|fd|pmem|nbd|rbd|bcache|zd|drbd|md_d)[0-9]*)(?:p?[0-9]{1,3})?$`)
	// octal are characters that the kernel writes as numbers.
	octal = lazyregexp.New(`\\[0-7]{3}`)
)

// names replaces all words that may be names, and all addresses.
func (d *identities) names(b []byte) []byte { return eachLine(b, d.nameLine) }

// nameLine replaces the words of a line. UUIDs and addresses are replaced first, and are not looked at again as words.
func (d *identities) nameLine(line string) string {
	line = address4.Get().ReplaceAllStringFunc(line, func(s string) string {
		if a, err := netip.ParseAddr(s); err == nil {
			return d.addr(a).String()
		}
		return s
	})
	var out strings.Builder
	last := 0
	for _, at := range shapes.Get().FindAllStringIndex(line, -1) {
		// "10.0.0.5::10.0.0.1" of ip= is not an IPv6 address.
		if strings.Contains(line[at[0]:at[1]], "::") && (at[0] > 0 && line[at[0]-1] == '.' || at[1] < len(line) &&
			line[at[1]] == '.') {
			continue
		}
		sub := d.shape(line[at[0]:at[1]])
		if sub == line[at[0]:at[1]] && !strings.ContainsAny(sub, ":-") {
			continue // digits that are not known: a word as others
		}
		out.WriteString(d.nameWords(line[last:at[0]]))
		out.WriteString(sub)
		last = at[1]
	}
	out.WriteString(d.nameWords(line[last:]))
	return out.String()
}

func (d *identities) nameWords(s string) string {
	// "\040" is a space in mountinfo, and no word.
	var out strings.Builder
	last := 0
	for _, at := range octal.Get().FindAllStringIndex(s, -1) {
		out.WriteString(wordShape.Get().ReplaceAllStringFunc(s[last:at[0]], d.word))
		out.WriteString(s[at[0]:at[1]])
		last = at[1]
	}
	out.WriteString(wordShape.Get().ReplaceAllStringFunc(s[last:], d.word))
	return out.String()
}

// word keeps a word that says nothing of anybody, and replaces any other.
func (d *identities) word(w string) string {
	if d.isHost(w) {
		return "host"
	}
	if d.keep[w] || plainNumber.MatchString(w) || isShortHex(w) || blockDevice.MatchString(w) || isSubstituteWord(w) {
		return w
	}
	lower := strings.ToLower(w)
	if isOrdinary(lower) || !slices.ContainsFunc(strings.Split(lower, "_"), func(part string) bool {
		return !isOrdinary(part)
	}) {
		return w
	}
	return fmt.Sprintf("name%d", number(&d.words, w))
}

// isShortHex reports whether a word is a hexadecimal number of up to four digits. Without a decimal
// digit it could be a name: Ada, Bea.
func isShortHex(w string) bool {
	return len(w) <= 4 && strings.ContainsAny(w, "0123456789") && !strings.ContainsFunc(w, func(r rune) bool {
		return r > 'f' || !isHex(byte(r))
	})
}

// isSubstituteWord reports whether a word was made by word. A snapshot of a snapshot changes nothing more.
func isSubstituteWord(w string) bool {
	return strings.HasPrefix(w, "name") && strings.Trim(w[4:], "0123456789") == ""
}

// ordinaryText has the words, in lower case, that are on many machines: directories of the
// file system hierarchy, file systems and their options, values of kernel parameters, words of
// libvirt. A word may have digits behind it.
//
//go:embed ordinary_names.txt
var ordinaryText string

var ordinaryNames = makeWords(ordinaryText)

func makeWords(s string) map[string]bool {
	return lists.SetOf(strings.Fields(s), func(w string) string { return w })
}

// isOrdinary reports whether a word is in the list, as it is, in the plural or with digits behind it.
func isOrdinary(w string) bool {
	base := strings.TrimRight(w, "0123456789")
	return w == "" || base == "" || ordinaryNames[w] || ordinaryNames[base] ||
		ordinaryNames[strings.TrimSuffix(base, "s")]
}

// cmdline replaces what names something on the kernel's command line. Parameters stay, and so do
// the values of those that are understood.
func (d *identities) cmdline(b []byte) []byte { return []byte(cmdline.Map(string(b), d.parameter)) }

func (d *identities) parameter(s string) string {
	key, value, ok := strings.Cut(s, "=")
	plain := cmdline.Key(strings.Trim(key, `"`))
	switch {
	case !ok && strings.ContainsAny(s, "/@:"):
		return d.nameLine(s)
	case !ok:
		return string(d.text([]byte(s)))
	case parameters[plain] != nil, slices.Contains(unreadable, plain), moduleParameter(plain), plain == "hugepagesz",
		plain == "hugepages":
		return string(d.text([]byte(s)))
	}
	return key + "=" + d.nameLine(value)
}

// udev keeps what is known to be read of a file of udev's database, which is full of serial numbers.
func (d *identities) udev(b []byte) []byte {
	return eachLine(b, func(line string) string {
		switch key, value, _ := strings.Cut(line, "="); key {
		case "E:ID_FS_TYPE", "E:ID_FS_USAGE", "E:ID_BUS", "E:ID_TYPE":
			return line
		case "E:ID_FS_LABEL":
			return key + "=" + d.nameLine(value)
		}
		return ""
	})
}

// builder is who built the kernel, and where.
var builder = lazyregexp.New(`\([^()@\s]+@[^()\s]+\)`)

func (d *identities) version(b []byte) []byte {
	return d.text(builder.Get().ReplaceAll(b, []byte("(builder@host)")))
}

// keyed returns a rule for files of lines "key: value" that replaces the values of some keys.
//
// Sources of the keys: arch/arm/kernel/setup.c (serial number of a board),
// arch/s390/kernel/processor.c and sysinfo.c (numbers and names of the machine, its partition and
// the hypervisors around it), and hwloc-gather-topology, which notes what uname(2) says.
func keyed(keys string, replace func(d *identities, value string) string) rule {
	identifying := lazyregexp.New(`(?i)^(?:` + keys + `)[ \t]*[:=][ \t]*([^\s,][^,\n]*)`)
	return func(d *identities, b []byte) []byte {
		return d.text(eachLine(b, func(line string) string {
			m := identifying.FindStringSubmatchIndex(line)
			if m == nil {
				return line
			}
			value := strings.TrimRight(line[m[2]:m[3]], " \t\r")
			return line[:m[2]] + replace(d, value) + line[m[2]+len(value):]
		}))
	}
}

func (d *identities) hostName(string) string { return "host" }

// wholeName replaces a file that is one name.
func (d *identities) wholeName(b []byte) []byte {
	return []byte("host" + string(b[len(bytes.TrimRight(b, "\x00\n ")):]))
}

// output replaces what a command printed.
func (d *identities) output(b []byte) []byte {
	if bytes.Contains(b[:min(len(b), 500)], []byte("<domain")) {
		return d.domain(b)
	}
	b = d.text(b)
	for _, host := range d.hosts {
		// A host may be called "gpu". Where that is a word of the output, it is not the host's name.
		if len(host) > 3 && !isOrdinary(strings.ToLower(host)) {
			b = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllLiteral(b, []byte("host"))
		}
	}
	return b
}

// domainElements are the elements of libvirt's XML that say what a domain holds of its host. The
// others tell whose it is, and where its disks are: they are left out.
var domainElements = makeWords(
	`domain name uuid memory currentMemory memoryBacking hugepages page nosharepages locked vcpu vcpus iothreads cputune
	vcpupin emulatorpin iothreadpin numatune memnode cpu topology numa cell distances sibling devices hostdev
	interface disk source address driver`)

var escapeXML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// domain writes what is kept of a domain's XML. What is not XML is replaced word by word.
func (d *identities) domain(b []byte) []byte {
	var out bytes.Buffer
	decoder := xml.NewDecoder(bytes.NewReader(b))
	var open []string
	for {
		token, err := decoder.RawToken()
		if err != nil {
			if len(open) > 0 || out.Len() == 0 {
				return d.names(d.text(b))
			}
			return out.Bytes()
		}
		switch t := token.(type) {
		case xml.StartElement:
			if !domainElements[t.Name.Local] || t.Name.Space != "" {
				if skipElement(decoder) != nil {
					return d.names(d.text(b))
				}
				continue
			}
			open = append(open, t.Name.Local)
			out.WriteString("<" + t.Name.Local)
			for _, a := range t.Attr {
				if a.Name.Space != "" || a.Name.Local == "xmlns" {
					continue
				}
				fmt.Fprintf(&out, " %s=\"", a.Name.Local)
				out.WriteString(escapeXML.Replace(d.nameLine(a.Value)))
				out.WriteString("\"")
			}
			out.WriteString(">")
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != t.Name.Local {
				return d.names(d.text(b))
			}
			open = open[:len(open)-1]
			out.WriteString("</" + t.Name.Local + ">")
		case xml.CharData:
			s := string(t)
			if name := strings.TrimSpace(s); name != "" && path.Join(open...) == "domain/name" {
				s = strings.Replace(s, name, fmt.Sprintf("vm-%d", number(&d.domains, name)), 1)
			} else {
				s = d.nameLine(s)
			}
			out.WriteString(escapeXML.Replace(s))
		}
	}
}

// skipElement reads to the end of the element whose start was read last.
func skipElement(decoder *xml.Decoder) error {
	for depth := 1; depth > 0; {
		token, err := decoder.RawToken()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return nil
}
