package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report/show"
)

func fakeHost(governors ...string) *verify.Target {
	round := 0
	return &verify.Target{
		Plan: &plan.Plan{Lab: "pair", Nodes: []plan.Node{{Name: "vm00", VCPUs: []int{1}}}},
		Host: func(ctx context.Context) (*topology.Host, error) {
			h := &topology.Host{Cores: []topology.Core{{CPUs: topology.CPUs(1),
				Governor: governors[min(round, len(governors)-1)]}}}
			round++
			return h, ctx.Err()
		}}
}

func TestWatchGoesOnUntilItIsInterrupted(t *testing.T) {
	tests := []struct {
		name      string
		governors []string
		form      string
		want      []string
		code      int
	}{
		{"all holds at the end", []string{"performance", "powersave", "performance"}, formatText, []string{
			"T00:00:00Z  1 check, 0 failed; watching every 10s, Ctrl-C ends it",
			"T00:00:10Z  FAILED    host  CPU frequency governor is performance: powersave on 1",
			"        want  performance", "        fix   cpupower frequency-set -g performance",
			"T00:00:20Z  ok again  host  CPU frequency governor is performance: performance"}, 0},
		{"something is off at the end", []string{"performance", "powersave"}, formatJSON, []string{
			`T00:00:10Z","before":"ok","finding":{"id":"governor","code":"RL209","subject":"host",`}, exitFaults},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, out, _ := testApp(t)
			v := fakeHost(tt.governors...)
			var err error
			synctest.Test(t, func(t *testing.T) {
				// the bubble's clock begins at a full hour
				ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
				defer cancel()
				err = a.watchVerify(ctx, &verifyOptions{form: tt.form, interval: 10 * time.Second,
					only: []string{checks.IDGovernor}}, v)
			})
			if code, _ := exitCodeOf(err); code != tt.code {
				t.Errorf("status %d (%v), want %d", code, err, tt.code)
			}
			lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("got\n%s", out)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q", i, lines[i], want)
				}
			}
		})
	}
	a, _, _ := testApp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.watchVerify(ctx, &verifyOptions{form: formatText, interval: time.Second},
		fakeHost("performance")); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted before anything was checked: %v", err)
	}
}

// Impossible checks are listed beside the result, not in it.
func TestWhatIsNotCheckedIsSaid(t *testing.T) {
	v := fakeHost("performance")
	v.Unseen = "the host, which is another machine"
	a, out, complaints := testApp(t)
	if err := a.verifyOnce(t.Context(), &verifyOptions{form: formatJSON, only: []string{checks.IDGovernor}},
		v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(complaints.String(), "not checked: the host, which is another machine\n") ||
		!json.Valid(out.Bytes()) {
		t.Errorf("printed %s, and said %s", out, complaints)
	}
}

func exitCodeOf(err error) (int, string) {
	if err == nil {
		return 0, ""
	}
	return exitCode(err)
}

func TestPlansThatAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "unexpected end of JSON input",
		"[]":                              "not a plan",
		"{\n\"schema\": 5}":               "line 2: ",
		`{"schema": "rackless/host/v1"}`:  `schema is "rackless/host/v1"; want "rackless/plan/v1"`,
		"{}":                              `schema is ""`,
		`{"nodes": [{"vcpus": ["all"]}]}`: "not a plan",
	} {
		name := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := planner.ReadPlan(name)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
		if code, _ := exitCodeOf(err); code != exitUsage {
			t.Errorf("%q: status %d", text, code)
		}
	}
}

// The page shows a shortened line.
func TestTheDocumentedLineOfAWatchIsWhatIsPrinted(t *testing.T) {
	page := pages(t)["docs/json.md"]
	_, rest, ok := strings.Cut(page, "```json\n{\"at\":")
	if !ok {
		t.Fatal("docs/json.md shows no line of verify --watch")
	}
	line, _, _ := strings.Cut("{\"at\":"+rest, "\n")
	var got verify.Drift
	d := json.NewDecoder(strings.NewReader(strings.Replace(line, ",...", "", 1)))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var b bytes.Buffer
	if err := show.EncodeNext(&b, formatJSON, got); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(strings.Replace(line, ",...", "", 1), "\n") + "\n"; b.String() != want {
		t.Errorf("printed %swant    %s", &b, want)
	}
}
