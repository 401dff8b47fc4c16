package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

const (
	pairLab  = "../../examples/epyc-pair.yaml"
	epycHost = "../../examples/hosts/epyc-7551p.ttar"
)

func TestFlagsOfPlanThatContradictEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "there is no lab file in this directory: name one, or make one with rackless init"},
		{[]string{"--fleet", "."}, "--fleet takes a file of requests"},
		{[]string{"a.yaml", "b.yaml"}, "want one LAB.yaml, have 2 arguments"},
		{[]string{pairLab, "-o", "xml"},
			`invalid argument "xml" for "-o, --output" flag: want table, json, yaml, svg or html`},
		{[]string{pairLab, "--host", "local", "--snapshot", epycHost}, "--host local and --snapshot " + epycHost +
			" are both the host: leave one out"},
		{[]string{pairLab, "--snapshot", ""}, "--snapshot has an empty value"},
		{[]string{pairLab, "--host="}, "--host has an empty value"},
		{[]string{pairLab, "--out", ""}, "--out has an empty value"},
		{[]string{pairLab, "--model", ""}, "--model has an empty value"},
		{[]string{pairLab, "--fleet", ""}, "--fleet has an empty value"},
		{[]string{pairLab, "--time-limit", "0"}, "--time-limit 0s: want more than 0"},
		{[]string{pairLab, "--time-limit", "-1s"}, "--time-limit -1s: want more than 0"},
		{[]string{pairLab, "--time-limit", "5"}, `invalid argument "5" for "--time-limit" flag`},
		{[]string{pairLab, "--policy", "nova"}, "--policy is for --fleet"},
		{[]string{pairLab, "--fleet", ".", "--policy", "random"},
			`invalid argument "random" for "--policy" flag: want best-fit or nova`},
		{[]string{pairLab, "--dump-problem", "--explain"}, "--dump-problem and --explain do not go together"},
		{[]string{pairLab, "--dump-problem", "--compare"}, "--dump-problem and --compare do not go together"},
		{[]string{pairLab, "--dump-problem", "--out", "x"}, "--dump-problem and --out do not go together"},
		{[]string{pairLab, "--fleet", ".", "--explain"},
			"--fleet and --explain do not go together: it places many labs"},
		{[]string{pairLab, "--fleet", ".", "--compare"}, "--fleet and --compare do not go together"},
		{[]string{pairLab, "--fleet", ".", "--dump-problem"}, "--fleet and --dump-problem do not go together"},
		{[]string{pairLab, "--fleet", ".", "--whatif", "reserve 8"}, "--fleet and --whatif do not go together"},
		{[]string{pairLab, "--fleet", ".", "--out", "x"}, "--fleet and --out do not go together"},
		{[]string{pairLab, "--fleet", ".", "--model", "x"}, "--fleet and --model do not go together"},
		{[]string{pairLab, "--fleet", ".", "--snapshot", epycHost}, "--fleet and --snapshot do not go together"},
		{[]string{pairLab, "--fleet", ".", "--time-limit", "1s"}, "--fleet and --time-limit do not go together"},
		{[]string{pairLab, "--explian"}, "unknown flag: --explian; did you mean --explain?"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), append([]string{"plan"}, tt.args...)); code != exitUsage {
				t.Errorf("exit status %d, want %d", code, exitUsage)
			}
			if got := stderr.String(); !strings.HasPrefix(got, "rackless: plan: "+tt.want) ||
				!strings.HasSuffix(got, "\nsee: rackless plan --help\n") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("standard output: %q", out)
			}
		})
	}
}

// mayBeNull are the keys whose value is null where it is not known or not there; docs/json.md names them.
var mayBeNull = map[string]bool{"pages": true, "numa_node": true, "placement": true}

// nulls returns where in a JSON value a null stands that no page allows: a list without elements is [].
func nulls(v any, at, key string) []string {
	var all []string
	switch v := v.(type) {
	case nil:
		if !mayBeNull[key] {
			all = append(all, at)
		}
	case []any:
		for i, e := range v {
			all = append(all, nulls(e, fmt.Sprintf("%s[%d]", at, i), key)...)
		}
	case map[string]any:
		for k, e := range v {
			all = append(all, nulls(e, at+"."+k, k)...)
		}
	}
	return all
}

func TestListsOfAPlanAreNeverNull(t *testing.T) {
	t.Parallel()
	const examples = "../../examples/"
	for _, host := range []struct{ snapshot, lab string }{
		{epycHost, pairLab}, {examples + "hosts/h20.txt", examples + "h20-four.yaml"},
		{epycHost, examples + "pair.yaml"},
		{epycHost, examples + "h20-four.yaml"}, // does not fit
	} {
		for _, flags := range [][]string{nil, {"--explain", "--compare"}, {"--whatif", "without tenants"},
			{"--whatif", "remove node vm01"}, {"--dump-problem"}} {
			args := append([]string{"plan", host.lab, "--snapshot", host.snapshot, "-o", "json"}, flags...)
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), args); code == exitFailed {
				t.Errorf("%q: %s", args, stderr)
			}
			if out.Len() == 0 {
				continue // said on standard error
			}
			var v any
			if err := json.Unmarshal(out.Bytes(), &v); err != nil {
				t.Errorf("%q: %v", args, err)
			}
			if bad := nulls(v, "", ""); len(bad) > 0 {
				t.Errorf("%q: null at %q", args, bad)
			}
		}
	}
}

func TestAPlanCanBeInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := filepath.Join(t.TempDir(), "plan")
	a, out, stderr := testApp(t)
	code := a.run(ctx, []string{"plan", pairLab, "--snapshot", epycHost, "--out", dir})
	if code != exitFailed || !strings.HasPrefix(stderr.String(), "rackless: interrupted: ") || out.Len() > 0 {
		t.Errorf("got status %d, %q, %q", code, stderr, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("artefacts were written")
	}
}

// fleetDir is a directory with a few equal hosts.
func fleetDir(t *testing.T) string {
	t.Helper()
	host, err := os.ReadFile(epycHost)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"a.ttar", "b.ttar"} {
		mustWrite(t, filepath.Join(dir, name), string(host))
	}
	return dir
}

// Whoever asks by a pipe waits for each answer before the next question.
func TestAFleetAnswersEachRequestAsItComes(t *testing.T) {
	t.Parallel()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	a, _, stderr := testApp(t)
	in, ask := pipe()
	answers, out := pipe()
	a.in, a.out = in, out
	done := make(chan int, 1)
	go func() {
		done <- a.run(t.Context(), []string{"plan", "-", "--fleet", fleetDir(t), "-o", "json"})
		out.Close()
	}()
	lines := bufio.NewScanner(answers)
	for i, tt := range []struct{ line, want string }{
		{`{"name": "r0", "nodes": {"vm": {"cpus": 2, "memory": "2GiB", "gpus": 1}}}`,
			`{"request":"r0","line":1,"host":"`},
		{`{"release": "r0"}`, `{"request":"r0","line":2,"release":true}`},
		{`{"release": "r0"}`, `{"request":"r0","line":3,"release":true,"error":"`},
		{`{"name": "r0", "nodes": {"vm": {"cpus": 2, "memory": "2GiB", "gpus": 9}}}`,
			`{"request":"r0","line":4,"error":"`},
		{`{"name": "release", "nodes": {"vm": {"cpus": 2, "memory": "2GiB"}}}`,
			`{"request":"release","line":5,"host":"`},
	} {
		fmt.Fprintln(ask, tt.line)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), tt.want) {
			t.Fatalf("line %d: got %q, want %q; %s", i+1, lines.Text(), tt.want, stderr)
		}
	}
	ask.Close()
	if !lines.Scan() || !strings.HasPrefix(lines.Text(),
		`{"summary":{"policy":"best-fit","hosts":2,"hosts_used":1,"labs":1,`) {
		t.Errorf("got %q", lines.Text())
	}
	if code := <-done; code != 0 {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

func TestALineThatIsTooLongEndsAFleetWithItsNumber(t *testing.T) {
	t.Parallel()
	requests := filepath.Join(t.TempDir(), "requests.jsonl")
	mustWrite(t, requests, "{\"name\": \"r0\", \"nodes\": {\"vm\": {}}}\n\n{\"name\": \""+strings.Repeat("a",
		lab.MaxFileSize)+"\"}\n")
	a, out, stderr := testApp(t)
	code := a.run(t.Context(), []string{"plan", requests, "--fleet", fleetDir(t)})
	if code != exitUsage || !strings.HasPrefix(stderr.String(), "rackless: "+requests+":3: ") {
		t.Errorf("got status %d, %q", code, stderr)
	}
	if !bytes.HasPrefix(out.Bytes(), []byte("r0: ")) {
		t.Errorf("the answer before it is not printed: %q", out)
	}
}

func TestAFleetCanBeInterrupted(t *testing.T) {
	t.Parallel()
	requests := filepath.Join(t.TempDir(), "requests.jsonl")
	mustWrite(t, requests, "{\"name\": \"r0\", \"nodes\": {\"vm\": {}}}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a, _, stderr := testApp(t)
	if code := a.run(ctx, []string{"plan", requests, "--fleet", fleetDir(t)}); code != exitFailed ||
		!strings.HasPrefix(stderr.String(), "rackless: interrupted: ") {
		t.Errorf("got status %d, %q", code, stderr)
	}
}
