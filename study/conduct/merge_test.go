package conduct_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
)

// figures returns the figures of a study, each with its place in the order.
func figures(t *testing.T, c *conduct.Conductor) map[string]float64 {
	t.Helper()
	runs, err := c.DB.Whole(t.Context(), c.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, r := range runs {
		for _, s := range r.Samples {
			all[fmt.Sprintf("%d/%d/%d %s %v %s", r.Block, r.Place, r.Attempt, r.Status, r.Cell, s.Metric)] = s.Value
		}
	}
	return all
}

// deterministic makes figures that depend on the cell only, as those of a simulation do.
func deterministic(f *fakeRig) {
	f.measure = func(_ int, m study.Measure) ([]bench.Sample, error) {
		v := map[string]float64{"pin": 50}[f.cell["placement"]] + 100
		return []bench.Sample{{Run: "r", Test: m.Test, Unit: "us", Metric: "latency_p99", Value: v}}, nil
	}
}

func TestPartsAreAWholeStudy(t *testing.T) {
	t.Parallel()
	whole, f, _ := setUp(t, text)
	deterministic(f)
	if err := whole.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var files []string
	runs := 0
	for k := 1; k <= 5; k++ {
		c, f, path := setUp(t, text)
		deterministic(f)
		c.Part = conduct.Part{Number: k, Of: 5}
		c.Progress = func(p conduct.Progress) {
			if want := (24 - k + 5) / 5; p.Total != want {
				t.Errorf("part %d: progress says %d runs, want %d", k, p.Total, want)
			}
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.DB.Close(); err != nil {
			t.Fatal(err)
		}
		runs += len(f.applied)
		files = append(files, path)
	}
	if runs != 24 {
		t.Errorf("the parts made %d runs, want 24", runs)
	}
	merged, f, _ := setUp(t, text)
	deterministic(f)
	for _, step := range []struct {
		files []string
		want  conduct.Merged
	}{
		{files[:3], conduct.Merged{Files: 3, Added: 15}},
		{files[2:4], conduct.Merged{Files: 2, Added: 5, Known: 5}},
		{nil, conduct.Merged{}},
	} {
		got, err := conduct.Merge(t.Context(), merged.DB, merged.Study, merged.Spec, step.files)
		if err != nil || got != step.want {
			t.Errorf("%d files: %+v, %v, want %+v", len(step.files), got, err, step.want)
		}
	}
	// What is missing is made here.
	if err := merged.Run(t.Context()); err != nil || len(f.applied) != 4 {
		t.Errorf("%v, %d runs, want the 4 of the last part", err, len(f.applied))
	}
	if got, want := fmt.Sprint(figures(t, merged)), fmt.Sprint(figures(t, whole)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if len(merged.Study.Environment) != 1 {
		t.Errorf("environment %v", merged.Study.Environment)
	}
	all, err := merged.DB.Whole(t.Context(), merged.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.After == nil || r.Seconds == 0 {
			t.Errorf("run %d: %+v, %v s", r.Run, r.After, r.Seconds)
		}
	}
}

// A run that failed is merged with its attempts, and is not made again.
func TestFailuresOfPartsAreMerged(t *testing.T) {
	t.Parallel()
	c, f, path := setUp(t, text)
	c.Part = conduct.Part{Number: 1, Of: 24}
	f.measure = func(_ int, m study.Measure) ([]bench.Sample, error) {
		return []bench.Sample{{Run: "r", Test: m.Test, Error: "no flow ended"}}, nil
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.DB.Close(); err != nil {
		t.Fatal(err)
	}
	merged, _, _ := setUp(t, text)
	got, err := conduct.Merge(t.Context(), merged.DB, merged.Study, merged.Spec, []string{path})
	if err != nil || got.Added != conduct.MaxAttempts {
		t.Fatalf("%+v, %v", got, err)
	}
	all, err := merged.DB.Whole(t.Context(), merged.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Status != study.StatusFailed || len(r.Failed) != 1 || !strings.Contains(r.Error, "no flow ended") {
			t.Errorf("%+v", r)
		}
	}
	if n, err := conduct.Outcomes(t.Context(), merged.DB); err != nil || n[merged.Study.ID].GivenUp != 1 {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestPartsOfOtherStudiesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, digest, want string
		change                   func(r *study.Observation)
	}{
		{"files", text, "other", "study fake was begun with other files", nil},
		{"name", strings.Replace(text, "fake", "another", 1), "", "there is no such study", nil},
		{"block", text, "", "it has a run of block 7, and the study has 6 blocks",
			func(r *study.Observation) { r.Block = 7 }},
		{"place", text, "", "place 5 of block 1", func(r *study.Observation) { r.Place = 5 }},
		{"cell", text, "", "with placement=numa, which is not in the study's order",
			func(r *study.Observation) { r.Cell = map[string]string{"placement": "numa"} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "part.db")
			db, err := store.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := study.Parse("study.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			s, err := conduct.Begin(t.Context(), db, spec, tt.digest, "", "test", false)
			if err != nil {
				t.Fatal(err)
			}
			first := spec.Block(1)[0]
			r := study.Observation{Block: 1, Place: 1, Attempt: 1, Cell: spec.Settings(first.Cell)}
			if tt.change != nil {
				tt.change(&r)
			}
			if err := db.Begin(t.Context(), s.ID, &r); err != nil {
				t.Fatal(err)
			}
			r.Status = study.StatusDone
			if err := db.End(t.Context(), &r, nil); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			c, _, _ := setUp(t, text)
			got, err := conduct.Merge(t.Context(), c.DB, c.Study, c.Spec, []string{path})
			if err == nil || !strings.Contains(err.Error(), tt.want) || got.Added != 0 {
				t.Errorf("%+v, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b"} {
		if p, err := conduct.ParsePart(text); err == nil {
			t.Errorf("%q is %+v", text, p)
		}
	}
	if p, err := conduct.ParsePart("3/4"); err != nil || p != (conduct.Part{Number: 3, Of: 4}) {
		t.Errorf("%+v, %v", p, err)
	}
	if files, err := conduct.PartFiles(t.TempDir()); err == nil {
		t.Errorf("an empty directory has the parts %q", files)
	}
}

// The script leaves a part when its task is complete, and nothing of a task that failed.
func TestTheScriptOfAJobArray(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a 100% directory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// A stand-in for rackless writes its arguments where the part would be.
	program := filepath.Join(dir, "a program")
	if err := os.WriteFile(program, []byte("#!/bin/bash\nprintf '%s\\n' \"$@\" >\"${@: -1}\"\n[[ $4 != --part || $5 "+
		"!= 2/* ]]\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := conduct.Array{Name: "x", Study: dir + "/s.yaml", Dir: dir, Program: program, Tasks: 3, Blocks: 4}
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte(a.Text()), 0o700); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.Text(), "\n#SBATCH --array=1-3\n") {
		t.Error(a.Text())
	}
	for task := 1; task <= 2; task++ {
		cmd := exec.CommandContext(t.Context(), "bash", script)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", task), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if (err == nil) != (task == 1) {
			t.Fatalf("task %d: %v: %s", task, err, out)
		}
	}
	files, err := conduct.PartFiles(dir)
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "1.db" {
		t.Fatalf("parts %q, %v", files, err)
	}
	got, err := os.ReadFile(files[0])
	want := "study\nrun\n" + a.Study + "\n--part\n1/3\n--blocks\n4\n--db\n"
	if err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
