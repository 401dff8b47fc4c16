package image

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestNodesOfArm64(t *testing.T) {
	const archless, arm = "", "arm64"
	all := KernelArgs
	if err := eachFile(own("node"), func(_ string, content []byte, _ int64) error {
		all += string(content)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := Recipe{Arch: arm}.inArch(all)
	for word, want := range map[string]string{"console=ttyS0": "console=ttyAMA0", "ttyS0::respawn": "ttyAMA0::respawn",
		`!= "0 0x0"`: `!= "63 0x0"`, " no_timer_check": " cma=0"} {
		if !strings.Contains(all, word) || strings.Contains(got, word) || !strings.Contains(got, want) {
			t.Errorf("%s does not become %s", word, want)
		}
	}
	if (Recipe{Arch: archless}).inArch(all) != all {
		t.Error("nodes of x86 have other files")
	}
	old, err := json.Marshal(qemuRecipe("amd64", "amd64"))
	if err != nil || runtime.GOARCH == "amd64" && strings.Contains(string(old), "arch") {
		t.Errorf("the key of images that were made before has changed: %s, %v", old, err)
	}
}

func TestAKernelOfTheUsersOwnIsFoundWithItsModules(t *testing.T) {
	const version = "6.1.0-test"
	for name, tt := range map[string]struct {
		kernel, modules string // "" in modules means none
		wantErr         string
	}{
		"an unpacked package":                 {"boot/vmlinuz-" + version, "lib/modules/" + version, ""},
		"an unpacked package of Debian 13":    {"boot/vmlinuz-" + version, "usr/lib/modules/" + version, ""},
		"kernel and modules in one directory": {"vmlinuz-" + version, "lib/modules/" + version, ""},
		"modules of another version": {"boot/vmlinuz-" + version, "lib/modules/6.2.0-test",
			"no modules of it in "},
		"no modules":                             {"boot/vmlinuz-" + version, "", "no modules of it in "},
		"a name that does not say which version": {"boot/bzImage", "lib/modules/" + version, "name it vmlinuz-VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{tt.kernel: "kernel"}
			if tt.modules != "" {
				files[tt.modules+"/modules.builtin"] = ""
			}
			writeTree(t, root, files)
			kernel := filepath.Join(root, tt.kernel)
			gotKernel, gotModules, err := findKernel(t.TempDir(), Recipe{Kernel: kernel, KernelDigest: "x"})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, want %q", err, tt.wantErr)
				}
				return
			}
			if want := filepath.Join(root, tt.modules); err != nil || gotKernel != kernel || gotModules != want {
				t.Errorf("findKernel = %q, %q, %v; want %q, %q", gotKernel, gotModules, err, kernel, want)
			}
		})
	}
}
