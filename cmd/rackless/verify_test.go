package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/topology"
)

func TestWatchPrintsWhatChanges(t *testing.T) {
	finding := func(id, subject string, s check.Status, have string) check.Finding {
		return check.Finding{ID: id, Subject: subject, Title: id, Status: s, Have: have, Want: "w", Fix: "f"}
	}
	silent := check.Finding{ID: check.IDLink, Subject: "vm01", Title: "node answers", Status: check.Unknown,
		Have: "silent"}
	mtu := func(s check.Status) check.Finding { return finding("link-mtu", "vm01 eth0", s, string(s)) }
	link := finding("link", "vm00 eth0", check.OK, "up")
	tests := []struct {
		name   string
		rounds [][]check.Finding
		want   []string // "round before>now subject"
		off    int      // at the end
	}{
		{"nothing is wrong and nothing changes", [][]check.Finding{{link}, {link}}, nil, 0},
		{"what is wrong from the start is said once", [][]check.Finding{{link, mtu(check.Failed)},
			{link, mtu(check.Failed)}}, []string{"0 >failed vm01 eth0"}, 1},
		{"one stops holding and holds again", [][]check.Finding{{mtu(check.OK)}, {mtu(check.Failed)},
			{mtu(check.Failed)}, {mtu(check.OK)}},
			[]string{"1 ok>failed vm01 eth0", "3 failed>ok vm01 eth0"}, 0},
		{"what failed can no longer be read", [][]check.Finding{{mtu(check.Failed)}, {mtu(check.Unknown)}},
			[]string{"0 >failed vm01 eth0", "1 failed>unknown vm01 eth0"}, 1},
		{"a node that falls silent takes its checks with it, and they stay as they were",
			[][]check.Finding{{link, mtu(check.Failed)}, {link, silent}, {link, mtu(check.OK)}},
			[]string{"0 >failed vm01 eth0", "1 ok>unknown vm01", "2 failed>ok vm01 eth0", "2 unknown>ok vm01"}, 0},
		{"the same check on two subjects", [][]check.Finding{{mtu(check.OK)},
			{mtu(check.OK), finding("link-mtu", "vm00 eth0", check.Failed, "")}}, []string{"1 ok>failed vm00 eth0"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w watch
			var got []string
			for i, round := range tt.rounds {
				for _, c := range w.changes(time.Unix(int64(i), 0), round) {
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
			if len(w.off) != tt.off {
				t.Errorf("%d are off at the end, want %d", len(w.off), tt.off)
			}
		})
	}
}

// A fakeHost is a verification of a host that changes from round to round: its governors are those
// given, the last one for ever.
func fakeHost(governors ...string) *verification {
	round := 0
	return &verification{close: func() {},
		plan: &plan.Plan{Lab: "pair", Nodes: []plan.Node{{Name: "vm00", VCPUs: []int{1}}}},
		host: func(ctx context.Context) (*topology.Host, error) {
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
			"T00:00:00Z  1 checks, 0 not ok; watching every 10s, Ctrl-C ends it",
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
				// of the bubble's clock, which begins at a full hour
				ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
				defer cancel()
				err = a.watchVerify(ctx, &verifyOptions{form: tt.form, interval: 10 * time.Second,
					only: []string{check.IDGovernor}}, v)
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

// What cannot be seen of a lab that is elsewhere is said beside what was checked, and not in it.
func TestWhatIsNotCheckedIsSaid(t *testing.T) {
	v := fakeHost("performance")
	v.unseen = "the host, which is another machine"
	a, out, complaints := testApp(t)
	if err := a.verifyOnce(t.Context(), &verifyOptions{form: formatJSON, only: []string{check.IDGovernor}},
		v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(complaints.String(), "not checked: the host, which is another machine\n") ||
		!json.Valid(out.Bytes()) {
		t.Errorf("printed %s, and said %s", out, complaints)
	}
}

// exitCodeOf is exitCode for what may be nil.
func exitCodeOf(err error) (int, string) {
	if err == nil {
		return 0, ""
	}
	return exitCode(err)
}

// A silentReader is a lab whose nodes do not answer.
type silentReader struct{}

var errNoAnswer = errors.New("no answer")

func (silentReader) Facts(context.Context, string) (*facts.Node, error) { return nil, errNoAnswer }
func (silentReader) Exec(context.Context, string, []string) (bench.Output, error) {
	return bench.Output{}, errNoAnswer
}

func TestFindingsOfAllKindsStandTogether(t *testing.T) {
	l, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes:\n  vm: {count: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := fakeHost("performance")
	v.domains = func(context.Context) ([]check.Domain, error) {
		return []check.Domain{{Node: "vm00", Name: "pair.vm00", State: "shut off"}}, nil
	}
	v.running = func(context.Context) (*facts.Running, error) {
		return &facts.Running{Threads: []facts.Thread{{PID: 9, TID: 9, Name: "x", Allowed: topology.CPUs(1),
			LastCPU: 1}}}, nil
	}
	v.lab, v.nodes = l, silentReader{}
	kinds := func(only ...string) (text string, ids []string) {
		t.Helper()
		all, err := v.findings(t.Context(), only, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, f := range all {
			ids = append(ids, f.ID)
			if k := f.Code[:3]; !seen[k] {
				seen[k] = true
				text += k + " "
			}
		}
		return text, ids
	}
	if got, _ := kinds(); got != "RL2 RL3 RL4 " {
		t.Errorf("all: %s", got)
	}
	if got, ids := kinds(check.IDDomain); got != "RL3 " || len(ids) != 1 {
		t.Errorf("virtual machines alone: %s %q", got, ids)
	}
	// That a node is silent is said, whatever was asked of it, and once for each kind of question.
	if got, ids := kinds(check.IDMTU); got != "RL4 " || len(ids) != 1 || ids[0] != check.IDLink {
		t.Errorf("nodes alone: %s %q", got, ids)
	}
	if got, ids := kinds(check.IDGuestNUMA); got != "RL4 " || len(ids) != 1 || ids[0] != check.IDGuestCPUs {
		t.Errorf("guests alone: %s %q", got, ids)
	}
	broken := errors.New("libvirt has gone")
	v.domains = func(context.Context) ([]check.Domain, error) { return nil, broken }
	if _, err := v.findings(t.Context(), nil, func(string) {}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := v.findings(t.Context(), []string{check.IDReach}, func(string) {}); err != nil {
		t.Errorf("of the nodes alone: %v", err)
	}
}

func TestJUnit(t *testing.T) {
	all := []check.Finding{
		{ID: "governor", Code: "RL209", Subject: "host", Title: "governor", Status: check.OK, Have: "performance"},
		{ID: "link-mtu", Code: "RL402", Subject: `vm00 "eth0"`, Title: "a < b & c", Status: check.Failed,
			Have: "1500\x1b[2J ]]>", Want: "4200", Evidence: "/sys", Fix: "in the node: x > y"},
		{ID: "reach", Code: "RL408", Subject: "vm00", Title: "reach", Status: check.Unknown, Have: "no answer",
			Fix: "f"},
	}
	var b bytes.Buffer
	if err := writeJUnit(&b, all); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	if got.Tests != 3 || got.Failures != 1 || got.Errors != 1 || len(got.Suites) != 2 || got.Suites[0].Name != "host" ||
		got.Suites[1].Name != "nodes" {
		t.Errorf("got %+v", got)
	}
	first, failed, unread := got.Suites[0].Cases[0], got.Suites[1].Cases[0], got.Suites[1].Cases[1]
	if first.Failure != nil || first.Error != nil || first.Out != "performance" || first.Class != "RL209.governor" {
		t.Errorf("what holds: %+v", first)
	}
	if f := failed.Failure; f == nil || failed.Name != `vm00 "eth0": a < b & c` || f.Message != "1500\uFFFD[2J ]]>" ||
		!strings.Contains(f.Text, "fix: in the node: x > y\n") {
		t.Errorf("what failed: %+v %+v", failed, f)
	}
	if unread.Error == nil || unread.Failure != nil || unread.Error.Message != "no answer" {
		t.Errorf("what could not be read: %+v", unread)
	}
	b.Reset()
	if err := writeJUnit(&b, nil); err != nil || !strings.Contains(b.String(),
		`<testsuites name="rackless verify" tests="0" failures="0" errors="0">`) {
		t.Errorf("nothing: %v\n%s", err, &b)
	}
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
		_, err := readPlan(name)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
		if code, _ := exitCodeOf(err); code != exitUsage {
			t.Errorf("%q: status %d", text, code)
		}
	}
}

// The page shows a line of --watch that is cut short.
func TestTheDocumentedLineOfAWatchIsWhatIsPrinted(t *testing.T) {
	page := pages(t)["docs/json.md"]
	_, rest, ok := strings.Cut(page, "```json\n{\"at\":")
	if !ok {
		t.Fatal("docs/json.md shows no line of verify --watch")
	}
	line, _, _ := strings.Cut("{\"at\":"+rest, "\n")
	var got drift
	d := json.NewDecoder(strings.NewReader(strings.Replace(line, ",...", "", 1)))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var b bytes.Buffer
	if err := writeJSONLine(&b, got); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(strings.Replace(line, ",...", "", 1), "\n") + "\n"; b.String() != want {
		t.Errorf("printed %swant    %s", &b, want)
	}
}

func TestFindingsAreKeptForOthersToShow(t *testing.T) {
	t.Parallel()
	d := rack.Dirs{Data: t.TempDir()}
	if k, err := readFindings(d, "pair"); err != nil || !k.At.IsZero() {
		t.Errorf("of a lab that was never verified: %+v, %v", k, err)
	}
	for _, s := range []check.Status{check.OK, check.Failed} {
		want := keptFindings{At: time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC),
			Findings: []check.Finding{{ID: "link", Code: "RL401", Subject: "vm00 eth0", Status: s}}}
		if err := keepFindings(d, "pair", want); err != nil {
			t.Fatal(err)
		}
		got, err := readFindings(d, "pair")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	files, err := os.ReadDir(filepath.Join(d.Data, "checks"))
	if err != nil || len(files) != 1 {
		t.Errorf("%d files, want one: %v", len(files), err)
	}
	if info, err := os.Stat(findingsFile(d, "pair")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
