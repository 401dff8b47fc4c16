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
)

// A transcript is what a page shows of a command and its output.
type transcript struct {
	place, command string
	output         []string // lines; "..." stands for some that are left out
}

// transcripts returns those of all pages but those that a test follows.
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

// missing returns the first lines of a transcript that are not in the output, in this order.
func (s transcript) missing(output string) string {
	have := strings.Split(strings.TrimRight(output, "\n"), "\n")
	var part []string
	for _, line := range append(slices.Clone(s.output), "...") {
		if line != "..." {
			part = append(part, line)
			continue
		}
		at := 0
		for ; at+len(part) <= len(have) && !slices.Equal(have[at:at+len(part)], part); at++ {
		}
		if at+len(part) > len(have) {
			return strings.Join(part, "\n")
		}
		have, part = have[at+len(part):], nil
	}
	return ""
}

// What the pages show of commands that need no lab is what they print. The lab of "make lab" and emulated hosts are
// measured again by each who runs them; of those, the other tests look at the commands alone.
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

// The test above is worth what it refuses.
func TestATranscriptIsHeldAgainstTheOutput(t *testing.T) {
	for shown, want := range map[string]string{
		"a\nb": "", "...\nb": "", "a\n...": "", "a\n...\nd": "", "a\nc": "a\nc", "d\n...\na": "a", "a\n...\ne": "e",
	} {
		if got := (transcript{output: strings.Split(shown, "\n")}).missing("a\nb\nc\nd\n"); got != want {
			t.Errorf("%q: %q is missing, want %q", shown, got, want)
		}
	}
}

// The picture of a plan that the README shows is the one that plan draws.
func TestTheREADMEShowsThePictureOfAPlan(t *testing.T) {
	t.Chdir("../..")
	a, out, stderr := testApp(t)
	if code := a.run(t.Context(), []string{"plan", "examples/epyc-pair.yaml", "--snapshot",
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

// Pages name files of plan --out.
func TestThePagesNameFilesThatAPlanHas(t *testing.T) {
	named := pages(t)
	t.Chdir("../..")
	var files []string
	for lab, host := range map[string]string{"examples/epyc-pair.yaml": "examples/hosts/epyc-7551p.ttar",
		"examples/r740-one.yaml": "examples/hosts/r740.ttar"} {
		dir := filepath.Join(t.TempDir(), "plan")
		a, _, stderr := testApp(t)
		if code := a.run(t.Context(), []string{"plan", lab, "--snapshot", host, "--out", dir}); code != 0 {
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
