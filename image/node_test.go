package image

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAKernelOfTheUsersOwnIsFoundWithItsModules(t *testing.T) {
	const version = "6.1.0-test"
	for name, tt := range map[string]struct {
		kernel, modules string // below the directory; modules "" means that there are none
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
