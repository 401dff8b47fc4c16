package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rackless/rackless/internal/tally"
)

// Test suites of others run over emulated adapters in testdata/e2e/full_suites.txtar. testdata/suites has the programs
// that run them, and expected.tsv the result of each test. docs/connectx.md has a table of it.
const (
	suitesExpected = "testdata/suites/expected.tsv"
	suitesPage     = "../../docs/connectx.md"
	suitesBegin    = "<!-- suites: written by go test ./cmd/rackless -run TestE2EFullNodes/full_suites -e2e " +
		"-update-suites -->\n"
	suitesEnd = "<!-- /suites -->"
)

var updateSuites = flag.Bool("update-suites", false, "write the expected results of full_suites.txtar, and the tables "+
	"of docs/connectx.md, in place of comparing with them")

// suiteNames are the suites in the order of the table.
var suiteNames = []struct{ name, title string }{
	{"pyverbs", "rdma-core 56.1, tests in Python (pyverbs), each node with itself"},
	{"perftest", "perftest 25.01, its programs over each kind of queue pair, and its options"},
	{"rdma-core programs", "rdma-core 56.1, examples of libibverbs and librdmacm"},
	{"ucx", "UCX 1.18.1, `ucx_perftest` over transports of verbs and of mlx5, and UCP"},
}

// suiteKinds say what a ConnectX-5 on Ethernet makes of a test that does not pass here.
var suiteKinds = map[string]string{"card": "the same", "gap": "passes", "node": "not about the adapter",
	"unknown": "not known"}

// A suiteTest is the result of one test of a suite: pass, fail or skip. In expected results, kind is one of suiteKinds,
// and both kind and reason are empty for tests that pass.
type suiteTest struct {
	suite, name, result, kind, reason string
}

func (t suiteTest) key() string { return t.suite + "\t" + t.name }

// readSuites reads what run.py has written: suite, test, result, seconds, detail.
func readSuites(r io.Reader) ([]suiteTest, error) {
	return readTests(r, func(f []string) suiteTest {
		return suiteTest{suite: f[0], name: f[1], result: f[2], reason: f[4]}
	})
}

// readExpected reads expected.tsv: suite, test, result, kind, reason.
func readExpected(r io.Reader) ([]suiteTest, error) {
	return readTests(r, func(f []string) suiteTest { return suiteTest{f[0], f[1], f[2], f[3], f[4]} })
}

func readTests(r io.Reader, test func(fields []string) suiteTest) (tests []suiteTest, err error) {
	seen := make(map[string]bool)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("line %d has %d fields, want 5: %q", n, len(fields), lines.Text())
		}
		t := test(fields)
		known := slices.ContainsFunc(suiteNames, func(s struct{ name, title string }) bool { return s.name == t.suite })
		switch {
		case !known:
			return nil, fmt.Errorf("line %d: no suite %q", n, t.suite)
		case !slices.Contains([]string{"pass", "fail", "skip"}, t.result):
			return nil, fmt.Errorf("line %d: no result %q", n, t.result)
		case seen[t.key()]:
			return nil, fmt.Errorf("line %d: %s %s is there twice", n, t.suite, t.name)
		}
		seen[t.key()] = true
		tests = append(tests, t)
	}
	return tests, lines.Err()
}

// judgeSuites compares the results of a run with the expected ones. A test that passes against expectation is in news,
// everything else that differs in faults.
func judgeSuites(got, want []suiteTest) (faults, news []string) {
	expected := make(map[string]suiteTest)
	for _, t := range want {
		expected[t.key()] = t
	}
	for _, t := range got {
		w, ok := expected[t.key()]
		delete(expected, t.key())
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s: %s: %s: it is not in %s", t.suite, t.name, t.result,
				suitesExpected))
		case t.result == w.result:
		case t.result == "pass":
			news = append(news, fmt.Sprintf("%s: %s: passes, and did not (%s)", t.suite, t.name, w.reason))
		default:
			faults = append(faults, fmt.Sprintf("%s: %s: %s, want %s: %s", t.suite, t.name, t.result, w.result,
				t.reason))
		}
	}
	for _, t := range want {
		if _, left := expected[t.key()]; left {
			faults = append(faults, fmt.Sprintf("%s: %s: it has not run, want %s", t.suite, t.name, t.result))
		}
	}
	return faults, news
}

// newExpected returns the results of a run as the expected ones. The kind and the reason of a test are kept if its
// result is the same; otherwise they are a question that TestTheSuitesOnThePageAreTheExpectedOnes does not accept.
func newExpected(got, want []suiteTest) []suiteTest {
	known := make(map[string]suiteTest)
	for _, t := range want {
		known[t.key()] = t
	}
	tests := slices.Clone(got)
	for i, t := range tests {
		switch w := known[t.key()]; {
		case t.result == "pass":
			tests[i].kind, tests[i].reason = "", ""
		case w.result == t.result:
			tests[i].kind, tests[i].reason = w.kind, w.reason
		default:
			tests[i].kind = "?"
		}
	}
	slices.SortFunc(tests, func(a, b suiteTest) int {
		return cmp.Or(suiteRank(a)-suiteRank(b), strings.Compare(a.name, b.name))
	})
	return tests
}

func suiteRank(t suiteTest) int {
	return slices.IndexFunc(suiteNames, func(s struct{ name, title string }) bool { return s.name == t.suite })
}

// writeExpected writes expected.tsv.
func writeExpected(w io.Writer, tests []suiteTest) {
	for _, t := range tests {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.suite, t.name, t.result, t.kind, t.reason)
	}
}

// suiteTables returns the tables of the page: the counts of each suite, and the reasons of what does not pass.
func suiteTables(tests []suiteTest) string {
	var b strings.Builder
	b.WriteString("| suite | tests | pass | fail | skip |\n| --- | --- | --- | --- | --- |\n")
	count := make(map[[2]string]int)
	type reason struct {
		rank                 int
		result, kind, reason string
	}
	reasons := make(map[reason]int)
	for _, t := range tests {
		count[[2]string{t.suite, t.result}]++
		count[[2]string{t.suite, ""}]++
		if t.result != "pass" {
			reasons[reason{suiteRank(t), t.result, t.kind, t.reason}]++
		}
	}
	for _, s := range suiteNames {
		n := func(result string) int { return count[[2]string{s.name, result}] }
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", s.title, n(""), n("pass"), n("fail"), n("skip"))
	}
	b.WriteString("\n| suite | result | tests | a ConnectX-5 | reason |\n| --- | --- | --- | --- | --- |\n")
	sorted := make([]reason, 0, len(reasons))
	for r := range reasons {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(x, y reason) int {
		return cmp.Or(x.rank-y.rank, strings.Compare(x.result, y.result), strings.Compare(x.kind, y.kind),
			reasons[y]-reasons[x], strings.Compare(x.reason, y.reason))
	})
	for _, r := range sorted {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s |\n", suiteNames[r.rank].name, r.result, reasons[r],
			cmp.Or(suiteKinds[r.kind], r.kind), r.reason)
	}
	return b.String()
}

// putTables returns the page with other tables.
func putTables(page, tables string) (string, error) {
	before, rest, ok := strings.Cut(page, suitesBegin)
	_, after, ended := strings.Cut(rest, suitesEnd)
	if !ok || !ended {
		return "", fmt.Errorf("%s has no lines %q and %q", suitesPage, suitesBegin, suitesEnd)
	}
	return before + suitesBegin + "\n" + tables + "\n" + suitesEnd + after, nil
}

func expectedSuites() ([]suiteTest, error) {
	f, err := os.Open(suitesExpected)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readExpected(f)
}

// suitesCommand implements the script command "suites RESULTS", which compares the results of a run with the expected
// ones. With -update-suites it writes those and the tables of the page.
func suitesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: suites RESULTS")
	}
	got, err := readSuites(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	want, err := expectedSuites()
	ts.Check(err)
	faults, news := judgeSuites(got, want)
	for _, s := range news {
		ts.Logf("%s", s)
	}
	if !*updateSuites {
		for _, s := range faults {
			ts.Logf("%s", s)
		}
		if len(faults) > 0 {
			ts.Fatalf("%d of %d tests of the suites differ", len(faults), len(got))
		}
		return
	}
	now := newExpected(got, want)
	var b strings.Builder
	writeExpected(&b, now)
	ts.Check(os.WriteFile(suitesExpected, []byte(b.String()), 0o644))
	page, err := os.ReadFile(suitesPage)
	ts.Check(err)
	changed, err := putTables(string(page), suiteTables(now))
	ts.Check(err)
	ts.Check(os.WriteFile(suitesPage, []byte(changed), 0o644))
}

// The page shows the expected results, and each test that does not pass has a reason.
func TestTheSuitesOnThePageAreTheExpectedOnes(t *testing.T) {
	t.Parallel()
	tests, err := expectedSuites()
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, one := range tests {
		switch {
		case one.result == "pass":
			passed++
			if one.kind+one.reason != "" {
				t.Errorf("%s: %s: passes, and has the reason %q", one.suite, one.name, one.reason)
			}
		case suiteKinds[one.kind] == "" || one.reason == "":
			t.Errorf("%s: %s: %s without a reason of a known kind: %q, %q", one.suite, one.name, one.result, one.kind,
				one.reason)
		}
	}
	tally.Logf(t, "expected of the suites: %d of %d tests pass", passed, len(tests))
	page, err := os.ReadFile(suitesPage)
	if err != nil {
		t.Fatal(err)
	}
	want, err := putTables(string(page), suiteTables(tests))
	if err != nil {
		t.Fatal(err)
	}
	if *updateSuites {
		if err := os.WriteFile(suitesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := diffLines(string(page), want); diff != "" {
		t.Errorf("%s has other tables; run this test with -update-suites (-page +expected):\n%s", suitesPage, diff)
	}
}

func TestResultsOfSuitesAreHeldToTheExpectedOnes(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join("testdata", "suites", "recorded.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recorded, err := readSuites(f)
	if err != nil {
		t.Fatal(err)
	}
	want := newExpected(recorded, nil)
	if faults, news := judgeSuites(recorded, want); len(faults)+len(news) > 0 {
		t.Errorf("a run differs from itself: %q, %q", faults, news)
	}
	change := func(from, to string) []suiteTest {
		i := slices.IndexFunc(recorded, func(t suiteTest) bool { return t.result == from })
		other := slices.Clone(recorded)
		other[i].result = to
		return other
	}
	for name, tt := range map[string]struct {
		got          []suiteTest
		faults, news int
	}{
		"a test fails that passed":           {change("pass", "fail"), 1, 0},
		"a test is skipped that passed":      {change("pass", "skip"), 1, 0},
		"a test fails that was skipped":      {change("skip", "fail"), 1, 0},
		"a test passes that failed":          {change("fail", "pass"), 0, 1},
		"a test has not run":                 {recorded[1:], 1, 0},
		"a test is new, which nobody judged": {slices.Concat(recorded, []suiteTest{{suite: "ucx", name: "x"}}), 1, 0},
	} {
		if faults, news := judgeSuites(tt.got, want); len(faults) != tt.faults || len(news) != tt.news {
			t.Errorf("%s: %q, %q", name, faults, news)
		}
	}
}

func TestReasonsOfSuitesAreKept(t *testing.T) {
	t.Parallel()
	was := []suiteTest{{"ucx", "a", "skip", "card", "reason"}, {"ucx", "b", "fail", "gap", "reason"},
		{"pyverbs", "c", "pass", "", ""}}
	got := []suiteTest{{"ucx", "b", "skip", "", "new detail"}, {"ucx", "a", "skip", "", "detail"},
		{"pyverbs", "c", "pass", "", "again slow"}}
	want := []suiteTest{{"pyverbs", "c", "pass", "", ""}, {"ucx", "a", "skip", "card", "reason"},
		{"ucx", "b", "skip", "?", "new detail"}}
	now := newExpected(got, was)
	if !slices.Equal(now, want) {
		t.Errorf("%q, want %q", now, want)
	}
	var b strings.Builder
	writeExpected(&b, now)
	again, err := readExpected(strings.NewReader(b.String()))
	if err != nil || !slices.Equal(again, now) {
		t.Errorf("read back: %q, %v", again, err)
	}
	const row = "\n| ucx | skip | 1 | the same | reason |\n"
	table := suiteTables(now)
	if !strings.Contains(table, row) || !strings.Contains(table, "and UCP | 2 | 0 | 0 | 2 |\n") {
		t.Errorf("tables:\n%s", table)
	}
}

func TestLinesOfSuitesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"ucx\ta\tpass\t1.0", "xyz\ta\tpass\t1.0\t", "ucx\ta\tok\t1.0\t",
		"ucx\ta\tpass\t1.0\t\nucx\ta\tpass\t1.0\t"} {
		if tests, err := readSuites(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("%q is %q", line, tests)
		}
	}
}
