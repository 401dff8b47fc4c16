package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		make func(t *testing.T, path string) error
		mode fs.FileMode
		bad  string
	}{
		"a new file gets the mode": {func(*testing.T, string) error { return nil }, 0o640, ""},
		"a file that is there keeps its mode": {func(_ *testing.T, path string) error {
			return os.WriteFile(path, []byte("old"), 0o600)
		}, 0o600, ""},
		"a link stays": {func(t *testing.T, path string) error {
			to := filepath.Join(t.TempDir(), "target")
			t.Cleanup(func() {
				if have, err := os.Readlink(path); have != to {
					t.Errorf("the link points to %q, %v, want %q", have, err, to)
				}
			})
			return errors.Join(os.WriteFile(to, []byte("old"), 0o600), os.Symlink(to, path))
		}, 0o600, ""},
		"a link to nothing": {func(_ *testing.T, path string) error {
			return os.Symlink("nowhere", path)
		}, 0, "no such file"},
		"a device": {func(_ *testing.T, path string) error { return os.Symlink("/dev/null", path) }, 0,
			"is not a regular file"},
		"a directory": {func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) }, 0,
			"is not a regular file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			if err := tt.make(t, path); err != nil {
				t.Fatal(err)
			}
			err := WriteFile(path, []byte("new"), 0o640)
			if tt.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("got %v, want %q", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "new" {
				t.Errorf("got %q, %v", b, err)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != tt.mode {
				t.Errorf("got %v, %v, want mode %v", fi.Mode(), err, tt.mode)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("left %v, %v, want the file alone", left, err)
			}
		})
	}
}

func TestWriteFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	err := Write(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "half of the")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("got %q, %v, want the old contents", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v, want the old file alone", left, err)
	}
	if err := WriteFile(filepath.Join(dir, "none/f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: got %v", err)
	}
}

// Readers always see one writer's complete contents.
func TestWriteAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	var wg sync.WaitGroup
	for _, text := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 20 {
				if err := WriteFile(path, []byte(strings.Repeat(text, 10_000)), 0o600); err != nil {
					t.Error(err)
				}
				b, err := os.ReadFile(path)
				if err != nil || string(b) != strings.Repeat(string(b[:1]), 10_000) {
					t.Errorf("a mixture of %d bytes, %v", len(b), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	err := errors.Join(os.MkdirAll(filepath.Join(from, "sub"), 0o700),
		os.WriteFile(filepath.Join(from, "sub/file"), []byte("text"), 0o600),
		os.Symlink("nowhere", filepath.Join(from, "link")))
	if err != nil {
		t.Fatal(err)
	}
	if err := Rename(from, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "sub/file")); err != nil || string(b) != "text" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: got %v", err)
	}
}
