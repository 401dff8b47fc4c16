package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/check"
)

func TestWatchPrintsWhatChanges(t *testing.T) {
	finding := func(id, subject string, s check.Status, have string) check.Finding {
		return check.Finding{ID: id, Subject: subject, Title: id, Status: s, Have: have, Want: "w", Fix: "f"}
	}
	silent := check.Finding{Silent: true, ID: check.IDLink, Subject: "vm01", Title: "node answers",
		Status: check.Unknown,
		Have:   "silent"}
	mtu := func(s check.Status) check.Finding { return finding("link-mtu", "vm01 eth0", s, string(s)) }
	link := finding("link", "vm00 eth0", check.OK, "up")
	tests := []struct {
		name   string
		rounds [][]check.Finding
		want   []string // "round before>now subject"
		off    int      // at the end
	}{
		{"nothing is wrong and nothing changes", [][]check.Finding{{link}, {link}}, nil, 0},
		{"what is wrong from the start is said once", [][]check.Finding{{link, mtu(check.Failed)},
			{link, mtu(check.Failed)}}, []string{"0 >failed vm01 eth0"}, 1},
		{"one stops holding and holds again", [][]check.Finding{{mtu(check.OK)}, {mtu(check.Failed)},
			{mtu(check.Failed)}, {mtu(check.OK)}},
			[]string{"1 ok>failed vm01 eth0", "3 failed>ok vm01 eth0"}, 0},
		{"what failed can no longer be read", [][]check.Finding{{mtu(check.Failed)}, {mtu(check.Unknown)}},
			[]string{"0 >failed vm01 eth0", "1 failed>unknown vm01 eth0"}, 1},
		{"a node that falls silent takes its checks with it, and they stay as they were",
			[][]check.Finding{{link, mtu(check.Failed)}, {link, silent}, {link, mtu(check.OK)}},
			[]string{"0 >failed vm01 eth0", "1 ok>unknown vm01", "2 failed>ok vm01 eth0", "2 unknown>ok vm01"}, 0},
		{"the same check on two subjects", [][]check.Finding{{mtu(check.OK)},
			{mtu(check.OK), finding("link-mtu", "vm00 eth0", check.Failed, "")}}, []string{"1 ok>failed vm00 eth0"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w Watch
			var got []string
			for i, round := range tt.rounds {
				for _, c := range w.Changes(time.Unix(int64(i), 0), round) {
					got = append(got, strings.TrimSpace(string(rune('0'+i))+" "+string(c.Before)+">"+
						string(c.Finding.Status)+" "+c.Finding.Subject))
					if c.At.Unix() != int64(i) {
						t.Errorf("at %v", c.At)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if w.NotOK() != tt.off {
				t.Errorf("%d are off at the end, want %d", w.NotOK(), tt.off)
			}
		})
	}
}
