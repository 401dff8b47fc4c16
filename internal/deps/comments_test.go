package deps

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxPer10000 is per 10,000 words of comments. Well-known Go projects have at most 1.4.
const maxPer10000 = 5

// patterns make a reader look twice. Each has a plain form: see CONTRIBUTING.md.
var patterns = []struct {
	name string
	form *regexp.Regexp
}{
	{`"what" as a noun`, regexp.MustCompile(`(?i)\bwhat\b`)},
	{`"where" for "if"`, regexp.MustCompile(`(?i)\bwhere\b`)},
	{`"those that"`, regexp.MustCompile(`(?i)\bthose (that|of|which|who|whose|with|in|to|on|for|where)\b`)},
	{`"nobody", "is none"`, regexp.MustCompile(`(?i)\b(nobody|no one|(is|are|was|were) none)\b`)},
}

// sentences tells questions from statements.
var sentences = regexp.MustCompile(`[^.?!]*[.?!]?`)

var quoted = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")

// TestCommentsArePlain counts the patterns in all comments.
func TestCommentsArePlain(t *testing.T) {
	words := 0
	hits := make([][]string, len(patterns))
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != root && (strings.HasPrefix(name, ".") ||
			slices.Contains([]string{"testdata", "bin", "out"}, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "comments_test.go") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range parsed.Comments {
			text := group.Text()
			words += len(strings.Fields(text))
			for i, n := range count(text) {
				for range n {
					hits[i] = append(hits[i], set.Position(group.Pos()).String())
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if words < 100_000 {
		t.Fatalf("%d words of comments cannot be all", words)
	}
	for i, p := range patterns {
		rate := float64(len(hits[i])) * 10_000 / float64(words)
		t.Logf("%s: %d, %.1f per 10,000 words", p.name, len(hits[i]), rate)
		if rate > maxPer10000 {
			t.Errorf("%s: %.1f per 10,000 words, want at most %d; some of them:\n%s", p.name, rate, maxPer10000,
				strings.Join(hits[i][:min(20, len(hits[i]))], "\n"))
		}
	}
}

// count leaves out questions and quotations.
func count(text string) (n [4]int) {
	for _, sentence := range sentences.FindAllString(quoted.ReplaceAllString(text, ""), -1) {
		if strings.HasSuffix(sentence, "?") {
			continue
		}
		for i, p := range patterns {
			n[i] += len(p.form.FindAllString(sentence, -1))
		}
	}
	return n
}

// TestCount has sentences of each kind.
func TestCount(t *testing.T) {
	for text, want := range map[string]string{
		"Known is nil where there is an error: what cannot be read is not known.": "[1 1 0 0]",
		"Known returns &v, or nil if err is set.":                                 "[0 0 0 0]",
		"What does the kernel say? Nobody knows those that\nare none.":            "[0 0 1 2]",
		`The kernel prints "what" and "where".`:                                   "[0 0 0 0]",
	} {
		if got := fmt.Sprint(count(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
