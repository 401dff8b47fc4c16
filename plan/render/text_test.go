package render

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/words"
)

// For programs that the setup installs, use need instead. cloud-init is never installed for tests, because it would set
// up the machine again at the next boot.
func findProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

func FuzzShellQuote(f *testing.F) {
	for _, s := range []string{"", "vm00", "a b", "it's", `\'`, "$(reboot)", "`reboot`", "a\nb", "-n", "%s", "\xff\xfe",
		"'", "''", "*", "~", "a;b", "$'\\x00'", "\r", "\x01"} {
		f.Add(s)
	}
	sh := findProgram(f, "sh")
	f.Fuzz(func(t *testing.T, s string) {
		want := strings.ReplaceAll(s, "\x00", "")
		quoted, word := words.Quote(s), words.ShellWord(s)
		if len(quoted)+len(word) > 1<<16 {
			t.Skip("longer than an argument may be")
		}
		got, err := exec.Command(sh, "-c", `printf '%s\0%s' `+quoted+" "+word).Output() // one start for both
		if err != nil {
			t.Fatalf("sh cannot read %q or %q: %v", quoted, word, err)
		}
		if string(got) != want+"\x00"+want {
			t.Errorf("sh reads %q and %q as %q; want %q twice", quoted, word, got, want)
		}
	})
}

func TestShellWordLeavesPlainWordsAlone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"epyc-pair.vm00": "epyc-pair.vm00", "/var/lib/x.qcow2": "/var/lib/x.qcow2", "0000:06:00.0": "0000:06:00.0",
		"": "''", "a b": "'a b'", "-rf": "'-rf'", "=ls": "'=ls'", "x'y": `'x'\''y'`, "~root": "'~root'", "a*": "'a*'",
	} {
		if got := words.ShellWord(in); got != want {
			t.Errorf("words.ShellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestCommentsNeverEndEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		for line := range strings.Lines(comment("# ", text)) {
			if !strings.HasPrefix(line, "#") || strings.ContainsAny(strings.TrimSuffix(line, "\n"),
				"\n\r\x0b\x0c\u0085\u2028\u2029") {
				t.Fatalf("line %q of a comment on %q", line, text)
			}
		}
	})
}

func TestSafeNamesAreDifferentForDifferentNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"epyc-pair": "epyc-pair", "": "_", "../x": "_2e_2e_2fx", "-a": "_2da",
		"a b": "a_20b", "ü": "_c3_bc", "a%b": "a_25b"} {
		if got := safeName(in); got != want {
			t.Errorf("safeName(%q) = %q, want %q", in, got, want)
		}
	}
}

func scripts(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, c := range hostCases() {
		in := c.in(t)
		all[c.name+"/commands.txt"] = render(t, in)["commands.txt"].Data
		v, err := newView(in)
		if err != nil {
			t.Fatal(err)
		}
		all[c.name+"/rackless-gid"] = v.gidScript()
	}
	return all
}

func TestShellsReadTheCommands(t *testing.T) {
	t.Parallel()
	for name, data := range scripts(t) {
		if len(data) < 500 {
			t.Errorf("%s is %q", name, data)
		}
		for _, shell := range []string{"sh", "bash", "dash"} {
			path, err := exec.LookPath(shell)
			if err != nil {
				continue
			}
			cmd := exec.Command(path, "-n")
			cmd.Stdin = bytes.NewReader(data)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n %s: %v\n%s", shell, name, err, out)
			}
		}
	}
}

func TestShellcheckHasNothingToSay(t *testing.T) {
	t.Parallel()
	shellcheck := need(t, "shellcheck", "shellcheck")
	v, err := newView(hostEPYC(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shellcheck, "--shell=sh", "-")
	cmd.Stdin = bytes.NewReader(v.gidScript())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
