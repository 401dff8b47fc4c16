package imagecache

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An image of the tests.
type image struct {
	Key  string `json:"key"`
	Disk string `json:"disk"`
}

// names is what images of the tests cannot do without.
func (i *image) names() ([]string, error) { return []string{i.Disk}, nil }

// commit puts an image with one file into a new cache.
func commit(t *testing.T) Entry {
	t.Helper()
	e := At(t.TempDir(), "0123456789abcdef")
	unlock, err := e.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	err = errors.Join(os.Mkdir(e.WorkDir(), 0o700), os.WriteFile(filepath.Join(e.WorkDir(), "disk"), []byte("bytes"),
		0o644))
	if err := errors.Join(err, e.Commit(t.Context(), e.WorkDir(), image{"0123456789abcdef", "disk"},
		"disk")); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWhatIsCommittedIsOpened(t *testing.T) {
	e := commit(t)
	var got image
	if err := e.Open(t.Context(), &got, got.names); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(image{"0123456789abcdef", "disk"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(e.WorkDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the work directory is still there: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(e.Dir(), ManifestName))
	if err != nil || !json.Valid(b) || !strings.Contains(string(b),
		`"sha256": "277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9"`) {
		t.Errorf("manifest %s, %v, want the sum as sha256sum has it", b, err)
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(Entry) error
		names  func() ([]string, error)
		want   error
	}{
		{"no entry", func(e Entry) error { return os.RemoveAll(e.Dir()) }, nil, os.ErrNotExist},
		{"no manifest", func(e Entry) error {
			return os.Remove(filepath.Join(e.Dir(), ManifestName))
		}, nil, ErrDamaged},
		{"a file cut short", func(e Entry) error {
			return os.Truncate(filepath.Join(e.Dir(), "disk"), 1)
		}, nil, ErrDamaged},
		{"a file without a sum", func(Entry) error {
			return nil
		}, func() ([]string, error) { return []string{"kernel"}, nil }, ErrDamaged},
		{"another kind", func(Entry) error {
			return nil
		}, func() ([]string, error) { return nil, ErrOtherKind }, ErrOtherKind},
		{"another kind that is damaged", func(e Entry) error { return os.Remove(filepath.Join(e.Dir(), "disk")) },
			func() ([]string, error) { return nil, ErrOtherKind }, ErrOtherKind},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := commit(t)
			if err := tt.change(e); err != nil {
				t.Fatal(err)
			}
			var got image
			names := tt.names
			if names == nil {
				names = got.names
			}
			if err := e.Open(t.Context(), &got, names); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	e := commit(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	var got image
	if err := e.Open(ctx, &got, got.names); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestManifestsAreObjectsWithAKey(t *testing.T) {
	for _, v := range []any{nil, []int{1}, struct{}{}, "text"} {
		if b, err := manifest(v, nil); err == nil || !strings.Contains(err.Error(), "not an object with a key") {
			t.Errorf("%v: %s, %v", v, b, err)
		}
	}
}

func TestKeysAreThoseOfFinishedImages(t *testing.T) {
	e := commit(t)
	if err := os.Mkdir(e.WorkDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := Keys(filepath.Dir(e.Dir()))
	if diff := cmp.Diff([]string{"0123456789abcdef"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err := Keys(filepath.Join(t.TempDir(), "none")); got != nil || err != nil {
		t.Errorf("of no cache: %v, %v", got, err)
	}
}
