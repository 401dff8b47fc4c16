package userfile

import (
	"context"
	"errors"
	"io"
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
		// A writer of too many bytes may get a closed pipe.
		if err := <-wrote; err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	}
}

// A signal ends a read that is blocked in open or in read, and any later read.
func TestNoReadOutlivesASignal(t *testing.T) { // the signal would end other reads
	ctx, cancel := context.WithCancelCause(t.Context())
	EndWith(ctx)
	defer EndWith(context.Background())
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ended := make(chan error, 3)
	read := func(f io.ReadCloser, name string) {
		_, err := ReadFrom(f, name, 1<<20)
		ended <- errors.Join(err, f.Close())
	}
	f, err := Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	go read(f, fifo)
	go read(Stream(r, "standard input"), "standard input")
	signal := errors.New("interrupt signal received")
	cancel(signal)
	read(Stream(r, "standard input"), "standard input")
	for range 3 {
		if err := <-ended; !errors.Is(err, signal) || !strings.HasPrefix(err.Error(), "read ") {
			t.Errorf("got %v, want %v", err, signal)
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
