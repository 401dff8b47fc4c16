package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// labLimit is from the downloaded files to a measured lab.
const labLimit = 3 * time.Minute

func measured(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, typed, ok := strings.Cut(string(page), "```sh\n")
	typed, _, end := strings.Cut(typed, "```\n")
	if !ok || !end || !strings.HasPrefix(typed, "tar ") {
		t.Fatalf("docs/install.md has no lines to type: %q", typed)
	}
	return `set -e
cd /home/user
export HOME=/home/user
for c in git make qemu-system-x86_64; do
	if command -v $c; then echo "$c is here, and is not to be needed"; exit 9; fi
done
test "$(id -u)" != 0
set -x
` + typed
}

// foreignRoots are systems on which the user is not root, and nothing can be installed.
var foreignRoots = map[string]func(t *testing.T, dir string){
	"busybox and nothing else": func(t *testing.T, dir string) {
		must(t, "sh", "-c", `mkdir "$0/bin" && cp "$1"/bin/busybox "$0/bin" || cp "$1"/usr/bin/busybox "$0/bin"`, dir,
			unpacked(t, "busybox-static"))
		must(t, "chroot", dir, "/bin/busybox", "--install", "-s", "/bin")
	},
	"Ubuntu 24.04": func(t *testing.T, dir string) {
		keyring := filepath.Join(unpacked(t, "ubuntu-keyring"), "usr/share/keyrings/ubuntu-archive-keyring.gpg")
		must(t, "mmdebstrap", "--variant=minbase", "--keyring="+keyring, "noble", dir,
			"http://archive.ubuntu.com/ubuntu")
	},
	"Debian 13 without apt": func(t *testing.T, dir string) {
		must(t, "mmdebstrap", "--variant=minbase", "trixie", dir)
		must(t, "sh", "-c", `cd "$0/usr/bin" && rm -f apt* dpkg*`, dir)
	},
}

// unpacked does not install the package.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, "sh", "-c", `cd "$0" && apt-get -q -o APT::Sandbox::User= download "$1" && dpkg-deb -x *.deb .`, dir, name)
	return dir
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// From the files of the release to a measured lab, without any of rackless's dependencies.
func TestALabOnForeignSystems(t *testing.T) {
	if !*whole {
		t.Skip("makes systems and starts labs in them: run with -whole")
	}
	r := testRelease(t)
	typed := measured(t)
	archive, err := r.offline(runtime.GOARCH, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, populate := range foreignRoots {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			populate(t, root)
			must(t, "install", "-d", "-m", "1777", root+"/tmp", root+"/proc", root+"/dev")
			must(t, "install", "-d", "-o", "1000", "-g", "1000", root+"/home/user")
			must(t, "cp", archive, root+"/home/user")
			must(t, "chmod", "755", root)
			ctx, cancel := context.WithTimeoutCause(t.Context(), labLimit, errors.New("longer than people wait"))
			defer cancel()
			began := time.Now()
			// All processes and mounts of the namespaces end with this command.
			cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
				`mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
				exec chroot --userspec=1000:1000 "$0" /bin/sh -c "$1"`, root, typed)
			cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v, %v\n%s", err, context.Cause(ctx), out)
			}
			t.Logf("from the files to a measured lab in %v\n%s", time.Since(began).Round(time.Second), out)
			if !strings.Contains(string(out), "ib_write_bw") {
				t.Error("nothing was measured")
			}
		})
	}
}
