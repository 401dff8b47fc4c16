package lazyregexp_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An expression that is wrong panics when it is used first, which may be at a user: each that is a constant is
// compiled here.
func TestAllExpressionsOfTheProgramCompile(t *testing.T) {
	files := map[string][]string{} // of each directory
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(path)] = append(files[filepath.Dir(path)], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for dir, paths := range files {
		seen += compileAll(t, dir, paths)
	}
	t.Log(seen, "expressions")
	if seen < 300 {
		t.Errorf("%d expressions found, which cannot be all", seen)
	}
}

// compileAll compiles the expressions of one package that are constants, and returns their number.
func compileAll(t *testing.T, dir string, paths []string) (n int) {
	texts, uses := map[string]string{}, false
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
		uses = uses || strings.Contains(texts[path], "lazyregexp.New(")
	}
	if !uses {
		return 0
	}
	set, parsed := token.NewFileSet(), []*ast.File(nil)
	for path, text := range texts {
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	// Without the packages that it imports, the constants of a package are known all the same.
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	quiet := &types.Config{Error: func(error) {}, IgnoreFuncBodies: true}
	_ = types.NewChecker(quiet, set, types.NewPackage(dir, ""), info).Files(parsed)
	for _, file := range parsed {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || types.ExprString(call.Fun) != "lazyregexp.New" || info.Types[call.Args[0]].Value == nil {
				return true // those that the program puts together are not constants
			}
			n++
			if _, err := regexp.Compile(constant.StringVal(info.Types[call.Args[0]].Value)); err != nil {
				t.Errorf("%s: %v", set.Position(call.Pos()), err)
			}
			return true
		})
	}
	return n
}
