package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/internal/imagecache"
)

// need fails the test where CI is set, and skips it elsewhere, if a program is missing.
func need(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: apt-get install %s", program, debian)
		}
		t.Skipf("%s is missing: apt-get install %s", program, debian)
	}
}

// fakeBuild commits an image with a disk of a few bytes, and counts.
func fakeBuild(n *int) func(context.Context, Options, inputs) (*Image, error) {
	return func(ctx context.Context, o Options, in inputs) (*Image, error) {
		*n++
		e := imagecache.At(o.Cache, in.recipe.Key())
		img := &Image{Name: hostName, Key: in.recipe.Key(), Disk: diskName, Recipe: in.recipe}
		err := errors.Join(os.Mkdir(e.WorkDir(), 0o700), os.WriteFile(filepath.Join(e.WorkDir(), diskName),
			[]byte("disk"), 0o644),
			e.Commit(ctx, e.WorkDir(), img, img.Disk))
		img.Dir = e.Dir()
		return img, err
	}
}

func TestEnsureBuildsOnceAndAgainWhatWasDamaged(t *testing.T) {
	need(t, "apt-get", "apt")
	cache, n := t.TempDir(), 0
	var notes []string
	o := Options{Cache: cache, build: fakeBuild(&n), Progress: func(s string) { notes = append(notes, s) }}
	first, err := Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Ensure(t.Context(), o)
	if err != nil || n != 1 || len(notes) != 0 {
		t.Fatalf("a second time: %v, %d builds, notes %q", err, n, notes)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("found is not what was built: %s", diff)
	}
	if err := os.Truncate(first.DiskPath(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), o); err != nil || n != 2 {
		t.Errorf("after damage: %v, %d builds, want 2", err, n)
	}
	if len(notes) != 1 || !strings.Contains(notes[0],
		"is damaged (damaged: disk.qcow2 is not what was built): building it again") {
		t.Errorf("notes %q", notes)
	}
}

func TestImagesOfHostsAndOfNodesShareACache(t *testing.T) {
	need(t, "apt-get", "apt")
	cache, n := t.TempDir(), 0
	img, err := Ensure(t.Context(), Options{Cache: cache, build: fakeBuild(&n)})
	if err != nil {
		t.Fatal(err)
	}
	node := imagecache.At(cache, "0123456789abcdef")
	err = errors.Join(os.Mkdir(node.WorkDir(), 0o700), os.WriteFile(filepath.Join(node.WorkDir(), "vmlinux"), nil,
		0o644))
	if err := errors.Join(err, node.Commit(t.Context(), node.WorkDir(),
		guest.Image{Name: "builtin", Key: "0123456789abcdef", Kernel: "vmlinux", Initramfs: "vmlinux"},
		"vmlinux")); err != nil {
		t.Fatal(err)
	}
	hosts, damaged, err := list(t.Context(), cache)
	if err != nil || len(damaged) != 0 || len(hosts) != 1 || hosts[0].Key != img.Key {
		t.Errorf("images of hosts: %v, damaged %v, %v, want %s alone", hosts, damaged, err, img.Key)
	}
	nodes, damaged, err := guest.List(t.Context(), cache)
	if err != nil || len(damaged) != 0 || len(nodes) != 1 || nodes[0].Key != "0123456789abcdef" {
		t.Errorf("images of nodes: %v, damaged %v, %v", nodes, damaged, err)
	}
	if err := os.Truncate(img.DiskPath(), 1); err != nil {
		t.Fatal(err)
	}
	if hosts, damaged, err := list(t.Context(), cache); err != nil || len(hosts) != 0 ||
		!cmp.Equal(damaged, []string{img.Key}) {
		t.Errorf("cut short: %v, damaged %v, %v", hosts, damaged, err)
	}
	if _, damaged, err := guest.List(t.Context(), cache); err != nil || len(damaged) != 0 {
		t.Errorf("an image of a host is among the damaged ones of nodes: %v, %v", damaged, err)
	}
	if err := guest.Remove(t.Context(), cache, img.Key); err != nil {
		t.Error(err)
	}
	if hosts, damaged, err := list(t.Context(), cache); err != nil || len(hosts)+len(damaged) != 0 {
		t.Errorf("removed, and still there: %v, %v, %v", hosts, damaged, err)
	}
}

func TestErrorsOfBuildingSayWhatToDo(t *testing.T) {
	need(t, "apt-get", "apt")
	cache := t.TempDir()
	full := func(context.Context, Options, inputs) (*Image, error) {
		return nil, errors.New("mmdebstrap: E: write: No space left on device")
	}
	if _, err := Ensure(t.Context(), Options{Cache: cache, build: full}); err == nil ||
		!strings.HasSuffix(err.Error(), "; free about 4 GB there, or set RACKLESS_CACHE to a directory with "+
			"more space") {
		t.Errorf("a full disk: %v", err)
	}
	if err := os.WriteFile(filepath.Join(cache, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), Options{Cache: filepath.Join(cache, "file")}); err == nil ||
		!strings.HasSuffix(err.Error(), "; set RACKLESS_CACHE to a directory that can be written") {
		t.Errorf("a cache that is a file: %v", err)
	}
}

func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkTools()
	if err == nil || !strings.Contains(err.Error(),
		"run: apt-get install --no-install-recommends mmdebstrap qemu-utils qemu-system-x86") {
		t.Errorf("got %v", err)
	}
}

func TestCommandsThatFail(t *testing.T) {
	_, err := run(t.Context(), command{name: "sh",
		args: []string{"-c", "for i in 1 2 3 4 5 6 7 8 9; do echo line $i >&2; done; exit 3"}})
	if err == nil || err.Error() != "sh: exit status 3: line 2; line 3; line 4; line 5; line 6; line 7; line "+
		"8; line 9" {
		t.Errorf("got %v", err)
	}
	if _, err := run(t.Context(), command{name: "false"}); err == nil || err.Error() != "false: exit status 1" {
		t.Errorf("silent: got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := run(ctx, command{name: "sh", args: []string{"-c", "exit 3"}}); err == nil ||
		err.Error() != "interrupted" {
		t.Errorf("interrupted: got %v", err)
	}
	out, err := run(t.Context(), command{name: "sh", args: []string{"-c", `read x; pwd; echo "$x$Y"`}, dir: "/",
		stdin: "in\n", env: []string{"Y=y"}})
	if err != nil || string(out) != "/\niny\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// hostLimit bounds the end-to-end test: building and booting takes many minutes where other tests have the CPUs.
const hostLimit = 25 * time.Minute

// reboot has a machine reboot itself and returns when the agent of the new boot answers.
func reboot(ctx context.Context, m *machine) error {
	bootID := []string{"cat", "/proc/sys/kernel/random/boot_id"}
	before, err := m.output(ctx, bootID...)
	if err != nil {
		return err
	}
	if _, err := m.output(ctx, "systemctl", "--no-block", "reboot"); err != nil {
		return err
	}
	for {
		// The agent of the old boot may answer, or end between two questions, and what is sent
		// while the machine resets is lost: then it is asked again.
		once, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := m.connect(once)
		cancel()
		if err == nil {
			if now, err := m.output(ctx, bootID...); err == nil && now != before {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// TestHost builds the image, if the cache has none, and goes through what hosts are for: boot by
// GRUB, changed kernel arguments, reboot.
func TestHost(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an image and boots it: minutes")
	}
	for _, tool := range tools {
		need(t, tool.program, tool.debian)
	}
	need(t, "mke2fs", "e2fsprogs")
	ctx, cancel := context.WithTimeoutCause(t.Context(), hostLimit, errors.New("the test's own limit"))
	defer cancel()
	img, err := Ensure(ctx, Options{Cache: testCache(t), Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Join(img.Packages, "\n")
	for _, p := range img.Recipe.Packages {
		if !strings.Contains("\n"+packages, "\n"+p+"=") {
			t.Errorf("%s is not installed", p)
		}
	}

	overlay, tools := filepath.Join(t.TempDir(), "overlay.qcow2"), filepath.Join(t.TempDir(), "tools.ext4")
	tree := t.TempDir()
	for _, step := range []error{
		os.Mkdir(filepath.Join(tree, "bin"), 0o755),
		os.WriteFile(filepath.Join(tree, "bin", "rackless"), []byte("#!/bin/sh\necho $RACKLESS_CACHE\n"), 0o755),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	for _, c := range []command{
		{name: "qemu-img", args: []string{"create", "-q", "-f", "qcow2", "-b", img.DiskPath(), "-F", "qcow2", overlay}},
		{name: "mke2fs", args: []string{"-q", "-t", "ext4", "-L", "rackless", "-d", tree, tools, "8M"}},
	} {
		if _, err := run(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	host := boot{disk: overlay, more: []string{
		"-smp", "4", "-m", "1536M",
		"-object", "memory-backend-ram,id=m0,size=768M", "-object", "memory-backend-ram,id=m1,size=768M",
		"-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
		"-blockdev", "driver=raw,node-name=tools,read-only=on,file.driver=file,file.filename=" + comma(tools),
		"-device", "virtio-blk-pci,drive=tools,bus=pcie.0",
		"-chardev", "null,id=hvc", "-device", "virtconsole,chardev=hvc",
	}}
	err = host.run(ctx, func(ctx context.Context, m *machine) error {
		sh := func(script string) string {
			t.Helper()
			out, err := m.output(ctx, "sh", "-c", script)
			if err != nil {
				t.Errorf("%s: %v", script, err)
			}
			return strings.TrimSpace(out)
		}
		for _, is := range []struct{ name, script, want string }{
			{"all units started", "systemctl is-system-running --wait", "running"},
			{"the kernel is the one in the manifest", "uname --kernel-release", img.KernelVer},
			{"systemd runs it", "cat /proc/1/comm", "systemd"},
			{"cgroups are version 2", "stat --file-system --format %T /sys/fs/cgroup", "cgroup2fs"},
			{"the root file system is the partition, writable",
				"findmnt --noheadings --raw --output SOURCE,FSTYPE,LABEL /; touch /root/x",
				"/dev/vda1 ext4 rackless-root"},
			{"GRUB started it", "cut -d - -f 1 /proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz"},
			{"GRUB has an entry to repair things", "grep -c 'menuentry .*(recovery mode)' /boot/grub/grub.cfg", "1"},
			{"both consoles have a shell of root's", "ps -C bash -o user=,tty=,args= | tr -s ' ' | sort",
				"root hvc0 /bin/bash --login\nroot ttyS0 /bin/bash --login"},
			{"the second disk comes when it is asked for",
				"findmnt --noheadings --output FSTYPE /opt/rackless; rackless; findmnt --noheadings --raw --types " +
					"ext4 --output OPTIONS /opt/rackless | cut -d , -f 1",
				"autofs\n/opt/rackless/cache\nro"},
			{"the modules are there", "modprobe --all --dry-run vfio-pci igb rdma_rxe 9p 9pnet_virtio && echo ok",
				"ok"},
			{"libvirt knows what QEMU can do since the image was built",
				"grep -l '<emulator>/usr/bin/qemu-system-x86_64' /var/cache/libvirt/qemu/capabilities/*.xml | " +
					"wc --lines", "1"},
			{"libvirtd answers", "virsh --quiet --connect qemu:///system uri", "qemu:///system"},
			{"nothing of how it was built is left",
				"ls -d /etc/apt/apt.conf.d/*mmdebstrap* /etc/dpkg/dpkg.cfg.d/*mmdebstrap* /etc/apt/sources.list " +
					"/mnt/* 2>/dev/null; true", ""},
			{"a user's arguments go into grub.cfg",
				`echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX rackless.test=1 hugepages=16"' >/etc/default/grub.d/x.cfg && update-grub 2>/dev/null && grep -c rackless.test=1 /boot/grub/grub.cfg`, "3"},
		} {
			if got := sh(is.script); got != is.want {
				t.Errorf("%s: %s: got %q, want %q", is.name, is.script, got, is.want)
			}
		}
		if err := reboot(ctx, m); err != nil {
			return err
		}
		for _, is := range []struct{ name, script, want string }{
			{"the arguments are beside those there were",
				"grep -o 'console=ttyS0,115200\\|rackless.test=1\\|root=UUID' /proc/cmdline",
				"root=UUID\nconsole=ttyS0,115200\nrackless.test=1"},
			{"huge pages are on both nodes",
				"cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages", "8\n8"},
			{"files are where they were", "ls /root/x", "/root/x"},
		} {
			if got := sh(is.script); got != is.want {
				t.Errorf("after the reboot: %s: %s: got %q, want %q", is.name, is.script, got, is.want)
			}
		}
		return m.powerOff(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// testCache is the directory of the images of this machine's user, as rackless itself has it: an
// image takes minutes to build.
func testCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("RACKLESS_CACHE"); dir != "" {
		return filepath.Join(dir, "images")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "rackless", "images")
}

// list returns the images of hosts in the cache that are whole, by key. damaged holds the keys of
// those that are not; one whose manifest cannot be read any more may be of any kind, and guest.List
// has it.
func list(ctx context.Context, cache string) (images []*Image, damaged []string, err error) {
	keys, err := imagecache.Keys(cache)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		e := imagecache.At(cache, key)
		img := &Image{Dir: e.Dir()}
		err := img.read(ctx, e)
		switch {
		case err == nil:
			images = append(images, img)
		case errors.Is(err, imagecache.ErrDamaged):
			if img.Name == hostName {
				damaged = append(damaged, key)
			}
		case !errors.Is(err, imagecache.ErrOtherKind):
			return nil, nil, err
		}
	}
	return images, damaged, nil
}
