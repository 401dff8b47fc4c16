package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/store"
)

// storeStudy has RDMA latency by placement, with the figures of the published EPYC lab and 2 % noise.
func storeStudy(t *testing.T, path, name, cpu, cpus, kernel string, emulated bool) {
	t.Helper()
	spec, err := study.Parse("study.yaml",
		fmt.Appendf(nil, "name: %s\nlab: pair.yaml\nfactors:\n  placement: [pin, wrong-numa]\nmeasure: [{test: "+
			"ib_write_lat, bytes: 2, metrics: [latency_typical, latency_p99]}]\nblocks: 12\n", name))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	db, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &store.Study{Name: name, Spec: text, Digest: "0", Lab: "name: pair\nnodes:\n  vm: {count: 2}\n", Created: at,
		Rackless: "test"}
	if err := db.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	s.Environment = []study.Fact{{Name: "host CPU", Value: cpu}, {Name: "host CPUs", Value: cpus},
		{Name: "host kernel", Value: kernel}}
	if err := db.SetEnvironment(ctx, s); err != nil {
		t.Fatal(err)
	}
	figures := map[string][2]float64{"latency_typical": {1.44, 1.62}, "latency_p99": {1.53, 1.97}}
	raw := json.RawMessage(fmt.Sprintf(`{"test": "ib_write_lat", "tool": "perftest", "emulated": %v}`, emulated))
	rng := rand.New(rand.NewPCG(1, 2))
	for b := 1; b <= spec.Blocks; b++ {
		for _, run := range spec.Block(b) {
			r := &study.Observation{Block: b, Place: run.Place, Attempt: 1, Cell: spec.Settings(run.Cell),
				Started: at}
			if err := db.Begin(ctx, s.ID, r); err != nil {
				t.Fatal(err)
			}
			var samples []store.Sample
			for i, metric := range []string{"latency_typical", "latency_p99"} {
				x := store.Sample{Test: "ib_write_lat", Metric: metric, Bytes: 2,
					Value: figures[metric][run.Cell[0]] * math.Exp(0.02*rng.NormFloat64()), Unit: "us"}
				if i == 0 {
					x.Raw = raw
				}
				samples = append(samples, x)
			}
			r.Status, r.Seconds = study.StatusDone, 1
			if err := db.End(ctx, r, samples); err != nil {
				t.Fatal(err)
			}
			at = at.Add(time.Second)
		}
	}
}

func TestRecommendFromStudies(t *testing.T) {
	t.Parallel()
	h, err := inspect.ReadFile(context.Background(), epycHost)
	if err != nil {
		t.Fatal(err)
	}
	cpus := h.CPUs.Online.String()
	dir := t.TempDir()
	db, model := filepath.Join(dir, "studies.db"), filepath.Join(dir, "model.json")
	storeStudy(t, db, "here", h.System.CPUModel, cpus, h.Kernel.Release, false)
	storeStudy(t, db, "laptop", "Some other CPU", "0-3", "6.1.0", false)
	storeStudy(t, db, "emulated", h.System.CPUModel, cpus, h.Kernel.Release, true)

	a, stdout, stderr := testApp(t)
	if code := a.run(context.Background(), []string{"plan", pairLab, "--explain", "--host", epycHost, "--db", db,
		"--model-out", model, "-o", "json"}); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var document planDocument
	if err := json.Unmarshal(stdout.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	out := document.Recommendation
	got := map[string]recommend.Carry{}
	for _, s := range out.Studies {
		got[s.Study] = s.Carry
	}
	if got["here"] != recommend.MeasuredHere || got["laptop"] != recommend.MeasuredElsewhere ||
		got["emulated"] != recommend.Emulated {
		t.Errorf("studies are from %v", got)
	}
	for _, c := range out.Settings {
		for _, e := range c.Evidence {
			if e.Source == "study emulated" && e.Decides {
				t.Errorf("an emulated study decides: %+v", e)
			}
		}
	}
	// The planner accepts it.
	text, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	m, err := build.ParseModel(model, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Weights) != 3 || !maps.Equal(m.Weights, out.Model.Weights) ||
		m.Source != out.Model.Source {
		t.Errorf("the file has %+v; printed was %+v", m, out.Model)
	}
	a, _, stderr = testApp(t)
	if code := a.run(context.Background(), []string{"plan", pairLab, "--host", epycHost, "--model",
		model}); code != 0 {
		t.Errorf("plan --model: exit %d: %s", code, stderr)
	}

	// One of the studies is not enough for a fit.
	a, stdout, stderr = testApp(t)
	if code := a.run(context.Background(), []string{"plan", pairLab, "--explain", "--host", epycHost, "--db", db,
		"--study",
		"emulated"}); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"study emulated: emulated: it measured emulated machines, which say nothing about " +
		"hardware",
		"emulated: no evidence for hardware", "no study of this host compares wrong-numa with pin",
		"no model: the plan is that of rackless plan"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	a, _, stderr = testApp(t)
	if code := a.run(context.Background(), []string{"plan", pairLab, "--explain", "--host", epycHost, "--db", db,
		"--study",
		"none"}); code != exitFailed || !strings.Contains(stderr.String(), "has here, laptop, emulated") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestThePageOnRecommendationsShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/recommend.md"]
	example := regexp.MustCompile("(?s)```console\n\\$ rackless (plan [^\n]* --explain)\n(.*?)```")
	shown := example.FindStringSubmatch(page)
	if shown == nil {
		t.Fatal("docs/recommend.md shows no example")
	}
	args := strings.Fields(shown[1])
	for i, arg := range args {
		if strings.HasPrefix(arg, "examples/") {
			args[i] = "../../" + arg
		}
	}
	a, stdout, stderr := testApp(t)
	if code := a.run(context.Background(), args); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	printed := slices.Collect(strings.Lines(string(bytes.ReplaceAll(stdout.Bytes(), []byte("../../"), nil))))
	at := 0
	for line := range strings.Lines(shown[2]) {
		if line == "...\n" {
			continue
		}
		i := slices.Index(printed[at:], line)
		if i < 0 {
			t.Fatalf("the page shows %q, which is not printed behind the line before it", line)
		}
		at += i + 1
	}
}
