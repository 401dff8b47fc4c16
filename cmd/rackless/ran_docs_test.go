package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A verb and its shown flags occur in a command line of a script, of a page that a script follows, of the release's
// tests, or of a test in Go.
func TestEveryCommandThatThePagesAndTheHelpShowIsRun(t *testing.T) {
	t.Parallel()
	a, _, _ := testApp(t)
	root := newRootCmd(a)
	ran := ranByTests(t, root)
	texts := pages(t)
	walk(root, func(c *cobra.Command) { texts[c.CommandPath()+" --help"] = c.Example })
	n := 0
	for name, text := range texts {
		for _, m := range commands(text, root.Name()) {
			verb, flags := given(root, shellWords(m.text)[1:])
			if verb == "" || strings.HasPrefix(verb, "completion") && len(flags) == 0 {
				continue
			}
			n++
			if ran[verb] == nil {
				t.Errorf("%s:%d: %q: no test runs %s", name, m.line, m.text, verb)
			}
			for _, f := range flags {
				if ran[verb] != nil && !ran[verb][f] {
					t.Errorf("%s:%d: %q: no test runs %s with --%s", name, m.line, m.text, verb, f)
				}
			}
		}
	}
	if n < 200 {
		t.Errorf("%d commands found, want at least 200", n)
	}
}

func given(root *cobra.Command, words []string) (verb string, flags []string) {
	cmd, rest, err := root.Find(words)
	if err != nil || cmd == root || cmd.Hidden {
		return "", nil
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		var f *pflag.Flag
		switch {
		case word == "--":
			return verbName(cmd), flags
		case strings.HasPrefix(word, "--"):
			f = cmd.Flag(name)
		case strings.HasPrefix(word, "-") && name != "":
			f = cmd.Flags().ShorthandLookup(name[:1])
		}
		if f != nil && f.Name != "help" {
			flags = append(flags, f.Name)
		}
	}
	return verbName(cmd), flags
}

func verbName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

func ranByTests(t *testing.T, root *cobra.Command) map[string]map[string]bool {
	t.Helper()
	ran := make(map[string]map[string]bool)
	note := func(words []string) {
		verb, flags := given(root, words)
		if verb != "" && ran[verb] == nil {
			ran[verb] = make(map[string]bool)
		}
		for _, f := range flags {
			ran[verb][f] = true
		}
	}
	line := regexp.MustCompile(`\brackless ([^;|&>)\n]*)`)
	each(t, func(text string) {
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			note(strings.Fields(strings.NewReplacer(`'`, "", `"`, "", "`", "").Replace(m[1])))
		}
	}, "testdata/*.txtar", scripts, labScripts, e2eScripts, "../../docs/tutorial.md", "../../docs/course.md",
		"../../docs/first-lab.md", "../../hack/release/*_test.go")
	each(t, func(text string) {
		for _, words := range literals(t, text) {
			note(append([]string{"host", "adopt"}, words...))
		}
	}, "adopt_test.go")
	each(t, func(text string) {
		for _, words := range literals(t, text) {
			for i, word := range words {
				if slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == word }) {
					note(words[i:])
				}
			}
		}
	}, "*_test.go")
	return ran
}

func each(t *testing.T, do func(text string), patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range found {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			do(string(b))
		}
	}
}

// literals returns each string of a Go file, and strings next to each other in a call or a list.
func literals(t *testing.T, file string) (all [][]string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	join := func(list []ast.Expr) {
		var words []string
		for _, e := range list {
			if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
				s, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Fatal(err)
				}
				words = append(words, strings.Fields(s)...)
			}
		}
		all = append(all, words)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			join(n.Args)
		case *ast.CompositeLit:
			if _, list := n.Type.(*ast.ArrayType); list {
				join(n.Elts)
			}
		case *ast.BasicLit:
			join([]ast.Expr{n})
		}
		return true
	})
	return all
}
