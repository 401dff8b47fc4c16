package userfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

func TestReadUpToTheLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const limit = 1 << 20
	over := write("over", limit+1)
	for _, c := range []struct {
		name, path string
		size       int
		err        string
	}{
		{"an empty file", write("empty", 0), 0, ""},
		{"a file of the limit", write("full", limit), limit, ""},
		{"a file of a byte more", over, 0, over + ": more than 1 MiB, which is the most that is read"},
		{"a device without an end", "/dev/zero", 0, "/dev/zero: more than 1 MiB, which is the most that is read"},
		{"a device without content", "/dev/null", 0, ""},
		{"a directory", dir, 0, "read " + dir + ": is a directory"},
	} {
		b, err := Read(c.path, limit)
		if c.err == "" && (err != nil || len(b) != c.size) {
			t.Errorf("%s: %d bytes, %v", c.name, len(b), err)
		}
		if c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v, want %s", c.name, err, c.err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), limit); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestReadAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size int
		ok   bool
	}{{70_000, true}, {1<<20 + 1, false}} {
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(path, make([]byte, c.size), 0) }()
		b, err := Read(path, 1<<20)
		if c.ok && (err != nil || len(b) != c.size) || !c.ok && !strings.Contains(err.Error(), "more than 1 MiB") {
			t.Errorf("%d bytes: %d, %v", c.size, len(b), err)
		}
		// The writer of too much may meet a closed pipe.
		if err := <-wrote; err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	}
}

func TestAnErrorOfTheReaderIsKept(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, err := ReadFrom(iotest.ErrReader(broken), "x", 1<<20); !errors.Is(err, broken) {
		t.Error(err)
	}
}
