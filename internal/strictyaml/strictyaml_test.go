package strictyaml

import (
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
)

func TestGuardTurnsAPanicIntoAnError(t *testing.T) {
	_, err := guard(func() (int, error) { panic("index out of range") })
	if !errors.Is(err, errParserPanic) {
		t.Errorf("got %v", err)
	}
	if v, err := guard(func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
	s := New(&Format{}, "f")
	s.syntax(errParserPanic)
	if got, want := s.Errs.Error(), "f: malformed YAML; check the quotes, brackets and indentation"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFirstInvalidByte(t *testing.T) {
	tests := []struct {
		name, text string
		at         Place
		what       string
	}{
		{"plain text", "a: b\n", Place{}, ""},
		{"text beyond ASCII", "ä: €\n", Place{}, ""},
		{"the replacement character itself is allowed", "a: \ufffd", Place{}, ""},
		{"a broken first byte", "\xff", Place{1, 1}, "not UTF-8 text"},
		{"a cut character at the end", "a: \xe2\x82", Place{1, 4}, "not UTF-8 text"},
		{"columns count characters", "€€\xff", Place{1, 3}, "not UTF-8 text"},
		{"lines are counted", "a\nb\n\x00", Place{3, 1}, "NUL byte in the text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, what := firstInvalid(tt.text)
			if at != tt.at || what != tt.what {
				t.Errorf("got %v %q, want %v %q", at, what, tt.at, tt.what)
			}
		})
	}
}

func TestExcerpt(t *testing.T) {
	long := strings.Repeat("x", 150)
	tests := []struct {
		name         string
		lines        []string
		line, column int
		want         string
	}{
		{"no place", []string{"a"}, 0, 0, ""},
		{"past the end", []string{"a"}, 2, 1, ""},
		{"the first line", []string{"abc", "d"}, 1, 2, ">    1 | abc\n       |  ^"},
		{"two lines before", []string{"a", "b", "c", "d"}, 4, 1, "     2 | b\n     3 | c\n>    4 | d\n       | ^"},
		{"a tab is one column", []string{"\ta"}, 1, 2, ">    1 |  a\n       |  ^"},
		{"what cannot be printed is one column", []string{"\x1b[1ma"}, 1, 5, ">    1 | \ufffd[1ma\n       |     ^"},
		{"a Windows line end is not shown", []string{"a\r"}, 1, 1, ">    1 | a\n       | ^"},
		{"past the end of the line", []string{"a:"}, 1, 3, ">    1 | a:\n       |   ^"},
		{"a long line is cut", []string{long}, 1, 1, ">    1 | " + long[:100] + "\n       | ^"},
		{"a long line is moved", []string{long + "y"}, 1, 151, ">    1 | " + long[:49] + "y\n       | " +
			strings.Repeat(" ", 49) + "^"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := excerpt(tt.lines, tt.line, tt.column); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestQuoteIsBounded(t *testing.T) {
	tests := []struct{ text, want string }{
		{"a", `"a"`},
		{"a\x1b[0m", `"a\x1b[0m"`},
		{strings.Repeat("ä", 60), `"` + strings.Repeat("ä", 60) + `"`},
		{strings.Repeat("ä", 61), `"` + strings.Repeat("ä", 60) + `..."`},
	}
	for _, tt := range tests {
		if got := Quote(tt.text); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestJoin(t *testing.T) {
	tests := []struct{ path, name, want string }{
		{"", "name", "name"},
		{"nodes", "vm00", "nodes.vm00"},
		{"nodes.vm00", "cpus", "nodes.vm00.cpus"},
		{"nodes", "a.b", `nodes."a.b"`},
		{"nodes", "", `nodes.""`},
		{"nodes", "\x1b", `nodes."\x1b"`},
	}
	for _, tt := range tests {
		if got := Join(tt.path, tt.name); got != tt.want {
			t.Errorf("Join(%q, %q) = %s, want %s", tt.path, tt.name, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"cpus", "memory", "image", "nics", "gpus", "count"}
	tests := []struct{ word, want string }{
		{"cpu", "cpus"}, {"CPUs", "cpus"}, {"mem", "memory"}, {"memroy", "memory"}, {"nic", "nics"},
		{"counts", "count"},
		{"img", "image"}, {"gpu", "gpus"}, {"vcpus", "cpus"}, {"zzz", ""}, {"", ""}, {"x", ""},
		{strings.Repeat("cpus", 100), ""},
	}
	for _, tt := range tests {
		if got := Nearest(tt.word, keys); got != tt.want {
			t.Errorf("Nearest(%.20q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"cpus", "gpus", 1},
		{"memroy", "memory", 2}}
	for _, tt := range tests {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

type thing struct {
	Name  string         `yaml:"name"`
	Count int            `yaml:"count"`
	Seed  *uint64        `yaml:"seed"`
	Share float64        `yaml:"share"`
	On    bool           `yaml:"on"`
	Wait  time.Duration  `yaml:"wait"`
	Addr  netip.Addr     `yaml:"addr"`
	List  []item         `yaml:"list"`
	Map   map[string]int `yaml:"map"`
	Free  []string       `yaml:"free"`
}

type item struct {
	Key string `yaml:"key"`
}

func TestParseByTheTypesOfGo(t *testing.T) {
	seed := uint64(7)
	for _, tt := range []struct {
		name, text string
		loose      bool
		want       thing
		err        string // prefix of the first error
	}{
		{name: "every kind", text: "{name: a, count: -3, seed: 7, share: 2.5, on: true, wait: 90s, addr: 192.0.2.1,\n" +
			"list: [{key: x}, {key: y}], map: {a: 1}, free: [a]}",
			want: thing{"a", -3, &seed, 2.5, true, 90 * time.Second, netip.MustParseAddr("192.0.2.1"),
				[]item{{"x"}, {"y"}}, map[string]int{"a": 1}, []string{"a"}}},
		{name: "keys without values", text: "name:\nseed:\nlist:\nfree: ~"},
		{name: "JSON's numbers", text: `{"share": 3e2}`, want: thing{Share: 300}},
		{name: "a number for a text", text: "name: 5",
			err: `f:1:7: name: wrong type (have 5, want text); to mean it as text, quote it: "5"`},
		{name: "a number for a text, if loose", text: "name: 0x1f", loose: true, want: thing{Name: "0x1f"}},
		{name: "an unknown key below a list", text: "list:\n- {kye: x}",
			err: `f:2:4: list[0]: unknown key (have "kye", want key); did you mean key?`},
		{name: "no list", text: "list: x", err: `f:1:7: list: wrong type (have "x", want a list)`},
		{name: "no value in a map", text: "map: {a: }",
			err: "f:1:9: map.a: wrong type (have nothing, want a whole number)"},
		{name: "below zero", text: "seed: -1", err: "f:1:7: seed: out of range (have -1, want a whole number from 0)"},
		{name: "no number", text: "share: .inf", err: "f:1:8: share: wrong type (have .inf, want a number)"},
		{name: "a number in quotes", text: `share: "1"`, err: `f:1:8: share: wrong type (have "1", want a number)`},
		{name: "neither true nor false", text: "on: maybe",
			err: `f:1:5: on: wrong type (have "maybe", want true or false)`},
		{name: "a time without a unit", text: "wait: 5",
			err: "f:1:7: wait: wrong type (have 5, want a time such as 20s or 1m30s)"},
		{name: "what its type refuses", text: "addr: 1.2", err: `f:1:7: addr: ParseAddr("1.2")`},
		{name: "two faults, in their order", text: "on: 1\nname: [a]", err: "f:1:5: on: wrong type"},
		{name: "an alias", text: "free: &a [1]\nmap: *a",
			err: "f:1:7: anchors, aliases and merge keys are not used in things"},
		{name: "too many", text: "free: [" + strings.Repeat("1,", 200) + "]", err: "f: too many keys and values"},
		{name: "too deep", text: "free: " + strings.Repeat("[", 9),
			err: "f:1:15: nested too deeply (want at most 8 levels)"},
		{name: "too large", text: strings.Repeat("#", 1001),
			err: "f: file too large (have 1001 bytes, want at most 1000)"},
		{name: "nothing", text: "# later", err: "f: empty thing"},
		{name: "two documents", text: "name: a\n---\nname: b",
			err: "f:2:1: more than one document in the file (want one thing)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got thing
			r := New(&Format{Name: "thing", File: "thing", MaxSize: 1000, MaxTokens: 200, MaxDepth: 8,
				LooseText: tt.loose},
				"f")
			r.Parse([]byte(tt.text), &got)
			if tt.err != "" {
				if len(r.Errs) == 0 || !strings.HasPrefix(r.Errs.Error(), tt.err) {
					t.Errorf("got  %v\nwant %s", r.Errs, tt.err)
				}
			} else if len(r.Errs) > 0 || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, r.Errs, tt.want)
			}
		})
	}
}

func TestPlaceOfAPathIsThatOfWhatItWouldBePartOf(t *testing.T) {
	r := New(&Format{MaxSize: 1000, MaxTokens: 100, MaxDepth: 8}, "f")
	r.Parse([]byte("name: a\nlist:\n- key: x\n"), new(thing))
	for path, want := range map[string]Place{"list[0].key": {3, 8}, "list[0].other": {3, 3}, "list[1]": {3, 1},
		"other": {1, 1}, "": {1, 1}} {
		if got := r.Place(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

// FuzzParse guards against a crash, and against a text that is refused without a reason.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"name: a\nlist: [{key: x}]", "seed: 1\nwait: 1s", "free: {a: [1, {b: 2}]}", "- a", "? a",
		"&a",
		"map:\n  a: 1\n  a: 2", "name: |\n  x\n", "\t", "on: true\nshare: 1e3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := New(&Format{Name: "thing", File: "thing", MaxSize: 4000, MaxTokens: 1000, MaxDepth: 8, LooseText: true},
			"f")
		r.Parse(data, new(thing))
		for _, e := range r.Errs {
			if e.What == "" || e.Line < 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestRulesReadWhatTheTypesOfGoDoNotSay(t *testing.T) {
	type word string
	type inner struct {
		Twice int `json:"twice" rule:"twice"`
	}
	type outer struct {
		inner
		Word  word   `json:"word,omitempty"`
		Names []int  `json:"names"`
		Text  string `json:"text"`
		Own   string `json:"-"`
	}
	for _, tt := range []struct {
		text string
		want outer
		err  string // prefix of the first error
	}{
		{"{twice: 2, word: a}", outer{inner: inner{4}, Word: "a!"}, ""},
		{"names:", outer{}, ""},
		{"text:", outer{}, "f:1:7: text: wrong type (have nothing, want text)"},
		{"twice:", outer{}, "f:1:8: twice: wrong type (have nothing, want a whole number)"},
		{"own: a", outer{}, `f:1:1: unknown key (have "own", want twice, word, names or text)`},
	} {
		f := &Format{MaxSize: 1000, MaxTokens: 100, MaxDepth: 8, NeedValues: true}
		r := New(f, "f")
		f.Rules = map[string]Rule{"twice": RuleOf(func(path string, n ast.Node) *int {
			if i := r.Integer(path, n, math.MinInt, math.MaxInt); i != nil {
				return new(2 * *i)
			}
			return nil
		})}
		f.Types = map[reflect.Type]Rule{reflect.TypeFor[word](): func(path string, n ast.Node, v reflect.Value) {
			s, _ := r.Text(path, n, "a word")
			v.SetString(s + "!")
		}}
		var got outer
		r.Parse([]byte(tt.text), &got)
		if tt.err != "" {
			if len(r.Errs) == 0 || !strings.HasPrefix(r.Errs.Error(), tt.err) {
				t.Errorf("%q: got %v, want %s", tt.text, r.Errs, tt.err)
			}
		} else if len(r.Errs) > 0 || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: got %+v, %v", tt.text, got, r.Errs)
		}
	}
}
