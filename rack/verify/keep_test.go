package verify

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
)

func TestFindingsAreKeptForOthersToShow(t *testing.T) {
	t.Parallel()
	d := rack.Dirs{Data: t.TempDir()}
	if k, err := LastRecord(d, "pair"); err != nil || !k.At.IsZero() {
		t.Errorf("of a lab that was never verified: %+v, %v", k, err)
	}
	for _, s := range []finding.Status{finding.OK, finding.Failed} {
		want := Record{At: time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC),
			Findings: []finding.Finding{{ID: "link", Code: "RL401", Subject: "vm00 eth0", Status: s}}}
		if err := SaveRecord(d, "pair", want); err != nil {
			t.Fatal(err)
		}
		got, err := LastRecord(d, "pair")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	files, err := os.ReadDir(filepath.Join(d.Data, "checks"))
	if err != nil || len(files) != 1 {
		t.Errorf("%d files, want one: %v", len(files), err)
	}
	if info, err := os.Stat(recordFile(d, "pair")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
