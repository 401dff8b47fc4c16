package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	whole  = flag.Bool("whole", false, "make the whole release twice, from two checkouts and with nothing cached")
	chroot = flag.String("deb-chroot", "", "install and remove the package of the release in this directory of a "+
		"Debian system, which is made with mmdebstrap")
)

func testRelease(t *testing.T) *release {
	return &release{goCommand: "go", source: "../..", out: t.TempDir(), version: "v1.2.3-rc.1",
		time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func testTree(t *testing.T, r *release) (binary string, tree []file) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tree, err = r.tree(binary, map[string][]byte{"rackless.1": []byte(".TH x\n"), "rackless-up.1": []byte(".TH y\n")},
		map[string][]byte{"bash": []byte("b"), "fish": []byte("f"), "zsh": []byte("z")})
	if err != nil {
		t.Fatal(err)
	}
	// The test binary is large.
	tree[slices.IndexFunc(tree, func(f file) bool { return f.path == binPath })].content = []byte("#!/bin/sh\n")
	return binary, tree
}

// Byte by byte, whenever they are made.
func TestReleasesAreEqual(t *testing.T) {
	t.Parallel()
	var made [2]map[string][]byte
	for i := range made {
		r := testRelease(t)
		binary, tree := testTree(t, r)
		names, err := r.packAll("arm64", binary, tree)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.checksums("SHA256SUMS", names); err != nil {
			t.Fatal(err)
		}
		made[i] = make(map[string][]byte)
		for _, name := range append(names, "SHA256SUMS") {
			if made[i][name], err = os.ReadFile(filepath.Join(r.out, name)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1100 * time.Millisecond) // so that files get other times, to the second
	}
	if len(made[0]) != 6 {
		t.Errorf("%d files", len(made[0]))
	}
	for name, b := range made[0] {
		if !bytes.Equal(b, made[1][name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// The readers of the formats find the same files in all of them.
func TestPackagesHoldTheTree(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	binary, tree := testTree(t, r)
	names, err := r.packAll("amd64", binary, tree)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range tree {
		want = append(want, f.path)
	}
	list := map[string][]string{".tar.gz": {"tar", "-tzf"}, ".apk": {"tar", "--ignore-zeros", "-tzf"},
		".deb": {"sh", "-c", `dpkg-deb --fsys-tarfile "$0" | tar -t`}, ".rpm": {"rpm", "-qpl"}}
	for _, name := range names {
		argv := list[filepath.Ext(name)]
		if strings.HasSuffix(name, ".tar.gz") {
			argv = list[".tar.gz"]
		}
		if argv == nil {
			continue
		}
		if _, err := exec.LookPath(argv[0]); err != nil {
			t.Logf("%s: not read: %v", name, err)
			continue
		}
		out, err := exec.Command(argv[0], append(argv[1:], filepath.Join(r.out, name))...).Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			line = strings.TrimLeft(strings.TrimSpace(line), "./")
			line = strings.TrimPrefix(line, strings.TrimSuffix(name, ".tar.gz")+"/")
			line = strings.TrimPrefix(line, "usr/")
			if line != "" && !strings.HasSuffix(line, "/") && !strings.HasPrefix(line, "PKGINFO") {
				got = append(got, line)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s holds\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestVersionsOfPackages(t *testing.T) {
	for version, want := range map[string]string{"v0.2.0": "0.2.0", "v1.0.0-rc.1": "1.0.0-rc.1",
		"v0.2.0-3-gdeadbee": "0.0.0~20260102030405", "deadbee": "0.0.0~20260102030405"} {
		r := &release{version: version, time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		if got := r.packageVersion(); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// Uninstalling removes nothing else.
func TestInstalledFilesAreRemoved(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	_, tree := testTree(t, r)
	dir := t.TempDir()
	if err := put(dir, "/usr/local", tree); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "usr/local/share/man/man1/racklessness.1.gz")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.uninstall(dir, "/usr/local"); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, path)
		}
		return err
	})
	if err != nil || !slices.Equal(left, []string{foreign}) {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Compiled twice from checkouts in different places, with nothing cached.
func TestWholeReleasesAreEqual(t *testing.T) {
	if !*whole {
		t.Skip("compiles rackless four times: run with -whole")
	}
	var sums [2][]byte
	for i := range sums {
		dir := t.TempDir()
		r := &release{goCommand: "go", source: filepath.Join(dir, "checkout"), out: filepath.Join(dir, "out"),
			version: "v1.2.3"}
		if out, err := exec.Command("git", "clone", "-q", "../..", r.source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Setenv("GOCACHE", filepath.Join(dir, "cache"))
		if err := r.describe(); err != nil {
			t.Fatal(err)
		}
		if err := r.make([]string{"amd64", "arm64"}); err != nil {
			t.Fatal(err)
		}
		var err error
		if sums[i], err = os.ReadFile(filepath.Join(r.out, "SHA256SUMS")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(sums[0], sums[1]) {
		t.Errorf("first\n%s\nsecond\n%s", sums[0], sums[1])
	}
}

// systemd accepts the unit.
func TestTheUnit(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	r := testRelease(t)
	_, tree := testTree(t, r)
	unit := tree[slices.IndexFunc(tree, func(f file) bool { return f.path == unitPath })]
	at := filepath.Join(dir, filepath.Base(unitPath))
	// systemd-analyze looks for the program of the unit.
	if err := os.WriteFile(at, bytes.Replace(unit.content, []byte("=rackless "), []byte("=/bin/true "), 1),
		0o644); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "systemd-analyze", "--user", "verify", "--man=no", at); out != "" {
		t.Errorf("systemd-analyze: %s", out)
	}
}

// It runs there, and is removed without a trace.
func TestDebInAFreshSystem(t *testing.T) {
	if *chroot == "" {
		t.Skip("makes a Debian system: run with -deb-chroot DIR")
	}
	r := testRelease(t)
	if err := r.make([]string{"amd64"}); err != nil {
		t.Fatal(err)
	}
	must(t, "mmdebstrap", "--variant=minbase", "bookworm", *chroot)
	defer os.RemoveAll(*chroot)
	must(t, "cp", filepath.Join(r.out, "rackless_1.2.3-rc.1_linux_amd64.deb"), filepath.Join(*chroot, "r.deb"))
	in := func(args ...string) string {
		t.Helper()
		return must(t, "chroot", append([]string{*chroot}, args...)...)
	}
	before := in("find", "/usr", "/etc", "-newermt", "1970-01-01", "-type", "f")
	in("dpkg", "-i", "/r.deb")
	if got := in("rackless", "version"); !strings.Contains(got, "v1.2.3-rc.1") {
		t.Errorf("it is %s", got)
	}
	in("rackless", "lab", "check", "/usr/share/doc/rackless/examples/pair.yaml")
	in("dpkg", "--purge", "rackless")
	if after := in("find", "/usr", "/etc", "-newermt", "1970-01-01", "-type", "f"); after != before {
		t.Errorf("left or lost:\n%s\nbefore:\n%s", after, before)
	}
}
