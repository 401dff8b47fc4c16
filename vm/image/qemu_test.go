package image

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMirrorsOfAnotherRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		targets string
		want    []source
	}{
		"Debian 12 with backports": {
			"http://m/debian/ bookworm-backports main\nhttp://m/debian/ bookworm main\n" +
				"http://m/debian/ bookworm contrib\n" +
				"http://m/security/ bookworm-security main\n",
			[]source{{"http://m/debian/", "trixie"}, {"http://m/debian/", "trixie-updates"},
				{"http://m/debian/", "trixie-backports"}, {"http://m/security/", "trixie-security"}},
		},
		"without security": {"cdrom:[x]/ trixie main\nhttp://m/debian/ trixie main\n",
			[]source{{"http://m/debian/", "trixie"}, {"http://m/debian/", "trixie-updates"},
				{"http://m/debian/", "trixie-backports"}}},
		"another system": {"", nil},
	} {
		got, err := qemuRecipe("amd64", "amd64").mirrors(tt.targets)
		if (err != nil) != (tt.want == nil) || cmp.Diff(tt.want, got, cmp.AllowUnexported(source{})) != "" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestGatherMakesOneDirectory(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	machine := map[string]string{"usr/bin/qemu-system-x86_64": "/bin/true"}
	for _, lib := range []string{"lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"} {
		machine[lib] = "/" + lib
	}
	for _, f := range qemuRecipe("amd64", "amd64").Keep {
		machine[f] = "/bin/true" // any content
	}
	for to, from := range machine {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, to), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	img := Image{Name: QEMU.name, Dir: out, Recipe: qemuRecipe("arm64", "amd64")}
	if got := img.Emulator().Path; filepath.Base(got) != "qemu-system-aarch64" || img.Arch() != "arm64" {
		t.Errorf("the QEMU for arm64 is %s, for %s", got, img.Arch())
	}
	img = Image{Dir: out}
	if err := img.copyProgram(root, out, qemuRecipe("amd64", "amd64")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(img.Others)
	want := []string{"bios-256k.bin", "kvmvapic.bin", "libc.so.6", "linuxboot_dma.bin", "pvh.bin", "qemu-system-x86_64",
		"qemu.elf"}
	if diff := cmp.Diff(want, img.files()); diff != "" {
		t.Error(diff)
	}
}

func TestUpstreamVersions(t *testing.T) {
	for version, want := range map[string]string{"1:10.1.2+ds-1~bpo13+1": "10.1.2", "10.0.2-2": "10.0.2",
		"10.1~rc1": "10.1", "7.2": "7.2", "": ""} {
		if got := upstream(version); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}
