package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/distro"
	"github.com/rackless/rackless/vm/image"
)

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func found(t *testing.T, d *doctor, id string) finding.Finding {
	t.Helper()
	for _, i := range d.items {
		if i.ID == id {
			withFix(t, id, i)
			return i
		}
	}
	t.Fatalf("no check %s in %v", id, d.items)
	return finding.Finding{}
}

func withFix(t *testing.T, what string, v finding.Finding) finding.Finding {
	t.Helper()
	if (v.Status == finding.OK) != (v.Fix == "") {
		t.Errorf("%s is %s, and its fix is %q", what, v.Status, v.Fix)
	}
	return v
}

func TestDoctorOnPackages(t *testing.T) {
	all := func(string) (string, error) { return "/usr/bin/x", nil }
	none := func(string) (string, error) { return "", errors.New("not found") }
	lists := files("var/lib/apt/lists/deb.example_main_Packages.lz4", "")
	mirror := files("var/lib/apt/lists/mirror.example_debian_dists_trixie_main_binary-amd64_Packages", "")
	tests := []struct {
		name       string
		system     string
		look       func(string) (string, error)
		root       fstest.MapFS
		image      *image.Image
		apt, lists finding.Status
	}{
		{"all is there", "debian", all, lists, nil, finding.OK, finding.OK},
		{"nothing is there, and no image", "fedora", none, files(), nil, finding.Missing, finding.Missing},
		{"nothing is there, but an image", "fedora", none, files(), &image.Image{}, finding.Warn, finding.Warn},
		{"apt-get update was never run", "debian", all, files(), nil, finding.OK, finding.Missing},
		{"packages of another system", "ubuntu", all, lists, nil, finding.OK, finding.Missing},
		{"a mirror of Debian on another system", "ubuntu", all, mirror, nil, finding.OK, finding.OK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &doctor{look: tt.look, root: tt.root, image: tt.image, system: distro.System{ID: tt.system}}
			if got := withFix(t, "apt", d.checkPackages()).Status; got != tt.apt {
				t.Errorf("apt: got %s, want %s", got, tt.apt)
			}
			if got := withFix(t, "apt-lists", d.checkLists()).Status; got != tt.lists {
				t.Errorf("lists: got %s, want %s", got, tt.lists)
			}
		})
	}
}

// On Debian there is nothing to fix.
func TestDoctorWithoutQEMU(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	there := func(string) (string, error) { return "/usr/bin/apt-get", nil }
	none := func(string) (string, error) { return "", errors.New("not found") }
	for _, tt := range []struct {
		osRelease string
		look      func(string) (string, error)
		want      finding.Status
		fix       string
	}{
		{"ID=debian\n", there, finding.OK, ""},
		{"ID=debian\n", none, finding.Missing, "apt-get install --no-install-recommends qemu-system-x86, or import " +
			"the image file of a release: rackless image import FILE --digest sha256:..."},
		{"ID=fedora\n", none, finding.Missing, "dnf install qemu-system-x86-core, or import"},
		{"ID=manjaro\nID_LIKE=arch\n", none, finding.Missing, "pacman -S qemu-system-x86, or import"},
		{"ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n", none, finding.Missing, "zypper install qemu-x86, or import"},
		{"ID=alpine\n", none, finding.Missing, "apk add qemu-system-x86_64, or import"},
		{"ID=x\n", none, finding.Missing, "install QEMU 8.0 or newer, or import"},
	} {
		d := &doctor{dirs: rack.Dirs{Cache: t.TempDir()}, system: distro.Parse(tt.osRelease), look: tt.look}
		if f := withFix(t, "qemu", d.checkQEMU(t.Context())); f.Status != tt.want || !strings.HasPrefix(f.Fix, tt.fix) {
			t.Errorf("%s: %+v", tt.osRelease, f)
		}
		f := withFix(t, "connectx", d.checkConnectX(t.Context()))
		if want := map[bool]finding.Status{true: finding.OK, false: finding.Warn}[tt.fix == ""]; f.Status != want {
			t.Errorf("%s: %+v, want %s", tt.osRelease, f, want)
		}
	}
}

func TestDoctorOnKVM(t *testing.T) {
	d := &doctor{root: files()}
	v := withFix(t, "kvm", d.checkKVM(t.Context()))
	if v.Status != finding.Warn || !strings.Contains(v.Evidence, "no /dev/kvm; nodes are emulated") {
		t.Errorf("without the device: %+v", v)
	}
	d = &doctor{root: files("dev/kvm", "")}
	v = withFix(t, "kvm", d.checkKVM(t.Context()))
	if v.Status != finding.Warn || !strings.Contains(v.Fix, "rackless image build") {
		t.Errorf("without an image: %+v", v)
	}
}

func TestDoctorOnMemory(t *testing.T) {
	d := &doctor{root: files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "104857600\n",
		"sys/fs/cgroup/a/memory.current", "0\n")}
	d.add("memory", "memory", d.checkMemory())
	if i := found(t, d, "memory"); i.Status != finding.Missing || !strings.Contains(i.Evidence,
		"100 MiB available by cgroup /sys/fs/cgroup/a, room for 0 default nodes") {
		t.Errorf("a control group of 100 MiB: %+v", i)
	}
	if part(d.items).Ready {
		t.Error("ready, although memory is lacking")
	}
}

func TestDoctorOnDirectories(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	short := "/tmp/rl-doctor-test" // does not exist
	d := &doctor{dirs: rack.Dirs{Run: short, Cache: filepath.Join(dir, "a/b"), Data: filepath.Join(plain, "x")},
		root: files()}
	d.checkDirs()
	for id, want := range map[string]finding.Status{"run": finding.OK, "cache": finding.OK, "data": finding.Warn,
		"run-path": finding.OK} {
		if got := found(t, d, id); got.Status != want {
			t.Errorf("%s: got %+v, want %s", id, got, want)
		}
	}
	for path, want := range map[string]finding.Status{
		"/" + strings.Repeat("a", 49): finding.OK, "/" + strings.Repeat("a", 60): finding.Warn,
		"/" + strings.Repeat("a", 95): finding.Missing, plain: finding.Missing,
	} {
		d := &doctor{dirs: rack.Dirs{Run: path, Cache: dir, Data: dir}, root: files()}
		if got := withFix(t, "run-path", d.checkSockets()); got.Status != want {
			t.Errorf("path of %d bytes: got %+v, want %s", len(path), got, want)
		}
	}
	for _, made := range []string{short, filepath.Join(dir, "a")} {
		if _, err := os.Stat(made); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("doctor made %s", made)
		}
	}
}

func TestDoctorOnLimits(t *testing.T) {
	d := &doctor{root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/pids.max", "100\n")}
	d.checkLimits()
	if i := found(t, d, "cgroup-pids"); i.Status != finding.Warn || !strings.HasPrefix(i.Evidence,
		"100; a lab of 64 nodes takes up to ") {
		t.Errorf("got %+v", i)
	}
	if v := enough(noLimitAtAll, 5, ""); v.Status != finding.OK || v.Evidence != "no limit, enough for 64 nodes" {
		t.Errorf("got %+v", v)
	}
}
