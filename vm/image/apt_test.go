package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func bookworm() Recipe {
	return hostRecipe("bookworm", []string{"bookworm", "bookworm-backports", "bookworm-security"})
}

func TestRecipeKeyOfHosts(t *testing.T) {
	key := bookworm().Key()
	if again := bookworm().Key(); again != key || len(key) != 16 {
		t.Errorf("keys %s and %s of the same recipe", key, again)
	}
	for name, change := range map[string]func(*Recipe){
		"format":                    func(r *Recipe) { r.Format++ },
		"release":                   func(r *Recipe) { r.Release = "trixie" },
		"suites":                    func(r *Recipe) { r.Suites = r.Suites[:1] },
		"packages":                  func(r *Recipe) { r.Packages = r.Packages[1:] },
		"packages of the backports": func(r *Recipe) { r.Backported = nil },
		"size of the disk":          func(r *Recipe) { r.DiskMiB++ },
		"our own files":             func(r *Recipe) { r.FilesDigest = "00" },
		"a package moved to another": func(r *Recipe) {
			r.Packages, r.Backported = r.Packages[1:], append(r.Backported, r.Packages[0])
		},
	} {
		r := bookworm()
		change(&r)
		if r.Key() == key {
			t.Errorf("%s: the key does not change", name)
		}
	}
}

func TestFilesDigest(t *testing.T) {
	base := fstest.MapFS{"files/a": {Data: []byte("1")}, "files/b": {Data: []byte("2")}}
	digest := filesDigest(base)
	for name, tree := range map[string]fstest.MapFS{
		"another content":               {"files/a": {Data: []byte("1")}, "files/b": {Data: []byte("3")}},
		"another name":                  {"files/a": {Data: []byte("1")}, "files/c": {Data: []byte("2")}},
		"one file less":                 {"files/a": {Data: []byte("1")}},
		"a byte that moved to the next": {"files/a": {Data: nil}, "files/b": {Data: []byte("12")}},
	} {
		if filesDigest(tree) == digest {
			t.Errorf("%s: the digest does not change", name)
		}
	}
}

func TestPackagesAreSorted(t *testing.T) {
	if p := bookworm().Packages; !slices.IsSorted(p) || len(slices.Compact(slices.Clone(p))) != len(p) {
		t.Errorf("the packages are not sorted, or one is there twice: %q", p)
	}
}

// Output of apt-get indextargets on Debian 12; mirror names changed.
const targets = `http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm contrib
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm-updates main
http://mirror.example/debian-security/ bookworm-security main
cdrom://[Debian]/ bookworm main
http://mirror.example/debian/ trixie main
http://mirror.example/debian/ bookworm-backports main
http://mirror.example/debian/ bookworm-proposed-updates main
`

func TestSourcesAreThoseOfTheRelease(t *testing.T) {
	got, err := parseSources(targets, "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range got {
		lines = append(lines, s.line("deb", "main"))
	}
	signed := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
	want := []string{
		signed + "http://mirror.example/debian/ bookworm main\n",
		signed + "http://mirror.example/debian/ bookworm-updates main\n",
		signed + "http://mirror.example/debian-security/ bookworm-security main\n",
		signed + "http://mirror.example/debian/ bookworm-backports main\n",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestSourcesThatCannotServe(t *testing.T) {
	for _, tt := range []struct{ name, targets, release, want string }{
		{"another system or a derivative of Debian, whose packages are others", targets, "",
			"use Debian 12 or newer, in a virtual machine or a container"},
		{"apt without lists", "", "bookworm", "apt has no lists of Debian bookworm, component main: add it to apt's " +
			"sources and run: apt-get update"},
		{"updates without their release", "http://m/ bookworm-updates main\n", "bookworm",
			"apt has no lists of Debian bookworm"},
	} {
		if got, err := parseSources(tt.targets, tt.release); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, want an error with %q", tt.name, got, err, tt.want)
		}
	}
}

func TestAptOptionsSayHowMirrorsAreReached(t *testing.T) {
	dump := `Acquire::AllowInsecureRepositories "0";
Acquire::http::Proxy "http://proxy.example:3128/";
Acquire::https::mirror.example::Verify-Peer "false";
Acquire::IndexTargets::deb::Packages::MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
Acquire::RetriesX "3";
Acquire::GzipIndexes "true";
`
	want := []string{
		`Acquire::http::Proxy "http://proxy.example:3128/";`, `Acquire::https::mirror.example::Verify-Peer "false";`,
		`Acquire::Check-Valid-Until "false";`, `Acquire::Retries "3";`,
	}
	if diff := cmp.Diff(want, aptOptions(dump)); diff != "" {
		t.Error(diff)
	}
}

func TestPreferencesTakeQEMUFromBackportsWhereThereAreAny(t *testing.T) {
	want := "Package: src:qemu src:seabios\nPin: release n=bookworm-backports\nPin-Priority: 500\n"
	if got := preferences(bookworm()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := preferences(hostRecipe("trixie", []string{"trixie", "bookworm-backports"})); got != "" {
		t.Errorf("without backports of the release: %q", got)
	}
}

func TestInstallArgs(t *testing.T) {
	r := Recipe{Packages: []string{"udev", "kmod"}}
	args := installArgs(inputs{recipe: r, options: []string{`Acquire::http::Proxy "http://p/";`}}, "unshare",
		[]string{diskName})
	for _, want := range []string{"--mode=unshare", "--include=udev,kmod",
		`--aptopt=Acquire::http::Proxy "http://p/";`} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	files, disk := slices.Index(args, "--customize-hook=tar-in files.tar /"),
		slices.Index(args, `--customize-hook=chroot "$1" /mnt/customize.sh`)
	if out := slices.Index(args, "--customize-hook=download /mnt/out/disk.qcow2 disk.qcow2"); files < 0 ||
		disk < files || out < disk {
		t.Errorf("the order of the hooks is %d, %d, %d in %q", files, disk, out, args)
	}
}

func TestOwnFilesAreRootsAndScriptsCanRun(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(writeTar(&first, eachHostFile), writeTar(&second, eachHostFile)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files give other bytes")
	}
	modes := make(map[string]int64)
	for tr := tar.NewReader(&first); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s carries an owner or a time", h.Name)
		}
		modes[h.Name] = h.Mode
	}
	for name, want := range map[string]int64{
		"mnt/customize.sh": 0o755, "etc/initramfs-tools/hooks/zz-rackless": 0o755, "etc/default/grub": 0o644,
		"etc/fstab": 0o644,
	} {
		if got, ok := modes[name]; !ok || got != want {
			t.Errorf("%s: mode %o, %v, want %o", name, got, ok, want)
		}
	}
}

func TestBootArgs(t *testing.T) {
	args := strings.Join(sealArgs("/a,b", "/d"), " ")
	if !strings.Contains(args, "file.filename=/a,,b/disk.qcow2,") {
		t.Errorf("a comma in a path ends it: %s", args)
	}
	if !strings.Contains(args, "-kernel /a,b/vmlinuz -initrd /a,b/initrd") {
		t.Errorf("without the kernel: %s", args)
	}
}
