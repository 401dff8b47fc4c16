package tree

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTextIsRead(t *testing.T) {
	t.Parallel()
	const text = `# Archive created by ttar -c -f fixtures.ttar fixtures

Directory: fixtures
Mode: 755
# ttar - - -
Directory: fixtures/void
Path: fixtures/proc/cmdline
Lines: 1
vimNULLBYTEa.goNULLBYTEEOF
Mode: 644
Path: fixtures/link
SymlinkTo: ../x y
# ttar - - -
Path: fixtures/empty
Lines: 0
Path: fixtures/lines
Lines: 3
Mode: 644 is a line here

# and so is this
Path: fixtures/words
Lines: 2
\NULLBYTE and \EOF
\EOF
Path: fixtures/quoted
Quoted: "a\\\x00"
Path: fixtures/secret
Error: EACCES
Mode: 000
Directory: fixtures/debug
Error: EPERM
Path: fixtures/no newline
Lines: 1
the endEOF`
	want := strings.ReplaceAll(`fixtures/
fixtures/debug/
fixtures/debug: operation not permitted
fixtures/empty = "" <nil>
fixtures/lines = "Mode: 644 is a line here\n\n# and so is this\n" <nil>
fixtures/link -> ../x y <nil>
fixtures/no newline = "the end" <nil>
fixtures/proc/
fixtures/proc/cmdline = "vim\x00a.go\x00" <nil>
fixtures/quoted = "a\\\x00" <nil>
fixtures/secret = "" permission denied
fixtures/void/
fixtures/words = "NULLBYTE and EOF\nEOF\n" <nil>
`, "\\x00a.go\\x00", "\\x00a.go\\x00")
	if !IsText([]byte(text)) {
		t.Error("not known as a text")
	}
	m, err := ParseText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, describe(t, m)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestTextErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, err string }{
		{"a line that is none", "Path: a\nhello\n",
			`line 2: "hello" is neither a comment nor "Directory: ", "Path: ", "Lines: ", "SymlinkTo: " or "Mode: "`},
		{"an unknown word", "Path: a\nSize: 3\n", `line 2: "Size" is not a keyword of this format`},
		{"lines without a path", "Lines: 0\n", `line 1: "Lines" without a path before it`},
		{"a mode without a path", "Mode: 755\n", "line 1: a mode without a path before it"},
		{"two contents", "Path: a\nLines: 0\nLines: 0\n", `line 3: "Lines" without a path before it`},
		{"a directory with content", "Directory: a\nLines: 0\n", `line 2: "Lines" without a path before it`},
		{"too few lines", "Path: a\nLines: 3\nx\n", `line 2: "a" has 1 lines, not 3: the text is cut off`},
		{"a number that is none", "Path: a\nLines: many\n", `line 2: "many" is not a number of lines`},
		{"a negative number", "Path: a\nLines: -1\n", `line 2: "-1" is not a number of lines`},
		{"a huge number", "Path: a\nLines: 99999999999\n", `line 2: "99999999999" is not a number of lines`},
		{"a string that is none", "Path: a\nQuoted: x\n", `line 2: "x" is not a string as Go writes them`},
		{"a file below a file", "Path: a\nLines: 0\nPath: a/b\nLines: 0\n",
			`line 4: add "a/b": "a" above it is not a directory`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseText([]byte(test.text))
			var text *TextError
			if err == nil || err.Error() != test.err || !errors.As(err, &text) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestOtherFilesAreNotTexts(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"", "# only\n# comments\n", "<topology>", "\tGPU0\n", "Directory of C:", "Path:x\n"} {
		if IsText([]byte(head)) {
			t.Errorf("%q is taken for a tree", head)
		}
	}
}

func trees(t *rapid.T) *Mem {
	var b Builder
	name := rapid.StringOfN(rapid.RuneFrom([]rune("ab:.-é ")), 1, 6, -1).Filter(func(s string) bool {
		return strings.TrimSpace(s) == s && s != "." && s != ".."
	})
	content := rapid.SliceOfN(rapid.SampledFrom([]string{
		"EOF", "NULLBYTE", "\\", "\x00", "\n", "x", "\xff", "Path: a\n", "# c\n", "\r\n", strings.Repeat("y", 5000), "",
	}), 0, 6)
	for range rapid.IntRange(0, 20).Draw(t, "entries") {
		path := strings.Join(rapid.SliceOfN(name, 1, 4).Draw(t, "path"), "/")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			_ = b.Dir(path)
		case 1:
			_ = b.Link(path, rapid.StringOfN(rapid.RuneFrom([]rune("a/.é")), 1, 8, -1).Draw(t, "target"))
		case 2:
			_ = b.Unreadable(path, 0, syscall.EACCES)
		case 3:
			_ = b.Unreadable(path, fs.ModeDir, errors.New("some reason"))
		default:
			_ = b.File(path, []byte(strings.Join(content.Draw(t, "content"), "")))
		}
	}
	return b.Mem()
}

func TestTextRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := trees(r)
		var text bytes.Buffer
		if err := writeText(&text, m); err != nil {
			r.Fatal(err)
		}
		written := text.String()
		back, err := ParseText([]byte(written))
		if err != nil {
			r.Fatalf("%v in\n%s", err, written)
		}
		if diff := cmp.Diff(describe(t, m), describe(t, back)); diff != "" {
			r.Fatalf("tree (-want +got):\n%s\n%s", diff, written)
		}
		text.Reset()
		if err := writeText(&text, back); err != nil || text.String() != written {
			r.Fatalf("the second text is not the first: %v", err)
		}
	})
}

func TestTextRefusesNamesWithLineBreaks(t *testing.T) {
	t.Parallel()
	for _, add := range []func(b *Builder) error{
		func(b *Builder) error { return b.File("a\nb", nil) },
		func(b *Builder) error { return b.Link("a", "b\nc") },
		func(b *Builder) error { return b.Dir(" a") },
	} {
		var b Builder
		if err := add(&b); err != nil {
			t.Fatal(err)
		}
		if err := writeText(io.Discard, b.Mem()); err == nil || !strings.Contains(err.Error(),
			"has a line break in it") {
			t.Errorf("got %v, want an error about the line break", err)
		}
	}
	var b Builder
	if err := b.File("a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := writeText(brokenPipe{}, b.Mem()); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestTextOfOthers(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("RACKLESS_CORPUS")
	if dir == "" {
		t.Skip("no dumps: set RACKLESS_CORPUS to a directory with archives of machines")
	}
	m, err := ParseText(read(t, dir+"/procfs/prometheus/procfs-fixtures.ttar"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Chroot(FindRoots(m, 6)[0]); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"proc/26231/cmdline": "vim\x00test.go\x00+10\x00", "proc/26231/comm": "vim\n",
		"sys/block/dm-0/dm/name": "vg0--lv_root",
	} {
		if got, err := m.ReadFile(name); string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add([]byte("Directory: a\nMode: 755\n# c\nPath: a/b\nLines: 2\nx\nyEOF\nPath: a/c\nSymlinkTo: ../b\n"))
	f.Add([]byte("Path: a\nQuoted: \"\\x00\"\nPath: b\nError: EACCES\nDirectory: c\nError: x y\n"))
	f.Add([]byte("Path: a\nLines: 1\n\\NULLBYTENULLBYTE\\EOFEOF"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseText(bytes.Clone(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeText(&out, m); err != nil {
			return
		}
		back, err := ParseText(out.Bytes())
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, out.Bytes())
		}
		if diff := cmp.Diff(describe(t, m), describe(t, back)); diff != "" {
			t.Errorf("tree (-want +got):\n%s", diff)
		}
	})
}
