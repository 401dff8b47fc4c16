package checks

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/finding"
)

type linkReader struct {
	Reader
	links []SwitchLink
	err   error
}

func (r linkReader) SwitchLinks(context.Context) ([]SwitchLink, error) { return r.links, r.err }

func TestLinksOfTheSwitchAreComparedWithWhatWasAsked(t *testing.T) {
	t.Parallel()
	fix := "rackless link set pair --port vm01 --loss 0"
	r := linkReader{links: []SwitchLink{{Port: "vm00", Have: "as set", Want: "as set", Fix: fix},
		{Port: "vm01", Have: "loss 5%", Want: "loss 0", Fix: fix}}}
	for _, tt := range []struct {
		name string
		r    Reader
		want []string
	}{
		{"a reader without a switch", &struct{ Reader }{}, nil},
		{"one link differs", r, []string{"ok switch port vm00 as set ", "failed switch port vm01 loss 5% " + fix}},
		{"a dead switch", linkReader{err: errors.New("no answer")}, []string{"unknown switch no answer rackless up " +
			"with the lab's file starts a dead switch again"}},
	} {
		var got []string
		for _, f := range switchLinks(t.Context(), tt.r) {
			got = append(got, string(f.Status)+" "+f.Subject+" "+f.Have+" "+f.Fix)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if n := len(finding.NotOK(switchLinks(t.Context(), r))); n != 1 {
		t.Errorf("%d findings are not OK, want 1", n)
	}
}
