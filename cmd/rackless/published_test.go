package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/tally"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/results"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/store"
)

var madeLine = regexp.MustCompile(`(?m)This report was made .*\n`)

var published = []string{"protected", "contention", "loss", "mtu", "loss-connectx", "mtu-connectx", "incast",
	"incast-simulated", "thresholds", "victim", "lag", "gpudirect", "cluster", "aa-idle", "aa-load", "aa-loss"}

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

// TestPublishedStudiesAreWhatTheirRunsShow makes docs/studies again from the raw figures.
func TestPublishedStudiesAreWhatTheirRunsShow(t *testing.T) {
	t.Chdir("../..") // the working directory of make
	const dir = "docs/studies"
	db := publishedStudies(t)
	for _, name := range published {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			a := &app{}
			doc, err := a.studyDocument(t.Context(), db, "examples/studies/"+name+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			var now bytes.Buffer
			if err := studyview.Write(&now, "md", doc, studyview.Options{}); err != nil {
				t.Fatal(err)
			}
			was, is := madeLine.ReplaceAllString(string(text), ""), madeLine.ReplaceAllString(now.String(), "")
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
			if doc.Data.Spec.Simulation == "" && (doc.Lab == nil || len(doc.Lab.Findings) == 0) {
				t.Error("nodes and checks of its lab are not there")
			}
			if !doc.Emulated {
				t.Error("it does not say that it is emulated")
			}
		})
	}
}

// TestTheListOfStudiesHasTheirFigures works out the intervals that the list of studies shows, in whatever sentence.
func TestTheListOfStudiesHasTheirFigures(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/studies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	db := publishedStudies(t)
	const early, late = "100KiB:400KiB:20%", "400KiB:1600KiB:20%"
	const neither, ecn, pfc = "0", "32KiB:160KiB:100%", "512KiB:256KiB:3"
	for _, s := range []struct {
		study, factor, a, b string
		with                string // level of the other factor
		metric              string
		shown               string // percents of change, times, or a factor
	}{
		{"loss", "link.loss", "0%", "0.1%", "", bench.MetricBWAverage, "%"},
		{"loss", "link.loss", "0%", "0.5%", "", bench.MetricThroughput, "%"},
		{"loss-connectx", "link.loss", "0%", "0.1%", "", bench.MetricBWAverage, "%"},
		{"loss-connectx", "link.loss", "0%", "0.1%", "", bench.MetricThroughput, "%"},
		{"loss-connectx", "link.loss", "0%", "0.5%", "", bench.MetricBWAverage, "%"},
		{"loss-connectx", "link.loss", "0%", "0.5%", "", bench.MetricThroughput, "%"},
		{"loss-connectx", "link.loss", "0%", "1%", "", bench.MetricBWAverage, "%"},
		{"loss-connectx", "link.loss", "0%", "1%", "", bench.MetricThroughput, "%"},
		{"mtu-connectx", "lab.fabric.mtu", "1500", "9000", "", bench.MetricThroughput, "%"},
		{"incast", "link.ecn", neither, ecn, "no PFC", bench.MetricGoodput, "%"},
		{"incast", "link.pfc", neither, pfc, "no ECN", bench.MetricGoodput, "%"},
		{"incast", "link.pfc", neither, pfc, "no ECN", bench.MetricLatencyP99, "times"},
		{"incast", "link.ecn", neither, ecn, "PFC", bench.MetricLatencyP99, "%"},
		{"incast-simulated", "simulation.switch.ecn", neither, ecn, "no PFC", bench.MetricGoodput, "%"},
		{"incast-simulated", "simulation.switch.ecn", neither, ecn, "PFC", bench.MetricGoodput, "%"},
		{"incast-simulated", "simulation.switch.ecn", neither, ecn, "PFC", bench.MetricSlowdownP99, "%"},
		{"thresholds", "simulation.switch.ecn", "0", early, "", bench.MetricCompletion, "%"},
		{"thresholds", "simulation.switch.ecn", "0", late, "", bench.MetricCompletion, "%"},
		{"victim", "simulation.switch.ecn", "0", early, "", bench.MetricSlowdown, "%"},
		{"victim", "simulation.switch.ecn", "0", early, "", bench.MetricCompletion, "%"},
		{"victim", "simulation.switch.ecn", "0", late, "", bench.MetricSlowdown, "%"},
		{"victim", "simulation.switch.ecn", "0", late, "", bench.MetricCompletion, "%"},
		{"lag", "simulation.traffic.0.qps", "1", "8", "", bench.MetricGoodput, "%"},
		{"gpudirect", "test.nic", "nic0", "nic1", "GPUDirect", bench.MetricBWAverage, "%"},
		{"gpudirect", "test.way", "plain", "staged", "SYS", bench.MetricBWAverage, "%"},
		{"cluster", "mpi.nodes", "1", "2", "mpi.bare=false", bench.MetricStepRate, "%"},
		{"cluster", "mpi.nodes", "1", "4", "mpi.bare=false", bench.MetricStepRate, "%"},
		{"cluster", "mpi.nodes", "1", "2", "mpi.bare=true", bench.MetricStepRate, "%"},
		{"cluster", "mpi.bare", "true", "false", "mpi.nodes=1", bench.MetricStepRate, "factor"},
	} {
		e := publishedEffect(t, db, s.study, func(c study.Comparison) bool {
			return c.Factor == s.factor && c.A == s.a && c.B == s.b && c.Metric == s.metric &&
				(s.with == "" || c.Where == s.with)
		})
		low, high, unit := 100*(e.Low-1), 100*(e.High-1), " %"
		switch {
		case s.shown == "factor":
			low, high, unit = 1/e.High, 1/e.Low, ""
		case s.shown == "times":
			low, high, unit = e.Low, e.High, " times"
		case high < 0:
			low, high = -high, -low
		}
		row := regexp.MustCompile(`(?m)^\| \[` + s.study + `\].*$`).FindString(string(text))
		if figure := fmt.Sprintf(" %.0f to %.0f%s", low, high, unit); !strings.Contains(row, figure) {
			t.Errorf("docs/studies/README.md: the row of %s lacks%s:\n%s", s.study, figure, row)
		}
	}
}

// Each test of make cluster-demo proved that it used RDMA.
func TestPublishedClusterTests(t *testing.T) {
	const dir = "../../docs/studies/cluster-tests"
	data, err := results.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dir + ".md")
	if err != nil {
		t.Fatal(err)
	}
	var now bytes.Buffer
	if err := report.Markdown(&now, data); err != nil || now.String() != string(text) {
		t.Errorf("%s.md is not what %s shows; run make publish-cluster (%v)", dir, dir, err)
	}
	raw, err := os.Open(filepath.Join(dir, results.SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	samples, err := bench.ReadSamples(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []string{"mpi_mbw_mr/n4/p1", "mpi_alltoall/n4/p1", "mooncake_write", "mooncake_read"} {
		if !slices.ContainsFunc(samples, func(s bench.Sample) bool {
			return s.Test == test && s.Error == "" && s.RDMAPackets > 0
		}) {
			t.Errorf("%s has no figure of %s, or no proof", dir, test)
		}
	}
}

func publishedEffect(t *testing.T, db, name string, asked func(study.Comparison) bool) stats.Interval {
	t.Helper()
	doc, err := (&app{}).studyDocument(t.Context(), db, "examples/studies/"+name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(doc.Result.Comparisons, asked)
	if i < 0 || doc.Result.Comparisons[i].Effect == nil {
		t.Fatalf("study %s has no such effect", name)
	}
	return doc.Result.Comparisons[i].Effect.Interval
}

// The estimates are right to a factor of two for studies on TCG nodes.
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
	for _, name := range published {
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
			if spec.Simulation != "" {
				return // a simulation takes as long as the machine needs for its packets, which nothing tells
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
