package kerneltest

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm/image"
)

// Modules returns kernel modules and dependencies from the package of the image's kernel; busybox's depmod finds them.
// The cache keeps them, because unpacking the package takes nearly as long as booting the kernel.
func Modules(t TB, img *image.Image, names ...string) []cpio.Record {
	t.Helper()
	d, err := userdirs.Default(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(fmt.Append(nil, img.Packages, names))
	path := filepath.Join(d.Cache, "test-modules", hex.EncodeToString(key[:8])+".cpio")
	if kept, err := os.ReadFile(path); err == nil {
		records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(kept)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return records
	}
	records := moduleFiles(t, img, names)
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	if err := errors.Join(cpio.WriteRecords(w, records), cpio.WriteTrailer(w)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return records
}

func moduleFiles(t TB, img *image.Image, names []string) (records []cpio.Record) {
	t.Helper()
	dir := modulesOf(t, img)
	for name, data := range moduleClosure(t, dir, names) {
		records = append(records, cpio.StaticFile("lib/modules/"+img.KernelVer+"/"+name+".ko", string(data), 0o644))
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		t.Fatal(err)
	}
	return append(records, cpio.StaticFile("lib/modules/"+img.KernelVer+"/modules.builtin", string(builtin), 0o644))
}

func modulesOf(t TB, img *image.Image) string {
	t.Helper()
	at := slices.IndexFunc(img.Packages, func(p string) bool { return strings.HasPrefix(p, "linux-image-") })
	if at < 0 {
		t.Fatalf("no kernel among the packages of image %s", img.Key)
	}
	work := t.TempDir()
	for _, argv := range [][]string{
		{"apt-get", "--quiet", "-o", "APT::Sandbox::User=", "download", img.Packages[at]},
		{"sh", "-c", "dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x --wildcards '*/lib/modules/*'"},
	} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
	for _, lib := range []string{"lib/modules", "usr/lib/modules"} {
		dir := filepath.Join(work, lib, img.KernelVer)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	t.Fatalf("package %s has no modules of %s", img.Packages[at], img.KernelVer)
	return ""
}

func moduleClosure(t TB, dir string, wanted []string) map[string][]byte {
	t.Helper()
	paths := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") {
			paths[moduleName(d.Name())] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for len(wanted) > 0 {
		name := wanted[0]
		wanted = wanted[1:]
		if found[name] != nil || paths[name] == "" { // built in
			continue
		}
		if !strings.HasSuffix(paths[name], ".ko") {
			t.Fatalf("%s is compressed: busybox loads only plain modules", paths[name])
		}
		data, err := os.ReadFile(paths[name])
		if err != nil {
			t.Fatal(err)
		}
		found[name] = data
		depends, err := dependencies(data)
		if err != nil {
			t.Fatalf("%s: %v", paths[name], err)
		}
		wanted = append(wanted, depends...)
	}
	return found
}

func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var out []string
	for record := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(record), "depends="); ok {
			for name := range strings.SplitSeq(list, ",") {
				if name != "" {
					out = append(out, strings.ReplaceAll(name, "-", "_"))
				}
			}
		}
	}
	return out, nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(file, ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
