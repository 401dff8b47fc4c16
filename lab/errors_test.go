package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
)

// The .txt file beside an invalid lab file is the expected message.
func TestErrorTexts(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(name, data)
			if err == nil {
				t.Fatal("the file was accepted")
			}
			var first *Error
			if !errors.As(err, &first) {
				t.Fatalf("got a %T, want one that holds a *Error", err)
			}
			if first.File != name || first.What == "" {
				t.Errorf("the first fault has file %q and says %q", first.File, first.What)
			}
			if strings.ContainsAny(err.Error(), "\x1b\x00\t\r") {
				t.Errorf("control characters of the file reach the message: %q", err.Error())
			}
			golden.Check(t, strings.TrimSuffix(path, ".yaml")+".txt", []byte(err.Error()+"\n"))
		})
	}
}

// The marker is below the reported position.
func TestEveryMarkerIsInsideItsLine(t *testing.T) {
	files, _ := filepath.Glob("testdata/errors/*.yaml")
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(path, data)
		for _, e := range err.(Errors) {
			if e.Line == 0 {
				continue
			}
			lines := strings.Split(e.Excerpt, "\n")
			if len(lines) < 2 {
				t.Errorf("%s:%d:%d: no excerpt", path, e.Line, e.Column)
				continue
			}
			shown, marker := []rune(lines[len(lines)-2]), lines[len(lines)-1]
			if at := strings.IndexByte(marker, '^'); at < 9 || at > len(shown) {
				t.Errorf("%s: marker at %d of %d:\n%s", path, at, len(shown), e.Excerpt)
			}
		}
	}
}

func TestErrorFields(t *testing.T) {
	_, err := Parse("pair.yaml", []byte("name: pair\nnodes:\n  vm00: {cpus: 4097}\n"))
	var got *Error
	if !errors.As(err, &got) {
		t.Fatalf("got %T", err)
	}
	want := &Error{File: "pair.yaml", Line: 3, Column: 16, Key: "nodes.vm00.cpus", What: "out of range", Have: "4097",
		Want:    "a whole number from 1 to 4096",
		Excerpt: "     1 | name: pair\n     2 | nodes:\n>    3 |   vm00: {cpus: 4097}\n       |                ^"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorPrintsOnlyWhatItHas(t *testing.T) {
	tests := []struct {
		name string
		err  Error
		want string
	}{
		{"no place", Error{File: "f", What: "empty"}, "f: empty"},
		{"only have", Error{File: "f", Line: 1, Column: 2, What: "bad", Have: "x"}, "f:1:2: bad (have x)"},
		{"only want", Error{File: "f", What: "bad", Want: "y"}, "f: bad (want y)"},
		{"all", Error{File: "f", Line: 1, Column: 2, Key: "k", What: "bad", Have: "x", Want: "y", Fix: "do z",
			Excerpt: "> l"},
			"f:1:2: k: bad (have x, want y); do z\n> l"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFaultsComeInDocumentOrder(t *testing.T) {
	// The decoder finds the missing name last.
	_, err := Parse("f", []byte("nodes:\n  b: {cpus: 9999}\n  a: {nics: 99}\ndriver: x\n"))
	var keys []string
	for _, e := range err.(Errors) {
		keys = append(keys, e.Key)
	}
	if diff := cmp.Diff([]string{"name", "nodes.b.cpus", "nodes.a.nics", "driver"}, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// These inputs are too large to be files of the repository.
func TestLimits(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"a file over 1 MiB", strings.Repeat("#", MaxFileSize+1),
			"f: file too large (have 1048577 bytes, want at most 1048576); use count and defaults instead of " +
				"repeated nodes"},
		{"a file of brackets", strings.Repeat("[", MaxFileSize/2),
			"f: too many keys and values (have 524288 tokens, want at most 30000); use count and defaults instead of " +
				"repeated nodes"},
		{"fewer brackets", strings.Repeat("[", 5000), "nested too deeply"},
		{"a line of dashes", strings.Repeat("- ", 5000), "nested too deeply"},
		{"many keys", strings.Repeat("a: {}\n", 60000), "too many keys and values"},
		{"one long comment", strings.Repeat("#", MaxFileSize), "empty lab file"},
		{"one long text", "name: " + strings.Repeat("x", 1<<19), "524288 characters"},
		{"one long key", strings.Repeat("x", 1<<10) + ": 1", "unknown key"},
		{"steps of indentation", steps(1000), "unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if n := len(err.Error()); n > 4000 {
				t.Errorf("the message has %d bytes", n)
			}
		})
	}
}

func steps(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
