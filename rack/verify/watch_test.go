package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack/verify/checks"
)

func TestWatchPrintsWhatChanges(t *testing.T) {
	found := func(id, subject string, s finding.Status, have string) finding.Finding {
		return finding.Finding{ID: id, Subject: subject, Title: id, Status: s, Have: have, Want: "w", Fix: "f"}
	}
	silent := finding.Finding{Silent: true, ID: checks.IDLink, Subject: "vm01", Title: "node answers",
		Status: finding.Unknown,
		Have:   "silent"}
	mtu := func(s finding.Status) finding.Finding { return found("link-mtu", "vm01 eth0", s, string(s)) }
	link := found("link", "vm00 eth0", finding.OK, "up")
	tests := []struct {
		name   string
		rounds [][]finding.Finding
		want   []string // "round before>now subject"
		off    int      // at the end
	}{
		{"nothing is wrong and nothing changes", [][]finding.Finding{{link}, {link}}, nil, 0},
		{"what is wrong from the start is said once", [][]finding.Finding{{link, mtu(finding.Failed)},
			{link, mtu(finding.Failed)}}, []string{"0 >failed vm01 eth0"}, 1},
		{"one stops holding and holds again", [][]finding.Finding{{mtu(finding.OK)}, {mtu(finding.Failed)},
			{mtu(finding.Failed)}, {mtu(finding.OK)}},
			[]string{"1 ok>failed vm01 eth0", "3 failed>ok vm01 eth0"}, 0},
		{"what failed can no longer be read", [][]finding.Finding{{mtu(finding.Failed)}, {mtu(finding.Unknown)}},
			[]string{"0 >failed vm01 eth0", "1 failed>unknown vm01 eth0"}, 1},
		{"a node that falls silent takes its checks with it, and they stay as they were",
			[][]finding.Finding{{link, mtu(finding.Failed)}, {link, silent}, {link, mtu(finding.OK)}},
			[]string{"0 >failed vm01 eth0", "1 ok>unknown vm01", "2 failed>ok vm01 eth0", "2 unknown>ok vm01"}, 0},
		{"the same check on two subjects", [][]finding.Finding{{mtu(finding.OK)},
			{mtu(finding.OK), found("link-mtu", "vm00 eth0", finding.Failed, "")}}, []string{"1 ok>failed vm00 eth0"},
			1},
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
