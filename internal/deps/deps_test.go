// Package deps has only tests: of imports between packages, of dependencies and of comments.
package deps

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	root   = "../.."
	module = "github.com/rackless/rackless"
)

type tree map[string]*imports

// imports are relative to the module's root, as in the rules.
type imports struct {
	code  []string
	tests []string
}

// readTree ignores build tags.
func readTree(dir string) (tree, error) {
	t := make(tree)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			// The go command ignores these too, except bin and out.
			if file != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
				slices.Contains([]string{"testdata", "vendor", "bin", "out"}, name)) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); file != dir && err == nil { // another module
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		if t[pkg] == nil {
			t[pkg] = new(imports)
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", file, spec.Path.Value, err)
			}
			list := &t[pkg].code
			if strings.HasSuffix(name, "_test.go") {
				list = &t[pkg].tests
			}
			*list = append(*list, relative(imp))
		}
		return nil
	})
	for _, imp := range t {
		slices.Sort(imp.code)
		imp.code = slices.Compact(imp.code)
		slices.Sort(imp.tests)
		imp.tests = slices.Compact(imp.tests)
	}
	return t, err
}

func relative(imp string) string {
	if imp == module {
		return "."
	}
	return strings.TrimPrefix(imp, module+"/")
}

// matches takes "x/..." for x and all packages below it.
func matches(pattern, imp string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return imp == dir || strings.HasPrefix(imp, dir+"/")
	}
	return imp == pattern
}

// wayTo returns the shortest chain of imports, or nil.
func (t tree) wayTo(from, pattern string) []string {
	queue := [][]string{{from}}
	for seen := map[string]bool{from: true}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		last := t[way[len(way)-1]]
		if last == nil {
			continue
		}
		for _, imp := range last.code {
			next := append(slices.Clone(way), imp)
			if matches(pattern, imp) {
				return next
			}
			if !seen[imp] {
				seen[imp] = true
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func wingOf(wings []wing, pkg string) int {
	name, _, _ := strings.Cut(pkg, "/")
	return slices.IndexFunc(wings, func(w wing) bool { return w.name == name })
}

// violations include unneeded exceptions in upward.
func (t tree) violations(wings []wing, upward map[string]string, never map[string]map[string]string) []string {
	var bad []string
	used := map[string]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(t)) {
		say := func(format string, args ...any) { bad = append(bad, pkg+": "+fmt.Sprintf(format, args...)) }
		if slices.Contains(noName, path.Base(pkg)) {
			say("the name says nothing: name the package after what it provides")
		}
		at := wingOf(wings, pkg)
		if at < 0 {
			say("not in a wing: move it into one of those in rules_test.go")
			continue
		}
		for _, imp := range t[pkg].code {
			if imp == "C" {
				say("must not use cgo: rackless is one static binary")
			}
			if _, ours := t[imp]; ours && wingOf(wings, imp) > at {
				edge := pkg + " -> " + imp
				if used[edge] = true; upward[edge] == "" {
					say("must not import %s, which is in a wing above: %s", imp, wings[at].why)
				}
			}
			for _, pattern := range slices.Sorted(maps.Keys(testOnly)) {
				if matches(pattern, imp) {
					say("must not import %s outside tests: %s", imp, testOnly[pattern])
				}
			}
		}
		for _, imp := range slices.Concat(t[pkg].code, t[pkg].tests) {
			if matches("cmd/...", imp) {
				say("must not import %s: %s", imp, whyCmd)
			}
		}
		for _, pattern := range slices.Sorted(maps.Keys(never[pkg])) {
			if way := t.wayTo(pkg, pattern); way != nil && (len(way) == 2 || t[way[len(way)-1]] != nil) {
				say("must not import %s (%s): %s", way[len(way)-1], strings.Join(way, " -> "), never[pkg][pattern])
			}
		}
	}
	for edge := range upward {
		if !used[edge] {
			bad = append(bad, edge+": no such import points up: remove the exception")
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

func TestPackagesImportInOneDirection(t *testing.T) {
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	if tree["internal/deps"] == nil {
		t.Fatalf("internal/deps is not among the packages of %s: the tree was not read", root)
	}
	for _, v := range tree.violations(wings, upward, never) {
		t.Error(v)
	}
	for pkg := range never {
		if tree[pkg] == nil {
			t.Errorf("rules_test.go names %s, which there is not", pkg)
		}
	}
}

func TestViolations(t *testing.T) {
	wings := []wing{{"low", "it is the lowest"}, {"mid", "it knows low alone"}, {"high", "it is above"},
		{"cmd", "it is the command"}}
	never := map[string]map[string]string{"low": {"os": "it is pure"}, "high/x": {"mid/tty/...": "it must not talk"}}
	for _, c := range []struct {
		name   string
		tree   tree
		upward map[string]string
		want   []string
	}{
		{"what the order allows is no violation", tree{
			"low": {code: []string{"fmt", "golang.org/x/sys/unix"}}, "mid/a": {code: []string{"low", "mid/b", "os"}},
			"mid/b": {}, "high": {code: []string{"mid/a"}},
		}, nil, nil},
		{"an import that points up is told with the reason", tree{
			"low": {code: []string{"mid"}}, "mid": {},
		}, nil, []string{"low: must not import mid, which is in a wing above: it is the lowest"}},
		{"an exception allows it", tree{
			"low": {code: []string{"mid"}}, "mid": {},
		}, map[string]string{"low -> mid": "until it has moved"}, nil},
		{"an exception that nothing needs is told", tree{
			"low": {}, "mid": {},
		}, map[string]string{"low -> mid": "until it has moved"},
			[]string{"low -> mid: no such import points up: remove the exception"}},
		{"a package of the standard library can be forbidden", tree{
			"low": {code: []string{"os"}},
		}, nil, []string{"low: must not import os (low -> os): it is pure"}},
		{"a neighbour of a forbidden package is allowed", tree{
			"low": {code: []string{"os/exec"}},
		}, nil, nil},
		{"the standard library is forbidden directly only", tree{
			"low": {code: []string{"other.org/m"}}, "mid": {code: []string{"os"}},
		}, nil, nil},
		{"a forbidden package is found through another one, and below its pattern", tree{
			"high/x": {code: []string{"mid/way"}}, "mid/way": {code: []string{"fmt", "mid/tty/a"}}, "mid/tty/a": {},
		}, nil, []string{"high/x: must not import mid/tty/a (high/x -> mid/way -> mid/tty/a): it must not talk"}},
		{"tests may import what code may not", tree{
			"low": {tests: []string{"mid", "os", "testing", "github.com/google/go-cmp/cmp"}}, "mid": {},
		}, nil, nil},
		{"test libraries stay out of code", tree{
			"mid": {code: []string{"testing/fstest"}},
		}, nil, []string{"mid: must not import testing/fstest outside tests: the testing package is for tests"}},
		{"a command is not imported, by tests neither", tree{
			"mid": {tests: []string{"cmd/x"}}, "cmd/x": {},
		}, nil, []string{"mid: must not import cmd/x: " + whyCmd}},
		{"cgo is refused", tree{
			"mid": {code: []string{"C"}},
		}, nil, []string{"mid: must not use cgo: rackless is one static binary"}},
		{"a package outside of the wings is told", tree{
			"new/a": {},
		}, nil, []string{"new/a: not in a wing: move it into one of those in rules_test.go"}},
		{"a package with an empty name is told", tree{
			"low/util": {},
		}, nil, []string{"low/util: the name says nothing: name the package after what it provides"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, c.tree.violations(wings, c.upward, never)); d != "" {
				t.Errorf("violations (-want +got):\n%s", d)
			}
		})
	}
}

func TestReadTreeKeepsTestsApartAndSkipsWhatTheGoCommandSkips(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/a.go":            "package a\nimport (\n\t_ \"os\"\n\t_ \"" + module + "/b/c\"\n)\n",
		"a/a_linux.go":      "//go:build never\n\npackage a\nimport _ \"os\"\nimport _ \"net\"\n",
		"a/a_test.go":       "package a_test\nimport _ \"testing\"\n",
		"b/c/c.go":          "package c\n",
		"b/README":          "no Go here",
		"a/testdata/x.go":   "not Go at all",
		"bin/x.go":          "not Go at all",
		".hidden/x.go":      "not Go at all",
		"_ignored/x.go":     "not Go at all",
		"vendor/x.org/x.go": "not Go at all",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := tree{"a": {code: []string{"b/c", "net", "os"}, tests: []string{"testing"}}, "b/c": {}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(imports{})); d != "" {
		t.Errorf("readTree (-want +got):\n%s", d)
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	packageRow  = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| ")
	packageName = regexp.MustCompile("`([^`]+)`")
)

func TestArchitectureDocumentHasARowForEveryPackage(t *testing.T) {
	const doc = "docs/architecture.md"
	if _, err := os.Stat(filepath.Join(root, doc)); os.IsNotExist(err) {
		return
	}
	_, section, ok := strings.Cut(readDoc(t, doc), "\n## Packages\n")
	if !ok {
		t.Fatalf("%s: no section Packages", doc)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]int{}
	for _, row := range packageRow.FindAllStringSubmatch(section, -1) {
		for _, name := range packageName.FindAllStringSubmatch(row[1], -1) {
			rows[name[1]]++
		}
	}
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range slices.Sorted(maps.Keys(tree)) {
		if rows[pkg] != 1 {
			t.Errorf("%s has %d rows for `%s`: want one that says what it is for", doc, rows[pkg], pkg)
		}
		delete(rows, pkg)
	}
	for name := range rows {
		t.Errorf("%s has a row for `%s`, which is no package", doc, name)
	}
}

// A file is normally split at about 500 lines; see CONTRIBUTING.md.
const (
	maxLines     = 700
	maxTestLines = 1000
)

func TestFilesAreSplitBeforeTheyAreLong(t *testing.T) {
	marks := fmt.Sprintf("more than %d lines, and tests of more than %d", maxLines, maxTestLines)
	if !strings.Contains(readDoc(t, "CONTRIBUTING.md"), marks) {
		t.Errorf("CONTRIBUTING.md does not name the marks: %d and %d lines", maxLines, maxTestLines)
	}
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range tree {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			most := maxLines
			if strings.HasSuffix(file, "_test.go") {
				most = maxTestLines
			}
			if n := strings.Count(string(text), "\n"); n > most {
				t.Errorf("%s has %d lines, more than %d: split it", file, n, most)
			}
		}
	}
}

func rows(t *testing.T, text, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/dependencies.md: no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("docs/dependencies.md: no rows in section %q", heading)
	}
	return names
}

func TestEveryModuleIsJustified(t *testing.T) {
	documented := rows(t, readDoc(t, "docs/dependencies.md"), "Go modules")
	required := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v`).FindAllStringSubmatch(readDoc(t, "go.mod"),
		-1) {
		required[m[1]] = true
	}
	for _, mod := range documented {
		if !required[mod] {
			t.Errorf("docs/dependencies.md justifies %s, which go.mod does not require: remove the line", mod)
		}
	}
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range slices.Sorted(maps.Keys(tree)) {
		for _, imp := range slices.Concat(tree[pkg].code, tree[pkg].tests) {
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") {
				continue
			}
			if !slices.ContainsFunc(documented, func(mod string) bool { return matches(mod+"/...", imp) }) {
				t.Errorf("%s imports %s, but docs/dependencies.md does not say why its module is worth having", pkg,
					imp)
			}
		}
	}
}

func TestEveryDebianPackageThatSetupInstallsIsJustified(t *testing.T) {
	documented := rows(t, readDoc(t, "docs/dependencies.md"), "Debian packages on the machine")
	slices.Sort(documented)
	var installed []string
	for _, m := range regexp.MustCompile(`\bneed ([a-z0-9][A-Za-z0-9.+-]+) "`).FindAllStringSubmatch(readDoc(t,
		"hack/setup.sh"), -1) {
		installed = append(installed, m[1])
	}
	slices.Sort(installed)
	if d := cmp.Diff(documented, installed); d != "" {
		t.Errorf("docs/dependencies.md and hack/setup.sh disagree (-documented +installed):\n%s", d)
	}
}

func TestEveryDebianPackageOfNodesIsJustified(t *testing.T) {
	words := regexp.MustCompile(`"([^"]+)"`)
	for _, tt := range []struct{ file, lists, heading string }{
		{"vm/image/recipe.go", `Packages: \[\]string\{([^}]*)\}`, "Debian packages in the node image"},
		{"vm/image/full.go", `(?s)var fullPackages = \[\]string\{(.*?\n)\}\n`, "Debian packages in full nodes"},
	} {
		source := readDoc(t, tt.file)
		list := regexp.MustCompile(tt.lists).FindStringSubmatch(source)
		if list == nil {
			t.Fatalf("%s: no list of packages found", tt.file)
		}
		text := list[1]
		for _, set := range regexp.MustCompile(`(?m)^\t"[a-z]+": +\{([^}]*)\},$`).FindAllStringSubmatch(source, -1) {
			text += set[1]
		}
		var have []string
		for _, m := range words.FindAllStringSubmatch(text, -1) {
			have = append(have, m[1])
		}
		slices.Sort(have)
		have = slices.Compact(have) // some sets share entries
		documented := rows(t, readDoc(t, "docs/dependencies.md"), tt.heading)
		slices.Sort(documented)
		if d := cmp.Diff(documented, have); d != "" {
			t.Errorf("docs/dependencies.md and %s disagree (-documented +installed):\n%s", tt.file, d)
		}
	}
}

func TestReleaseBinaryLinksNeitherCgoNorTestLibraries(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, "cmd", "rackless", "main.go")); os.IsNotExist(err) {
		return
	}
	// cgo is enabled so that a dependency that would use it shows up. "go test" puts its own go first in PATH.
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}} {{len .CgoFiles}}",
		"./cmd/rackless")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("%s printed %q, want three fields", cmd, line)
		}
		if f[1] == "false" && f[2] != "0" {
			t.Errorf("%s uses cgo: the binary would not be static", f[0])
		}
		for pattern, why := range testOnly {
			if matches(pattern, f[0]) {
				t.Errorf("%s is linked: %s", f[0], why)
			}
		}
	}
}
