// Package distro detects a machine's Linux distribution and its package manager.
package distro

import (
	"cmp"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// A System is the content of os-release(5). The zero value means unknown.
type System struct {
	ID       string   // "debian", "fedora", "opensuse-leap"
	Like     []string // IDs of the systems it derives from, nearest first
	Codename string   // such as "bookworm"; often empty
	Name     string   // for people
}

// Of returns the system with the given root. Without a readable os-release, the ID is empty.
func Of(root fs.FS) System {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		if b, err := fs.ReadFile(root, name); err == nil {
			return Parse(string(b))
		}
	}
	return System{Name: "an unknown system"}
}

// Parse reads an os-release file.
func Parse(osRelease string) System {
	values := make(map[string]string)
	for line := range strings.Lines(osRelease) {
		if key, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = unquote(v)
		}
	}
	return System{ID: values["ID"], Like: strings.Fields(values["ID_LIKE"]), Codename: values["VERSION_CODENAME"],
		Name: cmp.Or(values["PRETTY_NAME"], values["NAME"], values["ID"], "an unknown system")}
}

func unquote(v string) string {
	if s, err := strconv.Unquote(v); err == nil && v[0] == '"' {
		return s
	}
	return strings.Trim(v, `"'`)
}

// Debian reports whether the system is Debian itself.
func (s System) Debian() bool { return s.ID == "debian" }

// A manager installs packages. names maps Debian's package names to the system's if they differ; "" means none.
type manager struct {
	command string
	names   map[string]string
}

var managers = map[string]manager{
	"debian": {"apt-get install --no-install-recommends", nil},
	"fedora": {"dnf install", map[string]string{"libvirt-daemon-system": "libvirt-daemon-kvm",
		"qemu-system-x86": "qemu-system-x86-core", "qemu-system-arm": "qemu-system-aarch64-core"}},
	// Its QEMU supports only KVM, and is not in PATH.
	"rhel": {"dnf install", map[string]string{"libvirt-daemon-system": "libvirt-daemon-kvm", "qemu-system-x86": "",
		"qemu-system-arm": ""}},
	"arch": {"pacman -S", map[string]string{"libvirt-daemon-system": "libvirt",
		"qemu-system-arm": "qemu-system-aarch64"}},
	"suse": {"zypper install", map[string]string{"libvirt-daemon-system": "libvirt-daemon-qemu",
		"qemu-system-x86": "qemu-x86", "qemu-system-arm": "qemu-arm"}},
	"alpine": {"apk add", map[string]string{"libvirt-daemon-system": "libvirt-daemon",
		"qemu-system-x86": "qemu-system-x86_64", "qemu-system-arm": "qemu-system-aarch64"}},
}

// Install returns the command that installs packages, given by their Debian names, or "" if one is unknown.
func (s System) Install(debian ...string) string {
	for _, id := range append([]string{s.ID}, s.Like...) {
		m, ok := managers[id]
		if !ok {
			continue
		}
		words := []string{m.command}
		for _, name := range debian {
			if other, ok := m.names[name]; ok {
				name = other
			}
			words = append(words, name)
		}
		if slices.Contains(words, "") {
			return ""
		}
		return strings.Join(words, " ")
	}
	return ""
}
