package storey

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/tally"
)

type fake struct {
	name            string
	said            string
	failed, skipped bool
	cleanup         func()
}

func (f *fake) Helper()                           {}
func (f *fake) Name() string                      { return f.name }
func (f *fake) Cleanup(do func())                 { f.cleanup = do }
func (f *fake) Failed() bool                      { return f.failed }
func (f *fake) Skipped() bool                     { return f.skipped }
func (f *fake) Log(args ...any)                   { f.said += "logged: " + fmt.Sprint(args...) }
func (f *fake) Errorf(format string, args ...any) { f.said += "error: " + fmt.Sprintf(format, args...) }
func (f *fake) Skip(args ...any)                  { f.said += "skipped: " + fmt.Sprint(args...) }
func (f *fake) Fatalf(format string, args ...any) {
	f.said += "failed: " + fmt.Sprintf(format, args...)
}

func TestATestOfTheSecondStoreyIsSkippedWithoutTheFlag(t *testing.T) {
	was := *second
	defer func() { *second = was }()
	t.Setenv(tally.Dir, "")
	for _, tt := range []struct {
		test fake
		flag bool
		want string
	}{
		{fake{name: "TestE2ETutorial"}, false, "skipped: it is one of make test-e2e"},
		{fake{name: "TestE2ETutorial"}, true, "logged: passed after 0 s"},
		{fake{name: "TestE2ETutorial", failed: true}, true, "logged: FAILED after 0 s"},
		{fake{name: "TestE2ETutorial", skipped: true}, true, "logged: skipped after 0 s"},
		{fake{name: "TestTutorial"}, true,
			"failed: its name has to begin with TestE2E, or make test-e2e does not run itlogged: passed after 0 s"},
	} {
		*second = tt.flag
		f := tt.test
		if E2E(&f); tt.flag {
			f.cleanup()
		}
		if f.said != tt.want {
			t.Errorf("%+v, -e2e=%v: got %q, want %q", tt.test, tt.flag, f.said, tt.want)
		}
	}
}

func TestTheFlagIsStrongerThanTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		flag int64
		env  string
		want uint64
		err  string
	}{
		{7, "8", 7, ""},
		{0, "8", 0, ""},
		{-1, "8", 8, ""},
		{-1, "today", 0, "RACKLESS_SEED=today: want a number of 0 or more"},
		{-1, "-3", 0, "RACKLESS_SEED=-3: want a number of 0 or more"},
	} {
		got, err := seedOf(tt.flag, tt.env)
		if got != tt.want || (err != nil || tt.err != "") && (err == nil || err.Error() != tt.err) {
			t.Errorf("-seed %d, %s=%q: got %d, %v; want %d, %q", tt.flag, SeedVariable, tt.env, got, err, tt.want,
				tt.err)
		}
	}
}

func TestASeedDrawsTheSameSampleAgain(t *testing.T) {
	list := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	draw := func(seed uint64, test string) []string { return Some(source(seed, test), list, 3) }
	if first, again := draw(1, "TestA"), draw(1, "TestA"); !slices.Equal(first, again) {
		t.Errorf("%q, and then %q", first, again)
	}
	different := map[string]bool{}
	for seed := range uint64(20) {
		for _, test := range []string{"TestA", "TestB"} {
			got := draw(seed, test)
			if len(got) != 3 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 3 {
				t.Fatalf("got %q, want three of the list in its order", got)
			}
			different[strings.Join(got, "")] = true
		}
	}
	if len(different) < 20 {
		t.Errorf("40 samples of 56 are %d different ones", len(different))
	}
	if got := Some(source(1, "TestA"), list[:2], 3); len(got) != 2 {
		t.Errorf("of two, three are %q", got)
	}
}

// Otherwise make test would run them too.
func TestEveryTestOfTheSecondStoreyCallsE2EFirst(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, Prefix) {
				continue
			}
			if n++; !callsE2E(f) {
				t.Errorf("%s: %s does not begin with storey.E2E(t)", path, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 5 {
		t.Errorf("%d tests of the second storey found, want at least 5", n)
	}
}

func callsE2E(f *ast.FuncDecl) bool {
	if len(f.Body.List) == 0 {
		return false
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	return ok && called.Sel.Name == "E2E"
}
