package image

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesOfFullImages(t *testing.T) {
	for name, want := range map[string]string{"debian-12": "debian-12", "debian-13+slurm+mpi": "debian-13+mpi+slurm",
		"debian-12+mpi+mpi": "debian-12+mpi"} {
		if k := Full(name); k.name != want || k.label != "the image "+want {
			t.Errorf("%s is %q, %q", name, k.name, k.label)
		}
		if !slices.Contains(FullNames(), want) {
			t.Errorf("%s is not in %q", want, FullNames())
		}
	}
	if k, err := Named("builtin", "amd64"); k.name != Node.name || err != nil {
		t.Errorf("builtin is %v, %v", k, err)
	}
	for _, name := range []string{"ubuntu", "debian-12+x"} {
		if _, err := Named(name, "amd64"); err == nil || !strings.Contains(err.Error(), "debian-12+mpi+slurm") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := Full(name).recipe(t.Context(), Options{}); err == nil {
			t.Errorf("%s has a recipe", name)
		}
	}
}

func TestRecipesOfFullImages(t *testing.T) {
	recipe := func(name string) Recipe {
		r, _, err := Full(name).recipe(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	both, plain := recipe("debian-12+mpi+slurm"), recipe("debian-12")
	if diff := cmp.Diff(both, recipe("debian-12+slurm+mpi")); diff != "" {
		t.Error(diff)
	}
	if both.Key() == plain.Key() || plain.Key() == recipe("debian-13").Key() {
		t.Error("two images have one key")
	}
	if both.FilesDigest == plain.FilesDigest || recipe("debian-12+mpi").FilesDigest != plain.FilesDigest {
		t.Error("the files of Slurm are not those of the images with Slurm alone")
	}
	for _, p := range plain.Packages {
		if !slices.Contains(both.Packages, p) {
			t.Errorf("with package sets there is no %s", p)
		}
	}
	if want := []string{"trixie", "trixie-updates", "trixie-security"}; !slices.Equal(
		recipe("debian-13").Suites, want) {
		t.Errorf("suites are %q", recipe("debian-13").Suites)
	}
}

func TestFilesOfFullNodes(t *testing.T) {
	modes := make(map[string]int64)
	err := eachFullFile(func(name string, content []byte, mode int64) error {
		if _, twice := modes[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		modes[name] = mode
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"usr/sbin/rackless-node", "usr/sbin/rackless-facts", "usr/lib/rackless/devices",
		"usr/lib/rackless/again", "usr/lib/rackless/sshd", "mnt/customize.sh"} {
		if modes[script] != 0o755 {
			t.Errorf("%s has mode %o", script, modes[script])
		}
	}
	for name := range modes {
		if strings.Contains(name, "grub") || strings.HasPrefix(name, "sbin/") || name == "etc/environment" {
			t.Errorf("%s is of another image", name)
		}
	}
	if modes["etc/initramfs-tools/modules"] == 0 || modes["etc/systemd/system/rackless-node.service"] == 0 {
		t.Errorf("files are missing in %v", modes)
	}
}
