// Package cmdline reads and edits kernel command lines. It knows no boot loader.
//
// It follows the kernel's own parser (next_arg in lib/cmdline.c, parse_args in kernel/params.c): words are separated by
// white space outside of double quotes, a dash in a name is an underscore, and everything after "--" is for init.
package cmdline

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// Split returns the kernel's words, before "--".
func Split(line string) []string {
	tokens, _ := scan(line)
	var words []string
	for _, t := range tokens {
		if t.word == endOfArgs {
			break
		}
		words = append(words, t.word)
	}
	return words
}

const endOfArgs = "--"

// A token has the white space before its word.
type token struct {
	space, word string
	open        bool // an unterminated quote extends to the end
}

// scan returns tokens and the white space after the last one. Concatenated, they are the line.
func scan(line string) (tokens []token, tail string) {
	for {
		word := strings.TrimLeft(line, whiteSpace)
		if word == "" {
			return tokens, line
		}
		space := line[:len(line)-len(word)]
		quoted, n := false, 0
		for n < len(word) && (quoted || !strings.ContainsRune(whiteSpace, rune(word[n]))) {
			if word[n] == '"' {
				quoted = !quoted
			}
			n++
		}
		tokens = append(tokens, token{space, word[:n], quoted})
		line = word[n:]
	}
}

const whiteSpace = " \t\n\v\f\r"

// Map replaces each word, including init's, and keeps white space.
func Map(line string, replace func(word string) string) string {
	tokens, tail := scan(line)
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.space + replace(t.word))
	}
	return b.String() + tail
}

// Cut returns name and value without quotes. Use [Key] to compare names.
func Cut(word string) (name, value string, hasValue bool) {
	if rest, ok := strings.CutPrefix(word, `"`); ok {
		word = strings.TrimSuffix(rest, `"`)
	}
	name, value, hasValue = strings.Cut(word, "=")
	if rest, ok := strings.CutPrefix(value, `"`); ok {
		value = strings.TrimSuffix(rest, `"`)
	}
	return name, value, hasValue
}

// Key returns the name as the kernel compares it.
func Key(name string) string { return strings.ReplaceAll(name, "-", "_") }

func parse(word string) (key, value string, hasValue bool) {
	name, value, hasValue := Cut(word)
	return Key(name), value, hasValue
}

// normal makes words of the same meaning equal.
func normal(word string) string {
	key, value, hasValue := parse(word)
	if key == pageSize {
		value = canonicalSize(value)
	}
	if hasValue {
		return key + "=" + value
	}
	return key
}

// A count belongs to the size before it.
const (
	pageSize  = "hugepagesz"
	pageCount = "hugepages"
)

// canonicalSize returns 1G for 1024M.
func canonicalSize(size string) string {
	size = strings.ToUpper(size)
	for _, units := range []string{"KM", "MG", "GT"} {
		digits, ok := strings.CutSuffix(size, units[:1])
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && n > 0 && n%1024 == 0 {
			size = strconv.FormatUint(n/1024, 10) + units[1:]
		}
	}
	return size
}

// A matcher tells which words set the arguments. It must see the words in order.
type matcher struct {
	keys  map[string]bool // names of the arguments
	words map[string]bool // the arguments in normal form
	size  string          // last hugepagesz=, "" before the first
}

func newMatcher(args []string) *matcher {
	m := &matcher{keys: map[string]bool{}, words: map[string]bool{}}
	for _, arg := range args {
		key, _, _ := parse(arg)
		m.keys[key], m.words[normal(arg)] = true, true
	}
	return m
}

// sets reports whether a word sets one of the arguments, possibly to another value. A word about huge pages matches
// only if the arguments name their size, or if it is a count of the default size.
func (m *matcher) sets(word string) bool {
	key, value, _ := parse(word)
	if key == pageSize {
		m.size = canonicalSize(value)
	}
	return m.keys[key] && (!isPages(key) || m.size == "" || m.words[pageSize+"="+m.size])
}

// pages returns matching huge-page words in normal form.
func (m *matcher) pages(line string) []string {
	m.size = ""
	var words []string
	for _, word := range Split(line) {
		if key, _, _ := parse(word); m.sets(word) && isPages(key) {
			words = append(words, normal(word))
		}
	}
	m.size = ""
	return words
}

func isPages(key string) bool { return key == pageSize || key == pageCount }

// Keys returns distinct names, in order.
func Keys(args []string) []string {
	var keys []string
	for _, arg := range args {
		if key, _, _ := strings.Cut(arg, "="); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Replaced returns words that set one of args to another value.
func Replaced(line string, args []string) []string {
	m := newMatcher(args)
	return lists.Filter(Split(line), func(word string) bool { return m.sets(word) && !m.words[normal(word)] })
}

// Has reports whether line sets all of args and no other values of them, because the one that counts differs: the first
// isolcpus=, but the last rcu_nocbs=.
func Has(line string, args []string) bool {
	m := newMatcher(args)
	have := map[string]bool{}
	for _, word := range Split(line) {
		if !m.sets(word) {
			continue
		}
		have[normal(word)] = true
		if key, _, _ := parse(word); !isPages(key) && !m.words[normal(word)] {
			return false
		}
	}
	for _, arg := range args {
		if !have[normal(arg)] {
			return false
		}
	}
	return slices.Equal(m.pages(line), m.pages(strings.Join(args, " ")))
}

// Edit returns line with args at its end (before "--") and other values of the same arguments removed. A line that has
// args is unchanged.
func Edit(line string, args []string) string { return EditLines([]string{line}, 0, args)[0] }

// EditLines is like [Edit], for pieces joined by spaces. It appends args to piece at, or to a later piece if they would
// otherwise come between a page size and its count.
func EditLines(lines []string, at int, args []string) []string {
	if Has(strings.Join(lines, " "), args) {
		return slices.Clone(lines)
	}
	m := newMatcher(args)
	if m.keys[pageCount] {
		at = max(at, m.lastCount(lines))
	}
	return rewrite(lines, at, args, m.sets)
}

// lastCount returns the last piece whose remaining words begin with a page count, or -1.
func (m *matcher) lastCount(lines []string) int {
	last := -1
	for i, line := range lines {
		first := true
		for _, word := range Split(line) {
			key, _, _ := parse(word)
			if m.sets(word) || !isPages(key) {
				continue
			}
			if first && key == pageCount {
				last = i
			}
			first = false
		}
	}
	m.size = ""
	return last
}

// UndoLines undoes EditLines(before, at, args). If now has other changes too, it removes args, puts back the words that
// they replaced, and keeps everything else.
func UndoLines(now, before []string, at int, args []string) []string {
	if slices.Equal(now, before) || slices.Equal(now, EditLines(before, at, args)) {
		return slices.Clone(before)
	}
	line := strings.Join(now, " ")
	m := newMatcher(args)
	ours, theirs := 0, map[string]bool{} // with another value now
	// Page sizes and counts are removed together.
	ourPages := slices.Equal(m.pages(line), m.pages(strings.Join(args, " ")))
	isOurs := func(word string) bool {
		key, _, _ := parse(word)
		return m.sets(word) && m.words[normal(word)] && (ourPages || !isPages(key))
	}
	for _, word := range Split(line) {
		if key, _, _ := parse(word); isOurs(word) {
			ours++
		} else if m.keys[key] {
			theirs[key] = theirs[key] || !isPages(key)
		}
	}
	if ours == 0 {
		return slices.Clone(now)
	}
	m.size = ""
	var back, first []string
	for _, word := range Split(strings.Join(before, " ")) {
		switch key, _, _ := parse(word); {
		case !m.sets(word) || theirs[key] || isPages(key) && !ourPages:
		case key == pageCount && m.size == "":
			first = append(first, word) // must come before any size
		default:
			back = append(back, word)
		}
	}
	m.size = ""
	undone := rewrite(now, at, back, isOurs)
	undone[0] = strings.Join(append(first, undone[0]), " ")
	return undone
}

// Strip removes the words that set any of args.
func Strip(line string, args []string) string {
	m := newMatcher(args)
	return rewrite([]string{line}, 0, nil, m.sets)[0]
}

// rewrite appends add to piece at, but before words that the kernel would not read.
func rewrite(lines []string, at int, add []string, drop func(string) bool) []string {
	out := make([]string, len(lines))
	added, rest := len(add) == 0, false
	for i, line := range lines {
		tokens, tail := scan(line)
		var b strings.Builder
		put := func(space, word string) {
			// The next word takes a dropped first one's white space.
			switch {
			case b.Len() == 0 && len(tokens) > 0:
				space = tokens[0].space
			case b.Len() == 0:
				space = ""
			case b.Len() > 0 && space == "":
				space = " "
			}
			b.WriteString(space + word)
		}
		addNow := func() {
			if !added {
				put(" ", strings.Join(add, " "))
				added = true
			}
		}
		for _, t := range tokens {
			rest = rest || t.word == endOfArgs || t.open && !drop(t.word)
			if i <= at && rest {
				addNow()
			}
			if rest || !drop(t.word) {
				put(t.space, t.word)
			}
		}
		if i == at {
			addNow()
		}
		out[i] = b.String() + tail
	}
	return out
}

// Limit returns the maximum length, including the final NUL (COMMAND_LINE_SIZE in arch/*/include/uapi/asm/setup.h). It
// accepts uname's and Go's architectures.
func Limit(arch string) int {
	return cmp.Or(map[string]int{"s390x": 4096, "riscv64": 1024}[arch], 2048) // 2048: x86, arm64, powerpc
}

// Check rejects arguments that the kernel would misread or a boot loader would mangle: only characters that mean the
// same to all quoting rules are allowed. limit is from [Limit].
func Check(args []string, limit int) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=,:.-_/+"
	length := 0
	for i, arg := range args {
		length += len(arg) + 1
		key, value, hasValue := strings.Cut(arg, "=")
		switch {
		case key == "" || key[0] == '-' || strings.Trim(arg, allowed) != "":
			return fmt.Errorf("kernel_args[%d] is %q: want a name, then letters, digits and =,:.-_/+ only, which "+
				"every boot loader passes on unchanged", i, arg)
		case hasValue && value == "":
			// Tools write a bare isolcpus= if their list is empty.
			return fmt.Errorf("kernel_args[%d] is %q, without a value: leave it out", i, arg)
		case key == "isolcpus":
			if _, ok := Isolcpus(arg); !ok {
				return fmt.Errorf("kernel_args[%d] is %q, without CPUs: leave it out", i, arg)
			}
		case key == "nohz_full" || key == "rcu_nocbs":
			if set, err := topology.ParseCPUSet(value); err != nil || set.IsEmpty() {
				return fmt.Errorf("kernel_args[%d] is %q: want a list of CPUs", i, arg)
			}
		}
	}
	if length > limit {
		return fmt.Errorf("kernel_args have %d characters, and the kernel reads %d of a whole command line", length-1,
			limit-1)
	}
	return nil
}

// Isolcpus parses isolcpus=[flags,]list; ok is false for other arguments and empty lists.
func Isolcpus(arg string) (cpus topology.CPUSet, ok bool) {
	value, ok := strings.CutPrefix(arg, "isolcpus=")
	if !ok {
		return topology.CPUSet{}, false
	}
	for {
		flag, rest, more := strings.Cut(value, ",")
		if flag != "domain" && flag != "managed_irq" && flag != "nohz" {
			break
		}
		if !more {
			return topology.CPUSet{}, false
		}
		value = rest
	}
	set, err := topology.ParseCPUSet(value)
	return set, err == nil && !set.IsEmpty()
}

// NohzFull parses nohz_full=list; ok is false for other arguments.
func NohzFull(arg string) (cpus topology.CPUSet, ok bool) {
	value, ok := strings.CutPrefix(arg, "nohz_full=")
	if !ok {
		return topology.CPUSet{}, false
	}
	set, err := topology.ParseCPUSet(value)
	return set, err == nil
}

// BootCPU keeps time: tick_nohz_init in kernel/time/tick-sched.c removes it from nohz_full.
const BootCPU = 0

// GRUBSnippet returns idempotent shell code for grub-mkconfig to read after its other settings. It removes other values
// of args from GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT and appends args, which have passed [Check], to the
// first.
func GRUBSnippet(args []string) string {
	var pattern, sizes []string
	for _, key := range Keys(args) {
		if !isPages(key) {
			pattern = append(pattern, key, key+"=*")
		}
	}
	for _, arg := range args {
		if size, ok := strings.CutPrefix(arg, pageSize+"="); ok {
			sizes = append(sizes, size)
		}
	}
	var cases strings.Builder
	if len(sizes) > 0 {
		cases.WriteString("    hugepagesz=*) _size=${_word#*=} ;;\n    esac\n    case $_word in\n")
		cases.WriteString("    hugepagesz=* | hugepages=*) case $_size in '' | " + strings.Join(sizes, " | ") +
			") continue ;; esac ;;\n")
	}
	if len(pattern) > 0 {
		cases.WriteString("    " + strings.Join(pattern, " | ") + ") continue ;;\n")
	}
	clean := func(variable string) string {
		return "_rackless='' _size=''\nfor _word in ${" + variable + "-}; do\n    case $_word in\n" + cases.String() +
			"    esac\n    _rackless=\"$_rackless${_rackless:+ }$_word\"\ndone\n" + variable + "=$_rackless\n"
	}
	return "# Other values of the same arguments go first: of two isolcpus= the kernel takes the first, of two " +
		"hugepagesz= it refuses the second.\n" +
		"set -f\n" + clean("GRUB_CMDLINE_LINUX") + clean("GRUB_CMDLINE_LINUX_DEFAULT") +
		"set +f\nunset _rackless _size _word\n\n" +
		"GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX${GRUB_CMDLINE_LINUX:+ }\"'" + strings.Join(args, " ") + "'\n"
}

// Size parses bytes like the kernel: "2M", "1G", "2048k", "0x100000", or returns 0. Source: memparse in lib/cmdline.c.
func Size(s string) uint64 {
	shift := 0
	if s != "" {
		shift = 10 * (1 + strings.IndexByte("kmgtpe", s[len(s)-1]|0x20)) // 0x20 makes a letter lower-case
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil || v > ^uint64(0)>>shift {
		return 0
	}
	return v << shift
}
