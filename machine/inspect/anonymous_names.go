package inspect

import (
	_ "embed"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/inspect/tree"
)

// A mount point, a volume group or a word of the kernel's command line may be a person's, a customer's or the host's
// name. In such files every word is replaced, except words that are common to many machines. Words are replaced one by
// one, so that "/home/alice/a" stays below "/home/alice", and "/dev/alice/root" is still the volume "alice-root".

// learnHost reads the files with names directly, so that they are not recorded.
func (a *anonymizer) learnHost(root fs.FS) {
	var names []string
	for _, p := range []string{"proc/sys/kernel/hostname", "etc/hostname"} {
		if b, err := tree.Bytes(root, p); err == nil && len(b) < 1000 {
			names = append(names, string(b))
		}
	}
	if b, err := tree.Bytes(root, "proc/hwloc-nofile-info"); err == nil {
		name, _ := lineAfter(string(b), "HostName: ")
		names = append(names, name)
	}
	for _, name := range names {
		name = strings.TrimSpace(name)
		short, _, _ := strings.Cut(name, ".")
		for _, name := range []string{name, short} {
			if len(name) > 2 && name != "localhost" && !slices.Contains(a.hosts, name) {
				a.hosts = append(a.hosts, name)
			}
		}
	}
}

func (a *anonymizer) isHost(word string) bool {
	for _, name := range a.hosts {
		for _, part := range append(wordShape().FindAllString(name, -1), name) {
			if len(part) > 2 && strings.EqualFold(part, word) {
				return true
			}
		}
	}
	return false
}

func (a *anonymizer) keepWords(s string) {
	for _, w := range wordShape().FindAllString(s, -1) {
		a.keep[w] = true
	}
}

var (
	wordShape = lazyregexp.New(`[\pL\pN_]+`)
	// nameShape matches characters that the kernel writes as numbers ("\040" is a space), IPv4 addresses, which
	// elsewhere may be versions, and words.
	nameShape = lazyregexp.New(`\\[0-7]{3}|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b|[\pL\pN_]+`)
	// plainWord matches numbers with a unit, "115200n8" of a serial line, block devices, substitutes, and short
	// hexadecimal numbers with a decimal digit (without one they could be names: Ada, Bea).
	plainWord = lazyregexp.New(`^(?:[0-9]{1,9}[kKmMgGtTbBnsx]?|0[xX][0-9a-fA-F]{1,8}|[0-9]{4,6}n[0-9]|` +
		`[0-9][0-9a-f]{0,3}|[a-f][0-9][0-9a-f]{0,2}|[a-f]{2}[0-9][0-9a-f]?|[a-f]{3}[0-9]|name[0-9a-f]{8}|` +
		`(?:(?:sd|vd|xvd|hd|dasd)[a-z]{1,3}|nvme[0-9]+(?:c[0-9]+)?n[0-9]+|mmcblk[0-9]+(?:boot[0-9])?|` +
		`(?:md|dm|loop|ram|zram|sr|fd|pmem|nbd|rbd|bcache|zd|drbd|md_d)[0-9]*)(?:p?[0-9]{1,3})?)$`)
)

func (a *anonymizer) names(s string) string { return eachLine(s, a.nameLine) }

func (a *anonymizer) nameLine(line string) string { return eachShape(line, a.token, a.nameWords) }

func (a *anonymizer) nameWords(s string) string {
	return nameShape().ReplaceAllStringFunc(s, func(w string) string {
		if address, err := netip.ParseAddr(w); err == nil {
			return a.addr(address).String()
		}
		if w[0] == '\\' {
			return w
		}
		return a.word(w)
	})
}

func (a *anonymizer) word(w string) string {
	if a.prose != nil {
		return a.proseWord(w)
	}
	if a.isHost(w) {
		return "host"
	}
	if a.keep[w] || plainWord().MatchString(w) || isOrdinary(strings.ToLower(w)) {
		return w
	}
	return a.nameOf(w)
}

func (a *anonymizer) nameOf(w string) string { return "name" + a.digits("name", w, 8) }

// ordinaryText lists words, in lower case, that are common to many machines. They also match with digits appended.
//
//go:embed ordinary_names.txt
var ordinaryText string

var ordinaryNames = setOfWords(ordinaryText)

func setOfWords(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}

// isOrdinary accepts parts, plurals and appended digits.
func isOrdinary(w string) bool {
	base := strings.TrimRight(w, "0123456789")
	if base == "" || ordinaryNames[w] || ordinaryNames[base] || ordinaryNames[strings.TrimSuffix(base, "s")] {
		return true
	}
	first, rest, several := strings.Cut(w, "_")
	return several && isOrdinary(first) && isOrdinary(rest)
}

// cmdline keeps parameter names, and values of known parameters.
func (a *anonymizer) cmdline(s string) string { return cmdline.Map(s, a.parameter) }

func (a *anonymizer) parameter(s string) string {
	key, value, ok := strings.Cut(s, "=")
	plain := cmdline.Key(strings.Trim(key, `"`))
	switch {
	case !ok && strings.ContainsAny(s, "/@:"):
		return a.nameLine(s)
	case !ok, parameters[plain] != nil, slices.Contains(unreadable, plain), moduleParameter(plain),
		plain == "hugepagesz", plain == "hugepages":
		return a.text(s)
	}
	return key + "=" + a.nameLine(value)
}
