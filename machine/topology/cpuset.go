package topology

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// MaxCPUs limits the numbers in a set; the largest kernels support 8192. It keeps a hostile "0-4000000000" from filling
// the memory.
const MaxCPUs = 1 << 16

// A CPUSet is an immutable set of CPUs, or of NUMA nodes. The zero value is the empty set; a nil pointer means
// "unknown".
type CPUSet struct {
	words []uint64 // bit i of word w is w*64+i; the last word is not 0
}

// CPUs returns a set. It panics if a number is negative or at least MaxCPUs, so outside numbers need ParseCPUSet or
// ValidCPUs.
func CPUs(cpus ...int) CPUSet {
	var s CPUSet
	for _, c := range cpus {
		if c < 0 || c >= MaxCPUs {
			panic(fmt.Sprintf("topology.CPUs(%d): out of range", c))
		}
		s.set(c, c)
	}
	return s
}

// ValidCPUs is like CPUs, but leaves out invalid numbers.
func ValidCPUs(cpus []int) CPUSet {
	return CPUs(lists.Filter(cpus, func(c int) bool { return c >= 0 && c < MaxCPUs })...)
}

// bounded returns an error for JSON field name if n is not in 0 to most.
func bounded(name string, n, most int) error {
	if n < 0 || n > most {
		return fmt.Errorf("%s is %d; want 0 to %d", name, n, most)
	}
	return nil
}

// UnionOf returns the union of sets.
func UnionOf[E any](values []E, of func(E) CPUSet) (all CPUSet) {
	for _, v := range values {
		all = all.Union(of(v))
	}
	return all
}

// CPURange returns first to last, inclusive; it is empty if last is less.
func CPURange(first, last int) CPUSet {
	var s CPUSet
	if last < first {
		return s
	}
	if first < 0 || last >= MaxCPUs {
		panic(fmt.Sprintf("topology.CPURange(%d, %d): out of range", first, last))
	}
	s.set(first, last)
	return s
}

// set must not get a shared set.
func (s *CPUSet) set(first, last int) {
	if need := last/64 + 1; need > len(s.words) {
		if need > cap(s.words) {
			s.words = append(make([]uint64, 0, need), s.words...)
		}
		s.words = s.words[:need]
	}
	for c := first; c <= last; {
		if c%64 == 0 && last-c >= 63 {
			s.words[c/64] = ^uint64(0)
			c += 64
			continue
		}
		s.words[c/64] |= 1 << (c % 64)
		c++
	}
}

// A CPUSetError is for an invalid list or mask.
type CPUSetError struct {
	In     string // input, shortened to 80 bytes
	Offset int    // in bytes
	Why    string
}

func (e *CPUSetError) Error() string {
	return fmt.Sprintf("CPU list %q: at byte %d: %s", e.In, e.Offset, e.Why)
}

func cpuSetError(in string, at int, why string) error {
	if len(in) > 80 {
		in = in[:80] + "..."
	}
	return &CPUSetError{In: in, Offset: at, Why: why}
}

// Every second number up to MaxCPUs, with commas, takes less.
const maxListBytes = 4 * MaxCPUs

// ParseCPUSet parses the kernel's list format: "0-3,8,10-14:2" (the last is every second of 10 to 14; "0-31:4/8" takes
// 4 of every 8). White space around the list is ignored; an empty list is the empty set. Descending ranges ("5-2") are
// errors, as in the kernel, and so are empty items ("0-3,,7") and inner white space.
//
// Source: Documentation/admin-guide/kernel-parameters.rst, "cpu lists".
func ParseCPUSet(s string) (CPUSet, error) {
	var set CPUSet
	trimmed := strings.TrimSpace(s)
	if trimmed == "" {
		return set, nil
	}
	if len(trimmed) > maxListBytes {
		return set, cpuSetError(s, maxListBytes, fmt.Sprintf("list of %d bytes; at most %d are taken", len(trimmed),
			maxListBytes))
	}
	at := strings.Index(s, trimmed)
	for item := range strings.SplitSeq(trimmed, ",") {
		if err := set.parseItem(s, item, at); err != nil {
			return CPUSet{}, err
		}
		at += len(item) + 1
	}
	return set, nil
}

// parseItem adds "N", "N-M", "N-M:S" or "N-M:U/S", which is at byte at of in.
func (s *CPUSet) parseItem(in, item string, at int) error {
	if item == "" {
		return cpuSetError(in, at, "empty item between commas")
	}
	span, stride, hasStride := strings.Cut(item, ":")
	firstText, lastText, isRange := strings.Cut(span, "-")
	first, ok := number(firstText)
	if !ok {
		return cpuSetError(in, at, fmt.Sprintf("%q is not a number from 0 to %d", firstText, MaxCPUs-1))
	}
	last := first
	if isRange {
		if last, ok = number(lastText); !ok {
			return cpuSetError(in, at+len(firstText)+1, fmt.Sprintf("%q is not a number from 0 to %d", lastText,
				MaxCPUs-1))
		}
	}
	if last < first {
		return cpuSetError(in, at, fmt.Sprintf("range %s runs backwards", span))
	}
	used, group := 1, 1
	if hasStride {
		usedText, groupText, both := strings.Cut(stride, "/")
		if !both {
			usedText, groupText = "1", stride
		}
		used, ok = number(usedText)
		group, both = number(groupText)
		if !ok || !both || used < 1 || group < used {
			return cpuSetError(in, at+len(span)+1, fmt.Sprintf("%q is not a stride", stride))
		}
	}
	if used == group {
		s.set(first, last)
		return nil
	}
	for c := first; c <= last; c += group {
		s.set(c, min(c+used-1, last))
	}
	return nil
}

// number rejects "+1" and "1_0", unlike strconv.
func number(s string) (int, bool) {
	if s == "" || len(s) > 6 {
		return 0, false
	}
	v := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		v = v*10 + int(s[i]-'0')
	}
	return v, v < MaxCPUs
}

// Mask returns hexadecimal words of 32 CPUs, the highest first (lib/bitmap.c, bitmap_parse).
func (s CPUSet) Mask() string {
	words := []uint32{0}
	for c := range s.All() {
		for len(words) <= c/32 {
			words = append(words, 0)
		}
		words[c/32] |= 1 << (c % 32)
	}
	mask := fmt.Sprintf("%x", words[len(words)-1])
	for _, word := range slices.Backward(words[:len(words)-1]) {
		mask += fmt.Sprintf(",%08x", word)
	}
	return mask
}

// ParseCPUMask parses the kernel's mask format: hexadecimal words of 32 bits, highest first, such as "ff,00000000". It
// also accepts hwloc's "0x000000ff,0x0"; an empty mask is the empty set.
func ParseCPUMask(s string) (CPUSet, error) {
	var set CPUSet
	trimmed := strings.TrimSpace(s)
	if trimmed == "" {
		return set, nil
	}
	words := strings.Split(trimmed, ",")
	if len(words) > MaxCPUs/32 {
		return CPUSet{}, cpuSetError(s, 0, fmt.Sprintf("mask of %d words; at most %d are taken", len(words),
			MaxCPUs/32))
	}
	at := strings.Index(s, trimmed)
	set.words = make([]uint64, (len(words)+1)/2)
	for i, w := range words {
		digits := strings.TrimPrefix(cmp.Or(w, "0"), "0x") // hwloc omits zero words: "0xffffffff,,0x3"
		v, err := strconv.ParseUint(digits, 16, 32)
		if err != nil {
			return CPUSet{}, cpuSetError(s, at, fmt.Sprintf("%q is not a word of 32 bits in hexadecimal", w))
		}
		low := len(words) - 1 - i
		set.words[low/2] |= v << (32 * (low % 2))
		at += len(w) + 1
	}
	set.trim()
	return set, nil
}

// trim makes equal sets deeply equal.
func (s *CPUSet) trim() {
	for n := len(s.words); n > 0 && s.words[n-1] == 0; n-- {
		s.words = s.words[:n-1]
	}
	if len(s.words) == 0 {
		s.words = nil
	}
}

// String returns the kernel's list format: "0-3,8". The empty set is "".
func (s CPUSet) String() string { return string(s.append(nil)) }

func (s CPUSet) append(b []byte) []byte {
	for c := s.next(0); c >= 0; {
		end := c
		for s.Contains(end + 1) {
			end++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(c), 10)
		if end > c {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(end), 10)
		}
		c = s.next(end + 1)
	}
	return b
}

// next returns the lowest member from c on, or -1.
func (s CPUSet) next(c int) int {
	for w := c / 64; w < len(s.words); w++ {
		word := s.words[w]
		if w == c/64 {
			word &= ^uint64(0) << (c % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// All yields the members in order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := s.next(0); c >= 0; c = s.next(c + 1) {
			if !yield(c) {
				return
			}
		}
	}
}

// Len counts members.
func (s CPUSet) Len() int { return lists.Sum(s.words, bits.OnesCount64) }

// IsEmpty is true without members.
func (s CPUSet) IsEmpty() bool { return len(s.words) == 0 }

// Min returns the lowest member, or -1.
func (s CPUSet) Min() int { return s.next(0) }

// Contains reports whether c is in s.
func (s CPUSet) Contains(c int) bool {
	return c >= 0 && c/64 < len(s.words) && s.words[c/64]&(1<<(c%64)) != 0
}

// Union returns members of s or t.
func (s CPUSet) Union(t CPUSet) CPUSet {
	return s.combine(t, max(len(s.words), len(t.words)), func(a, b uint64) uint64 { return a | b })
}

// combine uses the first n words.
func (s CPUSet) combine(t CPUSet, n int, of func(a, b uint64) uint64) CPUSet {
	word := func(s CPUSet, i int) uint64 {
		if i < len(s.words) {
			return s.words[i]
		}
		return 0
	}
	out := CPUSet{words: make([]uint64, n)}
	for i := range n {
		out.words[i] = of(word(s, i), word(t, i))
	}
	out.trim()
	return out
}

// Intersect returns members of both.
func (s CPUSet) Intersect(t CPUSet) CPUSet {
	return s.combine(t, min(len(s.words), len(t.words)), func(a, b uint64) uint64 { return a & b })
}

// Difference returns members of s not in t.
func (s CPUSet) Difference(t CPUSet) CPUSet {
	return s.combine(t, len(s.words), func(a, b uint64) uint64 { return a &^ b })
}

// Overlaps reports whether they share a member.
func (s CPUSet) Overlaps(t CPUSet) bool {
	for i := range min(len(s.words), len(t.words)) {
		if s.words[i]&t.words[i] != 0 {
			return true
		}
	}
	return false
}

// IsSubsetOf reports whether t has all of s.
func (s CPUSet) IsSubsetOf(t CPUSet) bool {
	for i, w := range s.words {
		if i >= len(t.words) || w&^t.words[i] != 0 {
			return false
		}
	}
	return true
}

// Equal is also for package cmp.
func (s CPUSet) Equal(t CPUSet) bool { return s.IsSubsetOf(t) && t.IsSubsetOf(s) }

// Compare orders sets by the lowest member, then by text; the empty set is first.
func (s CPUSet) Compare(t CPUSet) int {
	if a, b := s.Min(), t.Min(); a != b {
		return a - b
	}
	return strings.Compare(s.String(), t.String())
}

// MarshalText writes String's form.
func (s CPUSet) MarshalText() ([]byte, error) { return s.append([]byte{}), nil }

// UnmarshalText parses as ParseCPUSet.
func (s *CPUSet) UnmarshalText(b []byte) error {
	v, err := ParseCPUSet(string(b))
	if err == nil {
		*s = v
	}
	return err
}
