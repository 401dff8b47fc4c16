package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
		{[]string{"a.yaml", "b.yaml"}, "want one LAB.yaml, have 2 arguments"},
		{[]string{pairLab, "-o", "xml"},
			`invalid argument "xml" for "-o, --output" flag: want table, json, yaml, svg or html`},
		{[]string{pairLab, "--host", "local", "--snapshot", epycHost},
			"--snapshot is --host now: leave one of the two out"},
		{[]string{pairLab, "--host", ""}, "--host has an empty value"},
		{[]string{pairLab, "--host="}, "--host has an empty value"},
		{[]string{pairLab, "--out", ""}, "--out has an empty value"},
		{[]string{pairLab, "--model", ""}, "--model has an empty value"},
		{[]string{pairLab, "--against", ""}, "--against has an empty value"},
		{[]string{pairLab, "--against", "plan.json", "-o", "svg"},
			"-o svg draws one plan: it cannot be combined with --compare or --against"},
		{[]string{pairLab, "--time-limit", "0"}, "--time-limit 0s: want more than 0"},
		{[]string{pairLab, "--time-limit", "-1s"}, "--time-limit -1s: want more than 0"},
		{[]string{pairLab, "--time-limit", "5"}, `invalid argument "5" for "--time-limit" flag`},
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

// mayBeNull is documented in docs/json.md.
var mayBeNull = map[string]bool{"placement": true}

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
	before := filepath.Join(t.TempDir(), "plan.json")
	a, out, stderr := testApp(t)
	if code := a.run(t.Context(), []string{"plan", pairLab, "--host", epycHost, "-o", "json"}); code != 0 {
		t.Fatal(stderr)
	}
	mustWrite(t, before, out.String())
	for _, host := range []struct{ snapshot, lab string }{
		{epycHost, pairLab}, {examples + "hosts/h20.txt", examples + "h20-four.yaml"},
		{epycHost, examples + "pair.yaml"},
		{epycHost, examples + "h20-four.yaml"},
	} {
		for _, flags := range [][]string{nil, {"--explain", "--compare"}, {"--against", before}} {
			args := append([]string{"plan", host.lab, "--host", host.snapshot, "-o", "json"}, flags...)
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), args); code == exitFailed {
				t.Errorf("%q: %s", args, stderr)
			}
			if out.Len() == 0 {
				continue
			}
			var v any
			if err := json.Unmarshal(out.Bytes(), &v); err != nil {
				t.Errorf("%q: %v", args, err)
			}
			bad := slices.DeleteFunc(nulls(v, "", ""), func(at string) bool { return at == ".recommendation.model" })
			if len(bad) > 0 {
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
	code := a.run(ctx, []string{"plan", pairLab, "--host", epycHost, "--out", dir})
	if code != exitFailed || !strings.HasPrefix(stderr.String(), "rackless: interrupted: ") || out.Len() > 0 {
		t.Errorf("got status %d, %q, %q", code, stderr, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("artefacts were written")
	}
}
