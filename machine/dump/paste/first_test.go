package paste

import (
	"slices"
	"strings"
	"testing"
)

func TestFirstTakesOneOfSeveralRanks(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("-", 15)
	clush, dshbak := "\n"+line+"\n", "\n-"+line+"\n"
	for _, tt := range []struct {
		text, want string
		labels     []string
	}{
		{"0: a\n1: b\n0: c\n1: d\n", "0: a\n\n0: c\n\n", []string{"0", "1"}},
		{"[1,3]<stdout>:a\n[1,0]<stdout>:b\n[1,3]<stderr>:c\n[1,0]<stdout>:d\n",
			"[1,3]<stdout>:a\n\n[1,3]<stderr>:c\n\n",
			[]string{"3", "0"}},
		{"gpu1: a\ngpu1: b\ngpu2: a\ngpu2: b", "gpu1: a\ngpu1: b\n\n", []string{"gpu1", "gpu2"}},
		{"n1 | CHANGED | rc=0 >>\na\nn2 | FAILED | rc=1 >>\nb\nc\n", "n1 | CHANGED | rc=0 >>\na\n\n\n\n",
			[]string{"n1", "n2"}},
		{"n1 | CHANGED | rc=0 >>\na\n", "n1 | CHANGED | rc=0 >>\na\n", nil},
		// dshbak, and clush -b.
		{dshbak + "n1" + dshbak + "a" + dshbak + "n2" + dshbak + "b\n", dshbak + "n1" + dshbak + "a\n\n\n\n\n",
			[]string{"n1", "n2"}},
		{clush + "n[1-3] (3)" + clush + "a" + clush + "n4" + clush, clush + "n[1-3] (3)" + clush + "a\n\n\n\n",
			[]string{"n[1-3]", "n4"}},
		{"[0] a\n[1] b\n[0] c\n[1] d\n", "[0] a\n\n[0] c\n\n", []string{"0", "1"}},
		{"0: a\n0: b\n", "0: a\n0: b\n", nil},
		{"hostpci0: a\nhostpci1: b\n", "hostpci0: a\nhostpci1: b\n", nil},
		{"2: eth0: <UP> mtu\n2: eth0 inet\n3: eth1: <UP> mtu\n3: eth1 inet\n",
			"2: eth0: <UP> mtu\n2: eth0 inet\n3: eth1: <UP> mtu\n3: eth1 inet\n", nil},
		{"a\n0: b\n1: c\n", "a\n0: b\n1: c\n", nil},
	} {
		got, labels := First([]byte(tt.text))
		if len(labels) < 2 {
			labels = nil
		}
		if string(got) != tt.want || !slices.Equal(labels, tt.labels) {
			t.Errorf("%q: got %q of %q, want %q of %q", tt.text, got, labels, tt.want, tt.labels)
		}
	}
}
