package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/vm"
)

func commit(t *testing.T) entry {
	t.Helper()
	e := at(t.TempDir(), "0123456789abcdef")
	unlock, err := e.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	err = errors.Join(os.Mkdir(e.workDir(), 0o700), os.WriteFile(filepath.Join(e.workDir(), "disk"), []byte("bytes"),
		0o644))
	if err := errors.Join(err, e.commit(t.Context(), e.workDir(), &Image{Name: "host", Key: e.key,
		Disk: "disk"})); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWhatIsCommittedIsOpened(t *testing.T) {
	e := commit(t)
	got, err := e.open(t.Context(), "host")
	if err != nil {
		t.Fatal(err)
	}
	const digest = "277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9" // according to sha256sum
	want := &Image{Name: "host", Key: e.key, Dir: e.dir, Disk: "disk", Sums: []sum{{"disk", 5, digest}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(e.workDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the work directory is still there: %v", err)
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(entry) error
		kind   string
		want   error
	}{
		{"no entry", func(e entry) error { return os.RemoveAll(e.dir) }, "host", os.ErrNotExist},
		{"no manifest", func(e entry) error { return os.Remove(filepath.Join(e.dir, manifestName)) }, "host",
			ErrDamaged},
		{"a file cut short", func(e entry) error { return os.Truncate(filepath.Join(e.dir, "disk"), 1) }, "host",
			ErrDamaged},
		{"a file without a sum", func(e entry) error {
			return replace(`"name": "disk"`, `"name": "kernel"`)(e.dir)
		}, "host", ErrDamaged},
		{"another kind", func(entry) error { return nil }, "builtin", errOtherKind},
		{"another kind that is damaged", func(e entry) error { return os.Remove(filepath.Join(e.dir, "disk")) },
			"builtin", errOtherKind},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := commit(t)
			if err := tt.change(e); err != nil {
				t.Fatal(err)
			}
			if _, err := e.open(t.Context(), tt.kind); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// Hashing would take an emulated host's CPU 20 s.
func TestOnlySizesAreCheckedOfWhatCannotBeWritten(t *testing.T) {
	if dir := os.Getenv("RACKLESS_SEALED"); dir != "" { // the child, in its mount namespace
		if _, err := at(filepath.Dir(dir), filepath.Base(dir)).open(t.Context(), "host"); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace can be made here: %v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"other": true, "longer": false} {
		e := commit(t)
		if err := os.WriteFile(filepath.Join(e.dir, "disk"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := e.open(t.Context(), "host"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s, where it can be written: %v", text, err)
		}
		cmd := exec.Command("unshare", "-rm", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && `+
			`exec "$1" -test.run='^`+t.Name()+`$'`, e.dir, self)
		cmd.Env = append(os.Environ(), "RACKLESS_SEALED="+e.dir)
		out, err := cmd.CombinedOutput()
		if (err == nil) != want || !want && !strings.Contains(string(out), "damaged") {
			t.Errorf("%s, where it cannot be written: %v\n%s", text, err, out)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	e := commit(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := e.open(ctx, "host"); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestKeysAreThoseOfFinishedImages(t *testing.T) {
	e := commit(t)
	if err := os.Mkdir(e.workDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := vm.Keys(filepath.Dir(e.dir))
	if diff := cmp.Diff([]string{"0123456789abcdef"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err := vm.Keys(filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
		t.Errorf("of no cache: %v, %v", got, err)
	}
}
