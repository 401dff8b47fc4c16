package words_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/words"
)

func TestNumbersForPeople(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"no bytes", words.Bytes(0), "0 B"},
		{"bytes stay whole", words.Bytes(999), "999 B"},
		{"what would need four digits takes the next unit", words.Bytes(1000), "0.98 KiB"},
		{"two decimals below ten", words.Bytes(1536), "1.50 KiB"},
		{"one below a hundred", words.Bytes(50 << 20), "50.0 MiB"},
		{"none above", words.Bytes(int64(200 << 20)), "200 MiB"},
		{"rounding up to ten loses a decimal", words.Bytes(uint64(10234)), "9.99 KiB"},
		{"beyond terabytes", words.Bytes(int64(5000) << 40), "4.88 PiB"},
		{"the largest number", words.Bytes(uint64(math.MaxUint64)), "16384 PiB"},
		{"no rate", words.Rate(0), "0 b/s"},
		{"rates are decimal", words.Rate(1500), "1.50 kb/s"},
		{"gigabits", words.Rate(1.234e9), "1.23 Gb/s"},
		{"beyond gigabits", words.Rate(4e12), "4.00 Tb/s"},
		{"the largest unit of rates", words.Rate(1e18), "1000000 Tb/s"},
		{"a moment", words.Ago(300 * time.Millisecond), "0s"},
		{"a clock set back", words.Ago(-time.Hour), "0s"},
		{"seconds up to two minutes", words.Ago(119 * time.Second), "119s"},
		{"minutes up to two hours", words.Ago(119 * time.Minute), "119m"},
		{"hours up to two days", words.Ago(47 * time.Hour), "47h"},
		{"days", words.Ago(49 * time.Hour), "2d"},
		{"in a sentence a clock set back", words.Lasting(-1), "0 s"},
		{"in a sentence seconds", words.Lasting(119 * time.Second), "119 s"},
		{"in a sentence minutes", words.Lasting(2 * time.Minute), "2 min"},
		{"in a sentence minutes up to two hours", words.Lasting(119 * time.Minute), "119 min"},
		{"in a sentence hours up to two days", words.Lasting(47 * time.Hour), "47 h"},
		{"in a sentence days", words.Lasting(49 * time.Hour), "2 days"},
		{"the largest unit below", words.Size(67 << 30), "67 GiB"},
		{"with one decimal", words.Size(125 << 29), "62.5 GiB"},
		{"a hundred has none", words.Size(1001 << 20), "1001 MiB"},
		{"the largest size", words.Size(math.MaxUint64), "16 EiB"},
		{"the unit that divides", words.Exact(uint64(3) << 30), "3 GiB"},
		{"a size that only a smaller unit divides", words.Exact(int64(24268) << 20), "24268 MiB"},
		{"a size that no unit divides", words.Exact(int64(1500)), "1500 bytes"},
		{"a size of nothing", words.Exact(int64(0)), "0 bytes"},
		{"a name that is printable", words.Plain("vm-1 of José"), "vm-1 of José"},
		{"a name that steers a terminal", words.Plain("a\x1b[2J"), `"a\x1b[2J"`},
		{"a name with a quote", words.Plain(`a"b`), `"a\"b"`},
		{"no name", words.Plain(""), `""`},
		{"a long name", words.Plain(strings.Repeat("x", 100)), strings.Repeat("x", 80) + "..."},
		{"few enough", words.Few([]string{"a", "b"}, 2, ", "), "a, b"},
		{"too many", words.Few([]string{"a", "b", "c", "d"}, 2, ", "), "a, b, and 2 more"},
		{"the plural of a word in ss", words.Count(2, "address"), "2 addresses"},
		{"the plural of a word in ch", words.Count(2, "switch"), "2 switches"},
		{"one", words.Count(1, "node"), "1 node"},
		{"none is many", words.Count(0, "node"), "0 nodes"},
		{"a y becomes ies", words.Count(2, "study"), "2 studies"},
		{"but not behind a vowel", words.Count(2, "day"), "2 days"},
		{"an x takes es", words.Count(2, "root complex"), "2 root complexes"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestCommandsAreQuotedForAShell(t *testing.T) {
	t.Parallel()
	tests := []struct {
		argv []string
		want string
	}{
		{[]string{"iperf3", "-c", "fd00::1%eth0", "--json"}, "iperf3 -c fd00::1%eth0 --json"},
		{[]string{"a", "", "b c", "d'e", "$f", "*"}, `a '' 'b c' 'd'\''e' '$f' '*'`},
	}
	for _, tt := range tests {
		if got := words.CommandLine(tt.argv); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestOr(t *testing.T) {
	for want, list := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"},
		"a, b or c": {"a", "b", "c"}} {
		if got := words.Or(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for want, most := range map[string]int{"a, b and c": 3, "a, b and 1 more": 2, "a and 2 more": 1} {
		if got := words.Names([]string{"a", "b", "c"}, most); got != want {
			t.Errorf("%d: got %q, want %q", most, got, want)
		}
	}
}

func TestClipCountsCharacters(t *testing.T) {
	for s, want := range map[string]string{"": "", "häufig": "häufig", "häufiger": "häufig..."} {
		if got := words.Clip(s, 6); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
