package image

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"
)

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: install Debian's qemu-utils", err)
		}
		t.Skip("qemu-img is not installed")
	}
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v: %s", args, err, out)
	}
}

// Images that cannot be copied on write, or that could change below a node, are refused with advice.
func TestUsersImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	qemuImg(t, "create", "-q", "-f", "qcow2", at("good.qcow2"), "3G")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "compat=0.10", at("old.qcow2"), "1G")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", at("good.qcow2"), at("backed.qcow2"))
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+at("data")+",data_file_raw=on", at("apart.qcow2"),
		"1M")
	qemuImg(t, "create", "-q", "-f", "raw", at("disk.raw"), "1M")
	for name, content := range map[string]string{"empty.qcow2": "", "short.qcow2": "QFI\xfb",
		"text.qcow2": "QFI!text"} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(at("good.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func([]byte){
		"json.qcow2": func(b []byte) { // of any protocol
			binary.BigEndian.PutUint64(b[8:], 512)
			binary.BigEndian.PutUint32(b[16:], uint32(copy(b[512:], `json:{"driver":"nbd","host":"192.0.2.1"}`)))
		},
		"secret.qcow2": func(b []byte) { binary.BigEndian.PutUint32(b[32:], 2) },
		"data.qcow2":   func(b []byte) { binary.BigEndian.PutUint64(b[72:], 1<<2|1<<3) },
		"huge.qcow2":   func(b []byte) { binary.BigEndian.PutUint64(b[24:], 1<<63) },
		"nosize.qcow2": func(b []byte) { binary.BigEndian.PutUint64(b[24:], 0) },
		"v4.qcow2":     func(b []byte) { binary.BigEndian.PutUint32(b[4:], 4) },
	} {
		b := bytes.Clone(good)
		edit(b)
		if err := os.WriteFile(at(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"good.qcow2": "", "old.qcow2": "",
		"none.qcow2":   "no such file; a path that is not absolute begins at",
		".":            "not a regular file",
		"empty.qcow2":  "not a qcow2 image; qemu-img convert",
		"short.qcow2":  "not a qcow2 image",
		"text.qcow2":   "not a qcow2 image",
		"disk.raw":     "not a qcow2 image",
		"backed.qcow2": "it lies on another image (qemu-img info names it)",
		"apart.qcow2":  "its data is in another file",
		"secret.qcow2": "it is encrypted",
		"json.qcow2":   "it lies on another image",
		"data.qcow2":   "its data is in another file",
		"huge.qcow2":   "its disk has 4096 PiB: want 1 byte to 2.00 TiB",
		"nosize.qcow2": "its disk has 0 B",
		"v4.qcow2":     "not a qcow2 image",
	} {
		r, _, err := Own(at(name)).recipe(t.Context(), Options{})
		switch {
		case want == "" && (err != nil || r.Disk != at(name)):
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), at(name)+": "+want)):
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, size, err := examine(at("good.qcow2")); err != nil || size != 3<<30 {
		t.Errorf("the disk has %d bytes, %v", size, err)
	}
	before, _, _ := Own(at("good.qcow2")).recipe(t.Context(), Options{})
	qemuImg(t, "resize", "-q", at("good.qcow2"), "4G")
	after, _, err := Own(at("good.qcow2")).recipe(t.Context(), Options{})
	if err != nil || after.Key() == before.Key() {
		t.Errorf("a changed image has the key of the one before: %v", err)
	}
}

func TestTheSeed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, seedName)
	var files bytes.Buffer
	if err := writeTar(&files, eachOwnFile); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filesName), files.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := map[string][]byte{"user-data": []byte("#cloud-config\n")}
	if err := (&Image{Dir: dir}).WriteSeed(path, wanted); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	iso, err := iso9660.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	if label, err := iso.Label(); err != nil || label != "cidata" {
		t.Errorf("the label is %q, %v", label, err)
	}
	root, err := iso.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]*iso9660.File)
	for _, c := range children {
		found[c.Name()] = c
	}
	for _, name := range []string{"meta-data", "user-data", "network-config", "install", "files.tar"} {
		if found[name] == nil {
			t.Fatalf("no %s among %d files", name, len(found))
		}
	}
	if b, err := io.ReadAll(found["user-data"].Reader()); err != nil ||
		!bytes.HasPrefix(b, []byte("#cloud-config\nbootcmd:\n")) || !bytes.Contains(b, []byte("/install; umount ")) {
		t.Errorf("user-data is %q, %v", b, err)
	}
	var names []string
	for r := tar.NewReader(found["files.tar"].Reader()); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	for _, want := range []string{"usr/sbin/rackless-node", "usr/sbin/rackless-facts", "usr/lib/rackless/sshd",
		"usr/lib/rackless/own", "etc/systemd/system/rackless-node.service"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if slices.Contains(names, "etc/fstab") || slices.Contains(names, "mnt/customize.sh") {
		t.Errorf("files of a built image are among %q", names)
	}
}
