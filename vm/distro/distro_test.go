package distro

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

func TestEachSystemHasItsCommands(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]struct{ name, qemu, libvirt string }{
		"alpine3.23": {"Alpine Linux v3.23", "apk add qemu-system-x86_64", "apk add libvirt-daemon"},
		"arch":       {"Arch Linux", "pacman -S qemu-system-x86", "pacman -S libvirt"},
		"debian13": {"Debian GNU/Linux 13 (trixie)", "apt-get install --no-install-recommends qemu-system-x86",
			"apt-get install --no-install-recommends libvirt-daemon-system"},
		"fedora42": {"Fedora Linux 42 (Forty Two)", "dnf install qemu-system-x86-core",
			"dnf install libvirt-daemon-kvm"},
		"opensuse15": {"openSUSE Leap 15.1", "zypper install qemu-x86", "zypper install libvirt-daemon-qemu"},
		"rocky9":     {"Rocky Linux 9.3 (Blue Onyx)", "", "dnf install libvirt-daemon-kvm"},
		"ubuntu24": {"Ubuntu 24.04.3 LTS", "apt-get install --no-install-recommends qemu-system-x86",
			"apt-get install --no-install-recommends libvirt-daemon-system"},
	} {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		s := Of(fstest.MapFS{"usr/lib/os-release": {Data: b}})
		if s.Name != want.name || s.Debian() != (file == "debian13") {
			t.Errorf("%s: %+v", file, s)
		}
		if got := s.Install("qemu-system-x86"); got != want.qemu {
			t.Errorf("%s: QEMU by %q, want %q", file, got, want.qemu)
		}
		if got := s.Install("libvirt-daemon-system"); got != want.libvirt {
			t.Errorf("%s: libvirt by %q, want %q", file, got, want.libvirt)
		}
	}
}

func TestWhatOsReleaseMaySay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]System{
		"": {Name: "an unknown system"},
		"NAME=\"A \\\"B\\\"\"\nID='x'\nID_LIKE=\"y  z\"\nVERSION_CODENAME=\"\"\n": {
			ID: "x", Like: []string{"y", "z"}, Name: `A "B"`},
		"ID=\"debian\"\nVERSION_CODENAME=\"trixie\"": {ID: "debian", Codename: "trixie", Name: "debian"},
		"# ID=no\nno line\n=\n":                      {Name: "an unknown system"},
	} {
		got := Parse(text)
		if !slices.Equal(got.Like, want.Like) || got.ID != want.ID || got.Codename != want.Codename ||
			got.Name != want.Name {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if c := got.Install("qemu-system-x86"); (c != "") != got.Debian() {
			t.Errorf("%q: %q", text, c)
		}
	}
	if s := Of(fstest.MapFS{}); s.ID != "" || s.Install("a") != "" {
		t.Errorf("no file: %+v", s)
	}
}
