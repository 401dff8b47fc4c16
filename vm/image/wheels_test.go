package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs that use CUDA are wheels: images of emulated GPUs and AI libraries have them, and no others.
func TestTheWheelsOfImages(t *testing.T) {
	recipe := func(name string) Recipe {
		r, _, err := Full(name).recipe(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, name := range []string{"debian-13+ai", "debian-13+gpu", "debian-12+ai+mpi"} {
		if r := recipe(name); r.Wheels != nil {
			t.Errorf("%s has the wheels %q", name, r.Wheels)
		}
	}
	for release := range fullReleases {
		r := recipe(release + "+ai+gpu+slurm")
		if !slices.Equal(r.Wheels, gpuWheels) || wheelPythons[r.Release] == "" {
			t.Errorf("%s has the wheels %q, for Python %q", release, r.Wheels, wheelPythons[r.Release])
		}
		args := installArgs(inputs{recipe: r}, "root", nil)
		upload := slices.Index(args, "--customize-hook=upload nixl-cu12.whl /mnt/nixl-cu12.whl")
		install := slices.Index(args, `--customize-hook=chroot "$1" /mnt/install-wheels`)
		end := slices.Index(args, `--customize-hook=chroot "$1" /mnt/customize.sh`)
		if upload < 0 || install < upload || end < install {
			t.Errorf("hooks of %s: %q", release, args)
		}
	}
	installed := false
	err := filesOf([]string{setAI, setGPU})(func(name string, content []byte, mode int64) error {
		if name != "mnt/install-wheels" {
			return nil
		}
		installed = mode == 0o755
		for _, wheel := range gpuWheels {
			if !strings.Contains(string(content), "\nunpack "+wheelName(wheel)+" ") {
				t.Errorf("%s does not unpack %s", name, wheel)
			}
		}
		return nil
	})
	if err != nil || !installed {
		t.Errorf("no program installs wheels: %v", err)
	}
}

func TestFetchWheels(t *testing.T) {
	work, bin := t.TempDir(), t.TempDir()
	const program = `#!/bin/sh
echo "$*" >>log
for word; do last=$word; [ "$before" = --dest ] && dir=$word; before=$word; done
case $last in
bad*) echo "no such wheel" >&2; exit 1 ;;
none*) ;;
*) mkdir -p "$dir" && echo wheel >"$dir/some-1-py3-none-any.whl" ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r := Recipe{Release: "bookworm", Wheels: []string{"some==1"}}
	if err := fetchWheels(t.Context(), Options{}, work, r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(work, r.fetched()[0])); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(filepath.Join(work, "log"))
	if err != nil || !strings.Contains(string(log), "--python-version 3.11 ") {
		t.Errorf("%v, %s", err, log)
	}
	for wheel, want := range map[string]string{"bad==1": "no such wheel; this needs python3-pip",
		"none==1": "pip brought 0 files"} {
		r.Wheels = []string{wheel}
		if err := fetchWheels(t.Context(), Options{}, work, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wheel, err)
		}
	}
}
