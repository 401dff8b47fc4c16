package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type transcript struct {
	place, command string
	output         []string // "..." stands for omitted lines
}

func transcripts(t *testing.T) (all []transcript) {
	t.Helper()
	for name, page := range pages(t) {
		if name == "docs/tutorial.md" || slices.Contains(followed, name) {
			continue
		}
		inside := false
		for line := range strings.Lines(page) {
			line = strings.TrimRight(line, "\n")
			command, isCommand := strings.CutPrefix(line, "$ ")
			switch {
			case strings.HasPrefix(line, "```"):
				inside = line == "```console"
			case inside && isCommand:
				all = append(all, transcript{place: name, command: command})
			case inside && len(all) > 0:
				last := &all[len(all)-1]
				last.output = append(last.output, line)
			}
		}
	}
	return all
}

// facts are names, figures and codes, and the first word of each line that is not indented: a page has to show them.
// Sentences and line breaks may change.
func facts(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		for i, word := range strings.Fields(line) {
			word = strings.Trim(word, ".,;:()`'\"")
			if i == 0 && !strings.HasPrefix(line, " ") || isFact(word) {
				all = append(all, word)
			}
		}
	}
	return all
}

func isFact(word string) bool {
	inside := strings.Trim(word, "-")
	return strings.ContainsAny(word, "0123456789_/=@$|<>") || strings.HasPrefix(word, "--") ||
		len(inside) > 1 && strings.ToUpper(inside) == inside && strings.ToLower(inside) != inside
}

// missing returns the first lines whose facts are not in the output, in this order.
func (s transcript) missing(output string) string {
	have := facts(output)
	var part []string
	for _, line := range append(slices.Clone(s.output), "...") {
		if line != "..." {
			part = append(part, line)
			continue
		}
		want := facts(strings.Join(part, "\n"))
		at := 0
		for ; at+len(want) <= len(have) && !slices.Equal(have[at:at+len(want)], want); at++ {
		}
		if at+len(want) > len(have) {
			return strings.Join(part, "\n")
		}
		have, part = have[at+len(want):], nil
	}
	return ""
}

// TestThePagesShowWhatCommandsPrint needs no lab. Output of the lab of "make lab" and of emulated hosts depends on the
// machine, so other tests check only its commands.
func TestThePagesShowWhatCommandsPrint(t *testing.T) {
	all := transcripts(t)
	t.Chdir("../..")
	n := 0
	for _, s := range all {
		words := shellWords(s.command)
		if len(words) < 2 || words[0] != "rackless" || words[1] == "emulate" || len(s.output) == 0 {
			continue
		}
		n++
		a, out, stderr := testApp(t)
		if code := a.run(t.Context(), words[1:]); code == exitUsage {
			t.Errorf("%s: %s: %s", s.place, s.command, stderr)
		}
		if part := s.missing(out.String()); part != "" {
			t.Errorf("%s: %s does not print\n%s\nbut\n%s", s.place, s.command, part, out)
		}
	}
	if n < 3 {
		t.Errorf("%d transcripts found, want at least 3", n)
	}
}

// The test above must detect wrong output.
func TestATranscriptIsHeldAgainstTheOutput(t *testing.T) {
	for shown, want := range map[string]string{
		"a\nb": "", "...\nb": "", "a\n...": "", "a\n...\nd": "", "a\nc": "a\nc", "d\n...\na": "a", "a\n...\ne": "e",
	} {
		if got := (transcript{output: strings.Split(shown, "\n")}).missing("a\nb\nc\nd\n"); got != want {
			t.Errorf("%q: %q is missing, want %q", shown, got, want)
		}
	}
}

func TestThePagesAreHeldToFactsAndNotToSentences(t *testing.T) {
	t.Parallel()
	const output = "ok      vm00 rxe0  RDMA port active, at 25 Gb/s\n  read /etc/fstab, see --explain\n" +
		"94 checks, 0 not ok\n"
	for _, same := range []string{
		"ok vm00 rxe0 is an active port of RDMA at 25 Gb/s\n  from /etc/fstab: --explain\n" +
			"94 checks, and 0 faults\n",
		"ok      vm00 rxe0  RDMA port active,\n  at 25 Gb/s read /etc/fstab, see\n  --explain\n" +
			"94 checks,\n  0 not ok\n",
	} {
		if diff := cmp.Diff(facts(output), facts(same)); diff != "" {
			t.Errorf("other words are taken for another fact:\n%s", diff)
		}
	}
	for old, changed := range map[string]string{"ok  ": "FAILED  ", "vm00": "vm01", "25": "100", "RDMA": "TCP",
		"94": "93", "/etc/fstab": "/etc/hosts",
		"--explain": "--verbose", ", 0 not": ", not", "94 checks": "\n\nend 94 checks"} {
		if slices.Equal(facts(output), facts(strings.Replace(output, old, changed, 1))) {
			t.Errorf("%q in place of %q is no other fact", changed, old)
		}
	}
}

func TestTheREADMEShowsThePictureOfAPlan(t *testing.T) {
	t.Chdir("../..")
	a, out, stderr := testApp(t)
	if code := a.run(t.Context(), []string{"plan", "examples/epyc-pair.yaml", "--host",
		"examples/hosts/epyc-7551p.ttar", "-o", "svg"}); code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	const picture = "docs/plan.svg"
	if *updateTutorial {
		if err := os.WriteFile(picture, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(picture); err != nil || !bytes.Equal(have, out.Bytes()) {
		t.Errorf("%v: draw %s again with -update-tutorial", err, picture)
	}
}

func TestThePagesNameFilesThatAPlanHas(t *testing.T) {
	named := pages(t)
	t.Chdir("../..")
	var files []string
	for lab, host := range map[string]string{"examples/epyc-pair.yaml": "examples/hosts/epyc-7551p.ttar",
		"examples/r740-one.yaml": "examples/hosts/r740.ttar"} {
		dir := filepath.Join(t.TempDir(), "plan")
		a, _, stderr := testApp(t)
		if code := a.run(t.Context(), []string{"plan", lab, "--host", host, "--out", dir}); code != 0 {
			t.Fatalf("%s: status %d: %s", lab, code, stderr)
		}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			files = append(files, strings.TrimPrefix(strings.TrimPrefix(path, dir), "/"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	span := regexp.MustCompile("`((?:kernel|commands|guests|domains|switch|firmware|tuned)" +
		"[/.][^`\\s]*)")
	n := 0
	delete(named, "docs/simulate.md") // its keys are no files
	for name, page := range named {
		for _, m := range span.FindAllStringSubmatch(page, -1) {
			n++
			if !slices.Contains(files, strings.TrimSuffix(m[1], "/")) {
				t.Errorf("%s names %s, which no plan has; there are %q", name, m[1], files)
			}
		}
	}
	if n < 8 {
		t.Errorf("%d files found, want at least 8", n)
	}
}
