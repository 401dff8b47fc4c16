package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeTemplate makes a template of a few bytes as makeTemplate would have left it.
func writeTemplate(t *testing.T, cache, key, image string) {
	t.Helper()
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ram, state := []byte("memory"), []byte("state")
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ram", ram)
	write("state", state)
	fi, err := os.Stat(filepath.Join(dir, "ram"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(state)
	info := templateInfo{Key: key, Image: image, QEMU: "10.0.2", Accelerator: "tcg", CPUs: 1,
		MemoryBytes: int64(len(ram)), NICs: 2,
		Made: time.Unix(1000, 0).UTC(), RAMModified: fi.ModTime().UnixNano(), StateSHA256: hex.EncodeToString(sum[:])}
	b, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	write("template.json", b)
}

func TestListTemplates(t *testing.T) {
	cache := t.TempDir()
	if all, err := ListTemplates(filepath.Join(cache, "none")); err != nil || all != nil {
		t.Errorf("a cache that does not exist: %v, %v", all, err)
	}
	writeTemplate(t, cache, "bb", "image1")
	writeTemplate(t, cache, "aa", "image1")
	writeTemplate(t, cache, "cc", "image2")
	if err := os.WriteFile(filepath.Join(cache, "cc", "state"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dd", ".t123"} { // one without a manifest, and one that is being made
		if err := os.Mkdir(filepath.Join(cache, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cache, "aa.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := ListTemplates(cache)
	if err != nil || len(all) != 4 {
		t.Fatalf("got %v, %v", all, err)
	}
	for i, want := range []struct {
		key, image string
		damaged    bool
	}{{"aa", "image1", false}, {"bb", "image1", false}, {"cc", "image2", true}, {"dd", "", true}} {
		if got := all[i]; got.Key != want.key || got.Image != want.image || (got.Damaged != nil) != want.damaged {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if a := all[0]; a.QEMU != "10.0.2" || a.Accelerator != "tcg" || a.CPUs != 1 || a.Memory != 6 || a.NICs != 2 ||
		!a.Made.Equal(time.Unix(1000, 0)) || a.Dir != filepath.Join(cache, "aa") {
		t.Errorf("got %+v", a)
	}
}

func TestRemoveTemplates(t *testing.T) {
	cache := t.TempDir()
	writeTemplate(t, cache, "aa", "image1")
	writeTemplate(t, cache, "bb", "image2")
	gone, err := RemoveTemplates(t.Context(), cache, func(t Template) bool { return t.Image == "image1" })
	if err != nil || len(gone) != 1 || gone[0].Key != "aa" {
		t.Errorf("got %v, %v", gone, err)
	}
	if _, err := os.Stat(filepath.Join(cache, "aa")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if all, err := ListTemplates(cache); err != nil || len(all) != 1 || all[0].Damaged != nil {
		t.Errorf("the other: %v, %v", all, err)
	}
}
