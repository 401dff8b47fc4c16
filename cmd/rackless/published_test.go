package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/tally"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/store"
)

// madeLine is the only line of a report that is not the runs' doing.
var madeLine = regexp.MustCompile(`(?m)This report was made .*\n`)

// publishedStudies unpacks the figures under docs/studies.
func publishedStudies(t *testing.T) string {
	t.Helper()
	packed, err := os.Open("docs/studies/studies.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	raw, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "studies.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, raw); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPublishedStudiesAreWhatTheirRunsShow makes the reports under docs/studies again, from the raw
// figures beside them.
func TestPublishedStudiesAreWhatTheirRunsShow(t *testing.T) {
	t.Chdir("../..") // where make ran
	const dir = "docs/studies"
	db := publishedStudies(t)
	for _, name := range []string{"protected", "contention", "loss", "mtu", "aa-idle", "aa-load", "aa-loss"} {
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
			if strings.HasPrefix(name, "aa-") {
				tally.Logf(t, "a real study of a level against itself: %d comparisons, over %d blocks",
					len(doc.Result.Comparisons), doc.Result.Blocks)
			}
			for _, c := range doc.Result.Comparisons {
				if strings.HasPrefix(name, "aa-") && c.Judged != nil && (c.Judged.Verdict == stats.Better ||
					c.Judged.Verdict == stats.Worse) {
					t.Errorf("a level against itself: %s of %s is called %s", c.Metric, c.Test, c.Judged.Verdict)
				}
			}
			if doc.Lab == nil || len(doc.Lab.Findings) == 0 {
				t.Error("nodes and checks of its lab are not there")
			}
			if !doc.Emulated {
				t.Error("it does not say that it is emulated")
			}
		})
	}
}

// What is said beforehand of how long a run takes is right to a factor of two for the published
// studies, whose runs were made on TCG nodes.
func TestHowLongRunsTakeIsEstimated(t *testing.T) {
	a, _, _ := testApp(t)
	d, err := a.dirs()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	db, err := store.OpenReader(t.Context(), publishedStudies(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"protected", "contention", "loss", "mtu", "aa-idle", "aa-load", "aa-loss"} {
		t.Run(name, func(t *testing.T) {
			file := "examples/studies/" + name + ".yaml"
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := study.Parse(file, text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exec.LookPath("stress-ng"); err != nil && os.Getenv("CI") == "" && bytes.Contains(text,
				[]byte("cpu:2")) {
				t.Skip(err)
			}
			r, err := a.studyRig(t.Context(), studyRunOptions{accel: "tcg"}, d, spec, file)
			if err != nil {
				t.Fatal(err)
			}
			estimate, err := r.Takes()
			if err != nil {
				t.Fatal(err)
			}
			took, runs, err := conduct.Earlier(t.Context(), db, spec)
			if err != nil || runs == 0 {
				t.Fatalf("%d runs, %v", runs, err)
			}
			t.Logf("a run was estimated to take %v, and %d took %v on average", estimate, runs, took)
			if estimate > 2*took || took > 2*estimate {
				t.Errorf("estimate %v, and it took %v: more than a factor of two", estimate, took)
			}
		})
	}
}
