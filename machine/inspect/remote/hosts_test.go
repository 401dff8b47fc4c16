package remote

import (
	"slices"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string
	}{
		{"a\nb # the second\n\n# none\n", "a b"},
		{"a,b c", "a b c"},
		{"n[08-11]", "n08 n09 n10 n11"},
		{"n[1-2,7]-ib, root@x:22", "n1-ib n2-ib n7-ib root@x:22"},
		{"ssh://me@host:2222 a a", "ssh://me@host:2222 a"},
		{"a\n-oProxyCommand=x", `f:2: "-oProxyCommand=x" is not a host`},
		{"a;b", `f:1: "a;b" is not a host`},
		{"n[3-1]", "is not a range"},
		{"n[1-99999]", "is not a range"},
		{"n[0-4095]\nm", "f:2: more than 4096 hosts"},
		{"n[1", "is not a host"},
		{"# nothing", "f: no hosts"},
	} {
		hosts, err := Hosts("f", tt.text)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q: %v; want %s", tt.text, err, tt.want)
			}
		} else if !slices.Equal(hosts, strings.Fields(tt.want)) {
			t.Errorf("%q: %q; want %s", tt.text, hosts, tt.want)
		}
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("n[1-2,7]-ib, root@x:22\n# a")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := Hosts("f", text)
		for _, h := range hosts {
			if err == nil && (strings.HasPrefix(h, "-") || strings.ContainsAny(h, " \t\n'\"$`;&|<>")) {
				t.Errorf("host %q", h)
			}
		}
	})
}
