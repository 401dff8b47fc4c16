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

// A wrong expression panics at its first use, possibly at a user's.
func TestAllExpressionsOfTheProgramCompile(t *testing.T) {
	files := map[string][]string{} // by directory
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
	// Constants are evaluated even if imports are missing.
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	quiet := &types.Config{Error: func(error) {}, IgnoreFuncBodies: true}
	_ = types.NewChecker(quiet, set, types.NewPackage(dir, ""), info).Files(parsed)
	for _, file := range parsed {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || types.ExprString(call.Fun) != "lazyregexp.New" || info.Types[call.Args[0]].Value == nil {
				return true // assembled at run time
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
