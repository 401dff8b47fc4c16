package results

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/record"
)

func measurement(lab string, at int64) record.Record {
	return record.Record{Lab: lab, Generated: time.Unix(at, 0).UTC(), Samples: []bench.Sample{{Run: "r",
		Test: "ping", Client: "vm00", Server: "vm01", Metric: bench.MetricLatencyAverage, Value: 5, Unit: "us",
		Started: time.Unix(at, 0).UTC()}}}
}

func TestWhatIsSavedIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := Store{Data: t.TempDir()}
	if _, err := s.Last(""); err == nil || err.Error() != "no measurement is stored in "+s.Dir()+
		"; make one with: rackless bench NAME" {
		t.Errorf("of an empty store: %v", err)
	}
	var dirs []string
	for _, data := range []record.Record{measurement("pair", 1), measurement("other", 2), measurement("pair", 3),
		measurement("pair", 3)} {
		dir, err := s.Save(data, report.Page)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		got, err := Load(dir)
		if diff := cmp.Diff(data.Samples, got.Samples); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", dir, err, diff)
		}
		for _, name := range []string{SamplesFile, PageFile} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
	if filepath.Base(dirs[3]) != filepath.Base(dirs[2])+"-1" {
		t.Errorf("two measurements of one second: %s and %s", dirs[2], dirs[3])
	}
	for lab, want := range map[string]string{"": dirs[3], "pair": dirs[3], "other": dirs[1]} {
		if got, err := s.Last(lab); err != nil || got != want {
			t.Errorf("the last of %q: %s, %v; want %s", lab, got, err, want)
		}
	}
	if _, err := s.Last("none"); err == nil {
		t.Error("a lab that was never measured has a last measurement")
	}
	for arg, want := range map[string]string{dirs[0]: dirs[0], "pair/" + filepath.Base(dirs[0]): dirs[0], "pair": "",
		"pair/../other/" + filepath.Base(dirs[1]): dirs[1], "x": "", "": ""} {
		if got := s.Find(arg); got != "" && filepath.Clean(got) != want || got == "" && want != "" {
			t.Errorf("Find(%q) = %q, want %q", arg, got, want)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Dir(), "pair", ".new-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir(), "pair", ".new-1", reportFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(""); err != nil || len(all) != 4 || all[0].Lab != "pair" || all[1].Lab != "other" {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestABaselineIsWrittenWhereItIsLookedFor(t *testing.T) {
	t.Parallel()
	s := Store{Data: t.TempDir()}
	b := &expect.Baseline{Schema: expect.BaselineSchema, Lab: "pair"}
	own := filepath.Join(t.TempDir(), "mine.json")
	for file, want := range map[string]string{"": s.BaselineFile("pair"), own: own} {
		path, err := s.SaveBaseline(file, b)
		if err != nil || path != want {
			t.Errorf("SaveBaseline(%q) = %s, %v; want %s", file, path, err, want)
		}
		if text, err := os.ReadFile(want); err != nil || text[len(text)-1] != '\n' {
			t.Errorf("%s: %q, %v", want, text, err)
		}
	}
	if _, err := s.SaveBaseline(filepath.Join(own, "x"), b); err == nil {
		t.Error("a directory that is not there was made")
	}
}
