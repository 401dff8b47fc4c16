package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuilderKeepsNamesInTheTree(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"sys/cpu":                   "sys/cpu",
		"./sys/cpu":                 "sys/cpu",
		"/sys/cpu":                  "sys/cpu",
		"sys//cpu":                  "sys/cpu",
		"sys/./cpu/":                "sys/cpu",
		"../../etc/passwd":          "etc/passwd",
		"sys/../../../etc/passwd":   "etc/passwd",
		"/../sys/../../etc/./passw": "etc/passw",
	} {
		var b Builder
		if err := b.File(given, []byte("x")); err != nil {
			t.Errorf("%q: %v", given, err)
			continue
		}
		if got, err := b.Mem().ReadFile(want); string(got) != "x" {
			t.Errorf("%q is not at %q: %v", given, want, err)
		}
	}
}

func TestBuilderEntriesThatMeet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		add  func(b *Builder) error
		read string
		err  string
	}{
		{"the later file counts", func(b *Builder) error {
			return errors.Join(b.File("a", []byte("1")), b.File("a", []byte("2")))
		}, "2", ""},
		{"a file becomes a link", func(b *Builder) error {
			return errors.Join(b.File("b", []byte("B")), b.File("a", nil), b.Link("a", "b"))
		}, "B", ""},
		{"an empty directory becomes a file", func(b *Builder) error {
			return errors.Join(b.Dir("a"), b.File("a", []byte("f")))
		}, "f", ""},
		{"an unreadable file becomes readable", func(b *Builder) error {
			return errors.Join(b.Unreadable("a", 0, syscall.EIO), b.File("a", []byte("f")))
		}, "f", ""},
		{"a full directory stays one", func(b *Builder) error {
			return errors.Join(b.File("a/b", nil), b.File("a", nil))
		}, "",
			`add "a": it is a directory with entries, and cannot become something else`},
		{"nothing is below a file", func(b *Builder) error {
			return errors.Join(b.File("a", nil), b.File("a/b/c", nil))
		}, "",
			`add "a/b/c": "a" above it is not a directory`},
		{"nothing is below a link", func(b *Builder) error {
			return errors.Join(b.Dir("d"), b.Link("a", "d"), b.File("a/b", nil))
		}, "",
			`add "a/b": "a" above it is not a directory`},
		{"the root is a directory", func(b *Builder) error {
			return b.File("./", nil)
		}, "", `add ".": the root of the tree is a directory`},
		{"an unreadable entry has an error", func(b *Builder) error { return b.Unreadable("a", 0, nil) }, "",
			`add "a": an unreadable entry needs its error`},
		{"a hidden entry has an error", func(b *Builder) error {
			return b.Hidden("a", nil)
		}, "", `add "a": a hidden entry needs its error`},
		{"a hard link to nothing", func(b *Builder) error { return b.hardLink("a", "b") }, "",
			`add "a": it is a hard link to "b", which is not a file before it`},
		{"a hard link to a directory", func(b *Builder) error {
			return errors.Join(b.Dir("b"), b.hardLink("a", "b"))
		}, "",
			`add "a": it is a hard link to "b", which is not a file before it`},
		{"a hard link has the content", func(b *Builder) error {
			return errors.Join(b.File("d/b", []byte("B")), b.hardLink("a", "./d/b"))
		}, "B", ""},
		{"too deep", func(b *Builder) error {
			return b.File(strings.Repeat("d/", maxDepth+1)+"f", nil)
		}, "", "it has more than 256 directories"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var b Builder
			err := test.add(&b)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := b.Mem().ReadFile("a"); string(got) != test.read {
				t.Errorf("got %q, %v; want %q", got, err, test.read)
			}
		})
	}
}

func TestBuilderSortsLargeDirectories(t *testing.T) {
	t.Parallel()
	var b Builder
	const n = 1000
	for i := range n {
		if err := b.File(fmt.Sprintf("d/%d", (i*7919)%n), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if err := b.File(fmt.Sprintf("d/%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	m := b.Mem()
	entries, err := m.ReadDir("d")
	if err != nil || len(entries) != n || m.entries() != n+1 {
		t.Fatalf("%d entries of %d, %v", len(entries), m.entries(), err)
	}
	for i, e := range entries[1:] {
		if entries[i].Name() >= e.Name() {
			t.Fatalf("%q before %q", entries[i].Name(), e.Name())
		}
		if _, err := m.Stat("d/" + e.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuilderStartsAgain(t *testing.T) {
	t.Parallel()
	var b Builder
	if m := b.Mem(); m.entries() != 0 {
		t.Errorf("an empty builder makes %d entries", m.entries())
	}
	if err := b.File("a", nil); err != nil {
		t.Fatal(err)
	}
	first := b.Mem()
	if err := b.File("b", nil); err != nil {
		t.Fatal(err)
	}
	second := b.Mem()
	if diff := cmp.Diff([]int{1, 1}, []int{first.entries(), second.entries()}); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if _, err := first.Stat("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first tree has what was added later: %v", err)
	}
}

func TestUnreadableDirectoryKeepsItsEntries(t *testing.T) {
	t.Parallel()
	var b Builder
	if err := errors.Join(b.File("d/f", []byte("x")), b.Unreadable("d", fs.ModeDir, syscall.EACCES)); err != nil {
		t.Fatal(err)
	}
	m := b.Mem()
	if _, err := m.ReadDir("d"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("list: %v", err)
	}
	if got, err := m.ReadFile("d/f"); string(got) != "x" {
		t.Errorf("file: %q, %v", got, err)
	}
	if _, err := m.ReadFile("d/g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestErrorNamesComeBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		name string
		back error
	}{
		{syscall.EACCES, "EACCES", syscall.EACCES},
		{&fs.PathError{Op: "read", Path: "x", Err: syscall.EINVAL}, "EINVAL", syscall.EINVAL},
		{fs.ErrNotExist, "not-exist", fs.ErrNotExist},
		{fs.ErrPermission, "permission", fs.ErrPermission},
		{ErrNotRecorded, "not-exist", fs.ErrNotExist},
		{errDevice, "a device file or FIFO", nil},
		{errors.New("two\nlines  of\ttext"), "two lines of text", nil},
		{errors.New(""), "", nil},
	} {
		name := ErrorName(test.err)
		if name != test.name {
			t.Errorf("%v: name %q, want %q", test.err, name, test.name)
		}
		back := ErrorOf(name)
		if back == nil || test.back != nil && back != test.back || test.back == nil && test.name != "" &&
			back.Error() != test.name {
			t.Errorf("%q: error %v, want %v", name, back, test.back)
		}
	}
}
