package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func members(s CPUSet) []int { return slices.Collect(s.All()) }

func TestParseCPUSet(t *testing.T) {
	t.Parallel()
	seq := func(first, last int) []int {
		var out []int
		for c := first; c <= last; c++ {
			out = append(out, c)
		}
		return out
	}
	for name, c := range map[string]struct {
		in   string
		want []int
		out  string // "=" for in
	}{
		"nothing":                            {"", nil, "="},
		"white space":                        {" \n", nil, ""},
		"one":                                {"0", []int{0}, "="},
		"a range":                            {"0-3", seq(0, 3), "="},
		"a range of one":                     {"7-7", []int{7}, "7"},
		"two neighbours":                     {"4,5", []int{4, 5}, "4-5"},
		"a newline at the end":               {"0-1\n", []int{0, 1}, "0-1"},
		"threads of a core":                  {"3,67", []int{3, 67}, "="},
		"not in order":                       {"8,0-1", []int{0, 1, 8}, "0-1,8"},
		"overlapping":                        {"0-4,2-6,5", seq(0, 6), "0-6"},
		"words of 64 and their ends":         {"62-65,127-128", []int{62, 63, 64, 65, 127, 128}, "="},
		"whole words":                        {"0-63,128-255", append(seq(0, 63), seq(128, 255)...), "="},
		"every second":                       {"10-14:2", []int{10, 12, 14}, "10,12,14"},
		"every second, the last left out":    {"10-13:2", []int{10, 12}, "10,12"},
		"two of three":                       {"0-8:2/3", []int{0, 1, 3, 4, 6, 7}, "0-1,3-4,6-7"},
		"a group longer than the range":      {"0-2:4/8", []int{0, 1, 2}, "0-2"},
		"all of each group":                  {"0-3:2/2", seq(0, 3), "0-3"},
		"a stride of one":                    {"0-3:1", seq(0, 3), "0-3"},
		"zeros before the number":            {"007-010", seq(7, 10), "7-10"},
		"4096 CPUs":                          {"0-4095", seq(0, 4095), "="},
		"the last number":                    {"65535", []int{65535}, "="},
		"every number":                       {"0-65535", seq(0, 65535), "="},
		"64 nodes with one missing":          {"0-30,32-63", append(seq(0, 30), seq(32, 63)...), "="},
		"a machine of 8 nodes and SMT":       {"48-55,176-183", append(seq(48, 55), seq(176, 183)...), "="},
		"a range given backwards by threads": {"1,0", []int{0, 1}, "0-1"},
	} {
		set, err := ParseCPUSet(c.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, members(set)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		out := c.out
		if out == "=" {
			out = c.in
		}
		if set.String() != out {
			t.Errorf("%s: String %q, want %q", name, set, out)
		}
		if set.Len() != len(c.want) || set.IsEmpty() != (len(c.want) == 0) {
			t.Errorf("%s: Len %d, IsEmpty %v; there are %d members", name, set.Len(), set.IsEmpty(), len(c.want))
		}
		low := -1
		if len(c.want) > 0 {
			low = c.want[0]
		}
		if set.Min() != low {
			t.Errorf("%s: Min %d, want %d", name, set.Min(), low)
		}
	}
}

func TestParseCPUSetErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1,", 60)
	for in, want := range map[string]string{
		"0-3,,7":        `CPU list "0-3,,7": at byte 4: empty item between commas`,
		",":             `CPU list ",": at byte 0: empty item between commas`,
		"0-3,":          `CPU list "0-3,": at byte 4: empty item between commas`,
		",0":            `CPU list ",0": at byte 0: empty item between commas`,
		"5-2":           `CPU list "5-2": at byte 0: range 5-2 runs backwards`,
		"0,5-2":         `CPU list "0,5-2": at byte 2: range 5-2 runs backwards`,
		"0-99999999999": `CPU list "0-99999999999": at byte 2: "99999999999" is not a number from 0 to 65535`,
		"0-4000000000":  `CPU list "0-4000000000": at byte 2: "4000000000" is not a number from 0 to 65535`,
		"65536":         `CPU list "65536": at byte 0: "65536" is not a number from 0 to 65535`,
		"1-":            `CPU list "1-": at byte 2: "" is not a number from 0 to 65535`,
		"-3":            `CPU list "-3": at byte 0: "" is not a number from 0 to 65535`,
		"-1":            `CPU list "-1": at byte 0: "" is not a number from 0 to 65535`,
		"0--3":          `CPU list "0--3": at byte 2: "-3" is not a number from 0 to 65535`,
		"0-3-5":         `CPU list "0-3-5": at byte 2: "3-5" is not a number from 0 to 65535`,
		"+1":            `CPU list "+1": at byte 0: "+1" is not a number from 0 to 65535`,
		"1_0":           `CPU list "1_0": at byte 0: "1_0" is not a number from 0 to 65535`,
		"0x3":           `CPU list "0x3": at byte 0: "0x3" is not a number from 0 to 65535`,
		" 1 , 2":        `CPU list " 1 , 2": at byte 1: "1 " is not a number from 0 to 65535`,
		"0 1":           `CPU list "0 1": at byte 0: "0 1" is not a number from 0 to 65535`,
		"all":           `CPU list "all": at byte 0: "all" is not a number from 0 to 65535`,
		"٣":             `CPU list "٣": at byte 0: "٣" is not a number from 0 to 65535`,
		"0-7:":          `CPU list "0-7:": at byte 4: "" is not a stride`,
		"0-7:0":         `CPU list "0-7:0": at byte 4: "0" is not a stride`,
		"0-7:2/":        `CPU list "0-7:2/": at byte 4: "2/" is not a stride`,
		"0-7:/2":        `CPU list "0-7:/2": at byte 4: "/2" is not a stride`,
		"0-7:0/2":       `CPU list "0-7:0/2": at byte 4: "0/2" is not a stride`,
		"0-7:3/2":       `CPU list "0-7:3/2": at byte 4: "3/2" is not a stride`,
		"0-7:2:2":       `CPU list "0-7:2:2": at byte 4: "2:2" is not a stride`,
		long + "x": `CPU list "` + strings.Repeat("1,", 40) +
			`...": at byte 120: "x" is not a number from 0 to 65535`,
		"0\x00": `CPU list "0\x00": at byte 0: "0\x00" is not a number from 0 to 65535`,
		strings.Repeat("0-65535:1/2,", 30000): `CPU list "` + strings.Repeat("0-65535:1/2,", 10)[:80] +
			`...": at byte 262144: list of 360000 bytes; at most 262144 are taken`,
	} {
		set, err := ParseCPUSet(in)
		if err == nil {
			t.Errorf("%.40q: no error, got %s", in, set)
			continue
		}
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		var at *CPUSetError
		if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(in) {
			t.Errorf("%.40q: got %#v, want a *CPUSetError with a place in the list", in, err)
		}
		if !set.IsEmpty() {
			t.Errorf("%.40q: got %s with the error, want nothing", in, set)
		}
	}
}

func TestParseCPUMask(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                      "",
		"\n":                                    "",
		"0":                                     "",
		"f\n":                                   "0-3",
		"ff,00000000":                           "32-39",
		"80000000,00000001":                     "0,63",
		"1,00000000,00000000":                   "64",
		"00000000,00000000,00ff":                "0-7",
		"FF":                                    "0-7",
		"0x000000ff,0x0":                        "32-39", // hwloc's
		"0xffffffff,,0x3":                       "0-1,64-95",
		"0x00000303,,0x0":                       "64-65,72-73",
		",":                                     "",
		"00000000,ffffffff":                     "0-31",
		strings.Repeat("0,", 2047) + "1":        "0",
		"80000000" + strings.Repeat(",0", 2047): "65535",
	} {
		set, err := ParseCPUMask(in)
		if err != nil {
			t.Errorf("%.40q: %v", in, err)
		} else if set.String() != want {
			t.Errorf("%.40q: got %s, want %s", in, set, want)
		}
	}
	for in, want := range map[string]string{
		"xyz":       `CPU list "xyz": at byte 0: "xyz" is not a word of 32 bits in hexadecimal`,
		"0x":        `CPU list "0x": at byte 0: "0x" is not a word of 32 bits in hexadecimal`,
		"100000000": `CPU list "100000000": at byte 0: "100000000" is not a word of 32 bits in hexadecimal`,
		"ff,g":      `CPU list "ff,g": at byte 3: "g" is not a word of 32 bits in hexadecimal`,
		"ff, ff":    `CPU list "ff, ff": at byte 3: " ff" is not a word of 32 bits in hexadecimal`,
		"+f":        `CPU list "+f": at byte 0: "+f" is not a word of 32 bits in hexadecimal`,
		"-1":        `CPU list "-1": at byte 0: "-1" is not a word of 32 bits in hexadecimal`,
		"f_f":       `CPU list "f_f": at byte 0: "f_f" is not a word of 32 bits in hexadecimal`,
		"0x0x1":     `CPU list "0x0x1": at byte 0: "0x0x1" is not a word of 32 bits in hexadecimal`,
		"0xf...f":   `CPU list "0xf...f": at byte 0: "0xf...f" is not a word of 32 bits in hexadecimal`,
		"  ff,\n":   "",
		strings.Repeat(",", 2048): `CPU list "` + strings.Repeat(",", 80) +
			`...": at byte 0: mask of 2049 words; at most 2048 are taken`,
	} {
		_, err := ParseCPUMask(in)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestMakingSets(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		CPUs().String():            "",
		CPUs(3, 1, 3).String():     "1,3",
		CPUs(65535).String():       "65535",
		CPURange(0, -1).String():   "",
		CPURange(5, 4).String():    "",
		CPURange(4, 4).String():    "4",
		CPURange(60, 130).String(): "60-130",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, f := range map[string]func(){
		"topology.CPUs(-1): out of range":           func() { CPUs(-1) },
		"topology.CPUs(65536): out of range":        func() { CPUs(0, 65536) },
		"topology.CPURange(-1, 3): out of range":    func() { CPURange(-1, 3) },
		"topology.CPURange(0, 65536): out of range": func() { CPURange(0, 65536) },
	} {
		func() {
			defer func() {
				if got := recover(); got != name {
					t.Errorf("got %v, want the panic %q", got, name)
				}
			}()
			f()
		}()
	}
}

func TestSetsAsJSON(t *testing.T) {
	t.Parallel()
	type pair struct {
		A CPUSet  `json:"a"`
		B *CPUSet `json:"b,omitempty"`
		C CPUSet  `json:"c,omitzero"`
	}
	b := CPUs(1, 2)
	for _, v := range []struct {
		in   pair
		want string
	}{
		{pair{A: CPURange(0, 3), B: &b, C: CPUs(9)}, `{"a":"0-3","b":"1-2","c":"9"}`},
		{pair{}, `{"a":""}`},
		{pair{B: &CPUSet{}}, `{"a":"","b":""}`},
	} {
		got, err := json.Marshal(v.in)
		if err != nil || string(got) != v.want {
			t.Errorf("got %s and error %v, want %s", got, err, v.want)
		}
		var back pair
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if diff := cmp.Diff(v.in, back); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	keep := CPUs(5)
	if err := keep.UnmarshalText([]byte("3-1")); err == nil || keep.String() != "5" {
		t.Errorf("got error %v and set %s, want an error and the set as it was", err, keep)
	}
}

func TestCompareSets(t *testing.T) {
	t.Parallel()
	sets := []CPUSet{CPUs(8), CPUs(0, 4), CPUs(), CPUs(0), CPUs(2), CPURange(0, 3), CPUs(10)}
	slices.SortFunc(sets, CPUSet.Compare)
	if got, want := fmt.Sprint(sets), "[ 0 0,4 0-3 2 8 10]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStopIterating(t *testing.T) {
	t.Parallel()
	n := 0
	for range CPURange(0, 9).All() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("got %d members before the break, want 3", n)
	}
}

type model map[int]bool

func (m model) set() CPUSet { return CPUs(slices.Collect(maps.Keys(m))...) }

func drawModel(t *rapid.T, name string) model {
	number := rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{0, 63, 64, 127, 128, 4095, 4096,
		MaxCPUs - 1}))
	m := model{}
	for _, n := range rapid.SliceOfN(number, 0, 60).Draw(t, name) {
		m[n] = true
	}
	return m
}

func TestAlgebra(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ma, mb := drawModel(t, "a"), drawModel(t, "b")
		a, b := ma.set(), mb.set()
		textA, textB := a.String(), b.String()
		union, both, onlyA := maps.Clone(ma), model{}, model{}
		for n := range mb {
			union[n] = true
		}
		for n := range ma {
			if mb[n] {
				both[n] = true
			} else {
				onlyA[n] = true
			}
		}
		for _, c := range []struct {
			what string
			got  CPUSet
			want model
		}{{"union", a.Union(b), union}, {"intersection", a.Intersect(b), both}, {"difference", a.Difference(b),
			onlyA}} {
			want := slices.Sorted(maps.Keys(c.want))
			if !slices.Equal(members(c.got), want) {
				t.Fatalf("%s of %s and %s: %s, want %v", c.what, a, b, c.got, want)
			}
			if diff := cmp.Diff(c.want.set().words, c.got.words); diff != "" {
				t.Fatalf("%s of %s and %s (-want +got):\n%s", c.what, a, b, diff)
			}
		}
		if a.Overlaps(b) != (len(both) > 0) || a.IsSubsetOf(b) != (len(onlyA) == 0) || a.Equal(b) != maps.Equal(ma,
			mb) || a.Len() != len(ma) {
			t.Fatalf("%s and %s: Overlaps %v, IsSubsetOf %v, Equal %v, Len %d", a, b, a.Overlaps(b), a.IsSubsetOf(b),
				a.Equal(b), a.Len())
		}
		if c := a.Compare(b); (c == 0) != a.Equal(b) || (c < 0) != (b.Compare(a) > 0) {
			t.Fatalf("%s and %s compare as %d, and the other way as %d", a, b, c, b.Compare(a))
		}
		for _, n := range []int{-1, 0, 63, 64, 199, 4096, MaxCPUs - 1, MaxCPUs, 1 << 40} {
			if a.Contains(n) != ma[n] {
				t.Fatalf("%s contains %d: %v", a, n, a.Contains(n))
			}
		}
		if a.String() != textA || b.String() != textB {
			t.Fatalf("operands changed: %s to %s, %s to %s", textA, a, textB, b)
		}
	})
}

func TestTextRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := drawModel(t, "set").set()
		back, err := ParseCPUSet(set.String())
		if err != nil || !back.Equal(set) {
			t.Fatalf("%s: got %s and error %v", set, back, err)
		}
		fromMask, err := ParseCPUMask(mask(set))
		if err != nil || !fromMask.Equal(set) {
			t.Fatalf("%s as %s: got %s and error %v", set, mask(set), fromMask, err)
		}
	})
}

func mask(s CPUSet) string {
	words := make([]uint32, 1)
	for c := range s.All() {
		for len(words) <= c/32 {
			words = append(words, 0)
		}
		words[c/32] |= 1 << (c % 32)
	}
	var parts []string
	for _, w := range slices.Backward(words) {
		parts = append(parts, fmt.Sprintf("%08x", w))
	}
	return strings.Join(parts, ",")
}

// FuzzParseCPUSet compares with a slow parser, number by number.
func FuzzParseCPUSet(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8,10-14:2", "0-31:4/8", "0-3,,7", "5-2", "1-", "-3", "+1", " 1 , 2",
		"0-65535", "62-66,127-129:1/1", "7:2", "00-01"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		set, err := ParseCPUSet(in)
		if err != nil {
			var at *CPUSetError
			if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(in) || at.Why == "" || !set.IsEmpty() {
				t.Fatalf("got set %s and error %#v", set, err)
			}
			return
		}
		want := model{}
		for item := range strings.SplitSeq(strings.TrimSpace(in), ",") {
			var first, last, used, group int
			switch {
			case item == "":
			case scan(item, "%d-%d:%d/%d", &first, &last, &used, &group), scan(item, "%d:%d/%d", &first, &used, &group):
			case scan(item, "%d-%d:%d", &first, &last, &group), scan(item, "%d:%d", &first, &group):
				used = 1
			case scan(item, "%d-%d", &first, &last), scan(item, "%d", &first):
				used, group = 1, 1
			default:
				t.Fatalf("item %q of %q was taken", item, in)
			}
			if !strings.Contains(item, "-") {
				last = first
			}
			for c := first; item != "" && c <= last; c++ {
				if (c-first)%group < used {
					want[c] = true
				}
			}
		}
		if got := members(set); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("%q: got %s, want %s", in, set, want.set())
		}
		if back, err := ParseCPUSet(set.String()); err != nil || !back.Equal(set) {
			t.Fatalf("%q prints as %q, which is %s with error %v", in, set, back, err)
		}
	})
}

// scan removes leading zeros, because %d would read "08" as octal.
func scan(s, format string, into ...any) bool {
	var clean strings.Builder
	for i, c := range s {
		startsNumber := i == 0 || s[i-1] < '0' || s[i-1] > '9'
		if c == '0' && startsNumber && strings.TrimLeft(s[i:], "0") != "" {
			rest := strings.TrimLeft(s[i:], "0")
			if rest[0] >= '0' && rest[0] <= '9' {
				return scan(s[:i]+rest, format, into...)
			}
			return scanExactly(s[:i]+"0"+rest, format, into...)
		}
		clean.WriteRune(c)
	}
	return scanExactly(clean.String(), format, into...)
}

func scanExactly(s, format string, into ...any) bool {
	n, err := fmt.Sscanf(s+"\n", format+"\n", into...)
	return err == nil && n == len(into)
}

// FuzzParseCPUMask fails if an accepted mask prints as another.
func FuzzParseCPUMask(f *testing.F) {
	for _, seed := range []string{"", "0", "ff,00000000", "0x000000ff,0x0", "0xffffffff,,0x3", "0x", "xyz", "100000000",
		",", "+f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		set, err := ParseCPUMask(in)
		if err != nil {
			var at *CPUSetError
			if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(in) || !set.IsEmpty() {
				t.Fatalf("got set %s and error %#v", set, err)
			}
			return
		}
		back, err := ParseCPUMask(mask(set))
		if err != nil || !back.Equal(set) || !slices.Equal(back.words, set.words) {
			t.Fatalf("%q is %s; its mask %q is %s with error %v", in, set, mask(set), back, err)
		}
	})
}

func BenchmarkParseCPUSet(b *testing.B) {
	for b.Loop() {
		if _, err := ParseCPUSet("0-63,128-191,256-319,384-447"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCPUMasksComeBackFromTheKernelsForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := CPUs(rapid.SliceOfN(rapid.IntRange(0, 1023), 0, 40).Draw(t, "cpus")...)
		mask := set.Mask()
		back, err := ParseCPUMask(mask)
		if err != nil || !back.Equal(set) {
			t.Fatalf("mask of %s is %s, which reads as %s (%v)", set, mask, back, err)
		}
	})
}
