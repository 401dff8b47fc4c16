package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/study/stats"
)

// madeLine is the only line of a report that is not the runs' doing.
var madeLine = regexp.MustCompile(`(?m)^Made .*\n`)

// TestPublishedStudiesAreWhatTheirRunsShow makes the reports under docs/studies again, from the raw figures beside them.
func TestPublishedStudiesAreWhatTheirRunsShow(t *testing.T) {
	t.Chdir("../..") // where make ran
	const dir = "docs/studies"
	raw, err := os.ReadFile(filepath.Join(dir, "studies.db"))
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "studies.db") // a reader leaves files beside it
	if err := os.WriteFile(db, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"contention", "loss", "mtu", "aa-idle", "aa-load", "aa-loss"} {
		t.Run(name, func(t *testing.T) {
			published, err := os.ReadFile(filepath.Join(dir, name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			a := &app{}
			doc, err := a.studyDocument(t.Context(), db, "examples/studies/"+name+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			var now bytes.Buffer
			if err := a.writeStudy(&now, "md", doc); err != nil {
				t.Fatal(err)
			}
			was, is := madeLine.ReplaceAllString(string(published), ""), madeLine.ReplaceAllString(now.String(), "")
			if diff := diffLines(was, is); diff != "" {
				t.Errorf("make publish-studies writes it anew (-published +now):\n%s", diff)
			}
			for _, c := range doc.Result.Comparisons {
				if strings.HasPrefix(name, "aa-") && c.Judged != nil && (c.Judged.Verdict == stats.Better || c.Judged.Verdict == stats.Worse) {
					t.Errorf("a level against itself: %s of %s is called %s", c.Metric, c.Test, c.Judged.Verdict)
				}
			}
			if !doc.Emulated {
				t.Error("it does not say that it is emulated")
			}
		})
	}
}
